"""A sweep as a job array of Slurm: on a cluster of one node, whose tasks take no time."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from app.sweeps.planning import PlannedRun
from app.sweeps.slurm import SlurmExecutor, array_script, submission, submitted
from app.sweeps.slurm import _asked as answer_of
from app.sweeps.store import Store
from app.sweeps.study import run_missing
from fabric.errors import EmulationError, UsageError
from tests.app.sweeps import task
from tests.app.sweeps.plain_runs import SHARE, InTurn, planned, swept
from tests.slurm_cluster import missing_programs, slurm

ROOT = Path(__file__).parents[3]


def lines(runs: Sequence[PlannedRun], directory_of: Callable[[str], Path]) -> list[str]:
    """Return what runs as a task instead of ``fabric run``, with its exit codes."""
    program = ["env", f"PYTHONPATH={ROOT}", sys.executable, task.__file__]
    return [shlex.join([*program, str(directory_of(run.key)), str(run.point[SHARE]), str(run.seed)]) for run in runs]


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    if os.geteuid() != 0:
        pytest.skip("Slurm's daemons need root here")
    if missing := missing_programs():
        pytest.skip(f"no {', '.join(missing)}; tools/setup.sh test installs them")
    (tmp_path / "slurm").mkdir()
    with slurm(tmp_path / "slurm") as environment:
        monkeypatch.setenv("SLURM_CONF", environment["SLURM_CONF"])
        yield tmp_path


def test_an_array_runs_what_is_missing_and_an_invalid_run_is_no_failure(cluster: Path) -> None:
    plan, out = planned(grid={SHARE: [0.1]}, memory="1 GiB"), cluster / "my 1st sweep, 100%"
    found = swept(plan, out, SlurmExecutor(poll_s=0.5, lines=lines))
    assert list(found.runs["verdict"]) == ["faithful", "invalid", "failed"]
    assert found.failures == [(plan.runs[2].key, "a rank died")]
    job = submitted(out / "slurm")
    told = subprocess.run(["scontrol", "show", "job", str(job)], capture_output=True, text=True, check=True).stdout
    states = [word.partition("=")[2] for word in told.split() if word.startswith("JobState=")]
    assert sorted(states) == ["COMPLETED", "COMPLETED", "FAILED"]
    again = InTurn()
    assert swept(plan, out, again).exit_code == 0
    assert again.keys == [plan.runs[2].key]
    assert list(found.runs["run"]) == [run.key for run in plan.runs]


TIMED_OUT = "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation"


@pytest.mark.parametrize("is_taken", [True, False])
def test_an_array_whose_submission_times_out_is_there_once(
    cluster: Path, monkeypatch: pytest.MonkeyPatch, is_taken: bool
) -> None:
    """By Slurm itself, which may have taken a job though its answer was lost."""
    plan, out, tries = planned(grid={SHARE: [0.1]}, memory="1 GiB"), cluster / "sweep", list[str]()

    def asked(command: Sequence[str]) -> str:
        tries.append(command[0])
        if tries.count("sbatch") > 1 or command[0] != "sbatch":
            return answer_of(command)
        if is_taken:
            answer_of(command)
        raise EmulationError(f"sbatch failed with exit code 1: {TIMED_OUT}")

    monkeypatch.setattr("app.sweeps.slurm._asked", asked)
    found = swept(plan, out, SlurmExecutor(poll_s=0.5, lines=lines))
    assert list(found.runs["verdict"]) == ["faithful", "invalid", "failed"]
    assert (tries.count("sbatch"), submitted(out / "slurm")) == ((1, "1") if is_taken else (2, "1"))


def test_the_script_asks_for_a_core_and_the_memory_of_a_run(tmp_path: Path) -> None:
    script = array_script(planned(memory="2 GiB"), 12, tmp_path, 4)
    wanted = ["--array=0-11%4", "--cpus-per-task=1", "--mem=2560M", "--requeue"]
    assert [f"#SBATCH {line}" in script for line in wanted] == [True] * 4


def test_directories_and_names_may_have_spaces_and_percent_signs(tmp_path: Path) -> None:
    folder = tmp_path / "my 50% sweep" / "slurm"
    command = submission("my_study-0", folder, folder / "array.sh")
    assert f"--output={tmp_path}/my 50%% sweep/slurm/logs/%a.log" in command
    assert "--job-name=my_study-0" in command
    plan = replace(planned(), name="my study, 100%")
    assert all(
        str(tmp_path) not in line or line.startswith("line=") for line in array_script(plan, 1, folder, 1).split("\n")
    )


class FakeSlurm:
    """What Slurm's programs answer: arrays of so many tasks at most, which end at once."""

    def __init__(self, most: int, store: Store) -> None:
        self.most = most
        self.store = store
        self.arrays: list[list[str]] = []
        self.earlier = 0
        self.silent = 0
        self.fails: dict[str, list[str]] = {}
        """What programs say next instead of answering, by their names."""
        self.loses_answers = False
        """Whether it takes jobs all the same."""
        self.named: dict[str, str] = {}

    def __call__(self, command: Sequence[str]) -> str:
        if (said := self.fails.get(command[0])) and not (command[0] == "sbatch" and self.loses_answers):
            raise EmulationError(f"{command[0]} failed with exit code 1: {said.pop(0)}")
        if command[0] == "squeue" and (names := [word[7:] for word in command if word.startswith("--name=")]):
            return self.named.get(names[0], "") + "\n"
        if command[0] == "scontrol":
            return f"MaxArraySize            = {self.most}\n"
        if command[0] == "squeue":
            if self.silent:
                self.silent -= 1
                raise EmulationError("squeue failed with exit code 1: Unable to contact slurm controller")
            if self.earlier:
                self.earlier -= 1
                return "RUNNING\n"
            for key in json.loads((self.store.directory / "slurm" / "submitted.json").read_text())["tasks"]:
                (self.store.runs / key).mkdir(exist_ok=True)
                verdict = {"verdict": {"status": "faithful", "reasons": []}}
                (self.store.runs / key / "manifest.json").write_text(json.dumps(verdict))
            return ""
        script = Path(command[-1]).read_text()
        self.arrays.append([line for line in script.splitlines() if "--array" in line])
        (name,) = (word.removeprefix("--job-name=") for word in command if word.startswith("--job-name="))
        self.named[name] = str(len(self.arrays))
        if said:
            raise EmulationError(f"sbatch failed with exit code 1: {said.pop(0)}")
        return f"{len(self.arrays)}\n"


