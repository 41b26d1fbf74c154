"""A sweep as a job array of Slurm: on a cluster of one node, whose tasks take no time."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from experiments.sweeps.planning import PlannedRun
from experiments.sweeps.slurm import SlurmExecutor, array_script, submitted
from experiments.sweeps.store import Store
from experiments.sweeps.study import run_missing
from fabric.errors import UsageError
from tests.experiments.sweeps import task
from tests.experiments.sweeps.plain_runs import SHARE, InTurn, planned, swept
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
    plan, out = planned(grid={SHARE: [0.1]}, memory="1 GiB"), cluster / "sweep"
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


def test_the_script_asks_for_a_core_and_the_memory_of_a_run(tmp_path: Path) -> None:
    script = array_script(planned(memory="2 GiB"), 12, tmp_path, 4)
    wanted = ["--array=0-11%4", "--cpus-per-task=1", "--mem=2560M", "--requeue"]
    assert [f"#SBATCH {line}" in script for line in wanted] == [True] * 4


def test_without_slurm_the_error_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    plan = planned(grid={SHARE: [0.1]})
    with pytest.raises(UsageError, match="--on slurm: there is no sbatch here"):
        run_missing(plan, Store(tmp_path / "out"), SlurmExecutor(), lambda tally: None, lambda text: None)


def test_real_time_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="engine namespace needs root and a machine to itself"):
        swept(planned(engine="namespace"), tmp_path / "out", SlurmExecutor())