def test_more_runs_than_an_array_may_have_are_several_arrays_in_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan, store, told = planned(), Store(tmp_path / "out"), list[str]()
    fake = FakeSlurm(len(plan.runs) - 1, store)
    monkeypatch.setattr("app.sweeps.slurm._asked", fake)
    run_missing(plan, store, SlurmExecutor(poll_s=0.01), lambda tally: None, told.append)
    assert store.missing(plan.runs) == []
    assert fake.arrays == [[f"#SBATCH --array=0-{fake.most - 1}"], ["#SBATCH --array=0-0"]]
    assert f"submitted as job 1 with {fake.most} of {len(plan.runs)} runs, as many as an array may have" in told[0]


def test_what_an_earlier_array_has_not_is_submitted_after_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan, store, told = planned(), Store(tmp_path / "out"), list[str]()
    store.open(plan)
    fake = FakeSlurm(1001, store)
    monkeypatch.setattr("app.sweeps.slurm._asked", fake)
    (store.directory / "slurm").mkdir()
    earlier = {"job": "7", "tasks": [plan.runs[0].key]}
    (store.directory / "slurm" / "submitted.json").write_text(json.dumps(earlier))
    fake.earlier = 2
    run_missing(plan, store, SlurmExecutor(poll_s=0.01), lambda tally: None, told.append)
    assert store.missing(plan.runs) == []
    assert fake.arrays == [[f"#SBATCH --array=0-{len(plan.runs) - 2}"]]


def test_a_controller_that_does_not_answer_for_a_while_ends_no_sweep(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan, store, told = planned(), Store(tmp_path / "out"), list[str]()
    fake = FakeSlurm(1001, store)
    fake.silent = 3
    monkeypatch.setattr("app.sweeps.slurm._asked", fake)
    run_missing(plan, store, SlurmExecutor(poll_s=0.01), lambda tally: None, told.append)
    assert store.missing(plan.runs) == []
    assert [line for line in told if "Unable to contact slurm controller; job 1 goes on" in line] == [told[1]]


def test_a_controller_that_never_answers_leaves_the_job_to_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = FakeSlurm(1001, Store(tmp_path / "out"))
    fake.silent = 10**9
    monkeypatch.setattr("app.sweeps.slurm._asked", fake)
    monkeypatch.setattr("app.sweeps.slurm._SILENT_S", 0.05)
    with pytest.raises(EmulationError, match="Job 1 goes on without this program: start the sweep again"):
        run_missing(planned(), fake.store, SlurmExecutor(poll_s=0.01), lambda tally: None, lambda text: None)
    assert submitted(fake.store.directory / "slurm") == "1"


BUSY = [
    TIMED_OUT,
    "sbatch: error: Batch job submission failed: Unable to contact slurm controller (connect failure)",
    "sbatch: error: Batch job submission failed: Resource temporarily unavailable",
    "sbatch: error: Slurm temporarily unable to accept job, sleeping and retrying",
    "sbatch: error: Batch job submission failed: Zero Bytes were transmitted or received",
    "sbatch: error: QOSMaxSubmitJobPerUserLimit\nsbatch: error: Batch job submission failed: Job violates "
    "accounting/QOS policy (job submit limit, user's size and/or time limits)",
    "sbatch: error: RPC rate limit exceeded, backing off",
]


@pytest.mark.parametrize("loses_answers", [False, True])
@pytest.mark.parametrize("said", BUSY)
def test_a_controller_that_is_busy_is_asked_again_and_has_the_array_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str, loses_answers: bool
) -> None:
    plan, store, told = planned(), Store(tmp_path / "out"), list[str]()
    fake = FakeSlurm(1001, store)
    fake.fails = {program: [said] * 2 for program in ("scontrol", "sbatch", "squeue")}
    fake.loses_answers = loses_answers
    monkeypatch.setattr("app.sweeps.slurm._asked", fake)
    run_missing(plan, store, SlurmExecutor(poll_s=0.01), lambda tally: None, told.append)
    assert store.missing(plan.runs) == []
    assert len(fake.arrays) == 1
    assert sum(line.endswith("it is asked again for 600 s") for line in told) == 2


@pytest.mark.parametrize(
    "said",
    [
        "sbatch: error: Batch job submission failed: Invalid partition name specified",
        "sbatch: error: QOSMaxMemoryPerUser\nsbatch: error: Batch job submission failed: Job violates accounting/QOS "
        "policy (job submit limit, user's size and/or time limits)",
    ],
)
def test_what_no_second_try_mends_is_told_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str) -> None:
    store = Store(tmp_path / "out")
    fake = FakeSlurm(1001, store)
    fake.fails = {"sbatch": [said] * 2}
    monkeypatch.setattr("app.sweeps.slurm._asked", fake)
    with pytest.raises(EmulationError, match=said.partition(chr(10))[0]):
        run_missing(planned(), store, SlurmExecutor(poll_s=0.01), lambda tally: None, lambda text: None)
    assert len(fake.fails["sbatch"]) == 1


def test_a_sweep_that_never_learnt_its_job_finds_it_when_it_is_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan, store, told = planned(), Store(tmp_path / "out"), list[str]()
    fake = FakeSlurm(1001, store)
    fake.fails, fake.loses_answers = {"sbatch": [TIMED_OUT], "squeue": [TIMED_OUT] * 10**6}, True
    monkeypatch.setattr("app.sweeps.slurm._asked", fake)
    with monkeypatch.context() as soon:
        soon.setattr("app.sweeps.slurm._SILENT_S", 0.05)
        with pytest.raises(EmulationError, match="Start the sweep again: if Slurm has taken it, it is found"):
            run_missing(plan, store, SlurmExecutor(poll_s=0.01), lambda tally: None, told.append)
    fake.fails, fake.earlier = {}, 2
    run_missing(plan, store, SlurmExecutor(poll_s=0.01), lambda tally: None, told.append)
    assert "job 1 of an earlier start is still in the queue: waiting for it" in told
    assert (store.missing(plan.runs), len(fake.arrays)) == ([], 1)


def test_without_slurm_the_error_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    plan = planned(grid={SHARE: [0.1]})
    with pytest.raises(UsageError, match="--on slurm: scontrol is not installed here"):
        run_missing(plan, Store(tmp_path / "out"), SlurmExecutor(), lambda tally: None, lambda text: None)


def test_real_time_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="engine namespace needs root and a machine to itself"):
        swept(planned(engine="namespace"), tmp_path / "out", SlurmExecutor())
