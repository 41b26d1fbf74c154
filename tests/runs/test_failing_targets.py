"""Failures of programs and disks as an experiment asks for them: what is refused before a run, what a job that was hit
may do, what the verdict says, and what a new kind of failure takes."""

from __future__ import annotations

import importlib
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from fabric.config import Strict, checked
from fabric.errors import ConfigError, TrafficError, UsageError
from fabric.failures.config import AnyLine, failure_line, schedule_failures
from fabric.failures.kind import FailureKind
from fabric.failures.kinds.disk import DiskState, DiskTarget
from fabric.failures.kinds.gpu import GpuTarget
from fabric.failures.kinds.process import KILLED, RESTARTED, STOPPED, ProgramState, ProgramTarget
from fabric.failures.line import FailureConfig
from fabric.failures.listing import KINDS, LINES
from fabric.failures.report import Change, FaultReport, LinkChange
from fabric.failures.schedule import DOWN, WHOLE, Failure, FailureSchedule
from fabric.measure.fidelity import socket_checks
from fabric.measure.load_checks import asked_words
from fabric.measure.verdict import Check, Status
from fabric.model.lanes import ServiceLevel
from fabric.tables import TABLES
from fabric.world.engines import NAMESPACE, VIRTUAL
from runs import failures
from runs.config import require_engine_for_failures
from runs.failures import Injections, failing_hosts, in_words, kind_of, rotten_hosts, stopped_on
from runs.launching.spec import RunSpec, require_several_guests
from runs.phase_rows import carried_out_checks, ended_checks, failure_rows, timely_checks
from runs.registry import resolve
from runs.timeline import JobWindow, Timeline
from tests.fabric.measure.test_fidelity import counted
from tests.waiting import until
from topologies.load import load_fabric
from traffic.job import Records

FABRIC = load_fabric("fire_flyer_2_small")
LINK = FABRIC.links[0]
HERE = Path(__file__).parents[2] / "experiments" / "shared_cluster"
SLOW_NIC, WITHOUT_HEALTH = str(HERE / "slow_nic.yaml"), str(HERE / "training_on_storage.yaml")


def refusal(experiment: str, *lines: str) -> str:
    with pytest.raises(ConfigError) as caught:
        resolve(experiment, [f"failures=[{', '.join(lines)}]"])
    return str(caught.value)


@pytest.mark.parametrize(
    ("experiment", "line", "words"),
    [
        ("isolation", "{disk: z0h001, at: 1, effect: rot}", "disk: no job of this experiment has a disk on z0h001"),
        ("isolation", "{disk: z0h001, at: 1, effect: rot}", "on z0h001; they are on st000 to st003"),
        ("routing_incast", "{disk: st001, at: 1, effect: rot}", "has a disk on st001; it has no storage job"),
        ("isolation", "{disk: st001/9, at: 1, effect: error}", "disk: st001 has disks 0 to 3; choose one of them"),
        (
            "isolation",
            "{disk: st001, at: 1, effect: slow, factor: 10}",
            "factor 10: reads of a disk take no time here, and no factor changes that; give latency, or set",
        ),
        (
            "shared_cluster",
            "{process: z0h000, job: trainer, at: 1, effect: kill}",
            "job: 'trainer' is not a job of this experiment; it has ",
        ),
        (
            "shared_cluster",
            "{process: z0h000, job: data, at: 1, effect: kill}",
            "process: job data has no program on z0h000; train-a has",
        ),
        (
            "isolation",
            "{gpu: z0h001, at: 1, xid: 79}",
            "gpu: no job of this experiment looks at errors of GPU 0 of z0h001",
        ),
        (
            "isolation",
            "{gpu: z0h001/x, at: 1, xid: 79}",
            "gpu: 'z0h001/x' is not a GPU; write the host and the GPU's number",
        ),
        (SLOW_NIC, "{gpu: z0h003/8, at: 1, xid: 79}", "gpu: z0h003 has GPUs 0 to 7; choose one of them"),
        (SLOW_NIC, "{gpu: z0h006, at: 1, xid: 79}", "gpu: z0h006 is not a node of platform"),
        (
            WITHOUT_HEALTH,
            "{gpu: z0h001, at: 1, xid: 79}",
            "gpu: nobody looks at errors of GPU 0 of z0h001; give the platform `health:`",
        ),
    ],
)
def test_what_no_job_has_is_refused_before_the_run(experiment: str, line: str, words: str) -> None:
    said = refusal(experiment, "{link: z0l00-z0s00, at: 1, for: 1}", line)
    assert "failures.1." in said
    assert words in said


def test_a_line_about_a_gpu_says_which_error_and_never_how_long() -> None:
    for line, words in (
        ("{gpu: z0h001, at: 1}", "xid is missing: which error a gpu has; give it, such as 79"),
        ("{gpu: z0h001, at: 1, xid: 79, effect: wrong}", "or wrong values that nothing reports; give one of them"),
        ("{gpu: z0h001, at: 1, effect: rot}", "failures.0.effect: is 'rot'; a gpu has wrong, or an xid"),
        ("{gpu: z0h001, at: 1, for: 1, xid: 79}", "gpu: an error is reported once, and has no end; leave out 'for'"),
        ("{disk: st001, at: 1, effect: rot, xid: 79}", "xid: not of a disk; it has chunks, effect, "),
    ):
        assert words in refusal("isolation", line)


def test_lines_may_be_in_a_file(tmp_path: Path) -> None:
    path = tmp_path / "faults.yaml"
    path.write_text("failures:\n- {port: 'z0l00:1', at: 1 s, for: 1 s}\n- {nic: 'z0h003:0', at: 2 s, rate: 0.5}\n")
    config = resolve("isolation", [f"failures={path}"])[1]
    assert [line.at for line in config.failures] == [1.0, 2.0]
    path.write_text("failures: []\nseed: 2\n")
    for name, words in ((path, "has keys failures, seed; it must have failures, and no other"), ("no.yaml", "no.yaml")):
        with pytest.raises(ConfigError, match=words):
            resolve("isolation", [f"failures={name}"])


def test_what_some_job_has_is_not() -> None:
    lines = [
        "{disk: st001/3, at: 1, effect: rot}",
        "{disk: st001, at: 1, effect: slow, latency: 5 ms}",
        "{process: st001, job: storage, at: 1, effect: kill}",
        "{silent: z0h003, at: 1, for: 1}",
    ]
    assert len(resolve("isolation", [f"failures=[{', '.join(lines)}]"])[1].failures) == 4
    slow = "failures=[{disk: st001, at: 1, effect: slow, factor: 10}]"
    assert resolve("isolation", [slow, "storage.service.ssd_latency=1 ms"])[1].failures


def lines_of(*lines: dict[str, Any]) -> list[FailureConfig]:
    return [failure_line({"at": 1, **line}) for line in lines]


def test_slow_programs_are_for_real_time() -> None:
    asked = lines_of({"link": "z0l00:6"}, {"process": "z0h000", "effect": "slow", "share": 0.5})
    require_engine_for_failures(NAMESPACE, asked)
    require_engine_for_failures(VIRTUAL, lines_of({"process": "z0h000", "effect": "stop"}))
    with pytest.raises(UsageError, match=r"failures\.1\.effect: slow is for real time: in .* compute in no time"):
        require_engine_for_failures(VIRTUAL, asked)


def test_several_guests_refuse_them_by_their_own_name() -> None:
    spec = RunSpec("isolation", {"failures": [{"silent": "z0h003", "at": 1, "for": 1}]}, engine="virtual", guests=2)
    with pytest.raises(UsageError, match="--guests 2: not with failures of programs or disks"):
        require_several_guests(spec, VIRTUAL, resolve("isolation", spec.all_overrides)[1])


def test_a_stage_knows_which_hosts_fail() -> None:
    schedule = schedule_failures(
        lines_of(
            {"silent": "z0h003", "for": 1},
            {"process": "st001", "effect": "kill"},
            {"disk": "st002", "effect": "rot"},
            {"disk": "st003", "effect": "error"},
            {"host": "z0h001"},
        ),
        FABRIC,
        1,
    )
    assert failing_hosts(schedule) == {"z0h003", "st001"}
    assert rotten_hosts(schedule) == {"st002"}
    assert failing_hosts(None) == rotten_hosts(None) == frozenset()


# What was done -------------------------------------------------------------------------------------------------------


def test_rows_say_what_was_done_to_whom_and_when_it_ended() -> None:
    target = ProgramTarget("z0h003")
    changes = [
        LinkChange(LINK, DOWN, 1.0, 1.1, 1.2, (0,), waiting_packets=7),
        Change(target, STOPPED, 1.0, 1.0, 1.3, (0,), jobs=("hfreduce", "storage")),
        Change(DiskTarget("st001", 2), DiskState(rotten=1), 1.5, 1.5, 1.6, (1,), "chunk 3 of file 0", ("storage",)),
        LinkChange(LINK, WHOLE, 2.0, 2.1, 2.2, (0,)),
        Change(target, ProgramState(), 2.0, 2.0, 2.3, (0,), jobs=("hfreduce", "storage")),
    ]
    frame = pd.DataFrame(failure_rows("p", FaultReport(tuple(changes))))
    assert set(frame.columns) == set(TABLES["failures"].columns)
    assert frame.kind.tolist() == ["link", "process", "disk", "link", "process"]
    assert frame.state.tolist() == ["down", "stopped", "1 chunks rotten", "whole", "whole"]
    assert frame.ended_s.tolist()[:2] == [2.2, 2.3]
    assert frame.ended_s.isna().tolist() == [False, False, True, True, True]
    assert frame.up.tolist() == [False, True, True, True, True]
    assert frame.waiting_packets.tolist() == [7, 0, 0, 0, 0]
    assert frame.jobs.tolist() == ["", "hfreduce, storage", "storage", "", "hfreduce, storage"]
    assert frame.link.tolist() == [str(LINK), "", "", str(LINK), ""]
    assert frame.detail.tolist()[2] == "chunk 3 of file 0"


def test_the_verdict_says_which_failures_never_came_and_why() -> None:
    asked = schedule_failures(
        lines_of(
            {"link": "z0l00:6", "for": 1},
            {"process": "z0h003", "effect": "stop", "at": 99, "for": 1},
            {"disk": "st001", "effect": "error", "for": 1},
            {"disk": "st002", "effect": "error", "for": 1},
        ),
        FABRIC,
        1,
    )
    table = TABLES["failures"].empty()
    one = pd.DataFrame({"causes": ["0", "2"], "missed": ["", "its service was killed"], "state": "down"})
    (check,) = carried_out_checks(asked, one, longest_s=20.0)
    assert (check.status, check.value) == (Status.DEGRADED, 3)
    assert check.text == (
        "never carried out: failures.1 (programs on z0h003, due at 99 s): no phase is so long; the longest has 20 s; "
        "failures.2 (disks of st001, due at 1 s): its service was killed; "
        "failures.3 (disks of st002, due at 1 s): no job that plays then has it"
    )
    whole = pd.DataFrame({"causes": ["0, 1", "2, 3"], "missed": "", "state": "down"})
    (check,) = carried_out_checks(asked, whole)
    assert (check.status, check.value) == (Status.FAITHFUL, 0)
    assert carried_out_checks(None, one) == []
    assert len(carried_out_checks(asked, table)) == 1


def test_the_verdict_says_how_late_and_how_short_failures_were() -> None:
    disk, jobs = DiskTarget("st002", 0), ("storage",)
    slow = DiskState(added_s=0.05)

    def checks(*changes: Change, missed: Sequence[Change] = ()) -> list[Check]:
        rows = failure_rows("p", FaultReport(changes, missed=tuple(missed)))
        return timely_checks(pd.DataFrame(rows, columns=list(TABLES["failures"].columns)))

    def change(state: DiskState, due: float, done: float, due_end: float = 42.0) -> Change:
        return Change(disk, state, due, due, done, (0,), "", jobs, due_end)

    late, short = checks(change(slow, 8.0, 8.01, 13.0), change(DiskState(), 13.0, 13.01))
    assert (late.status, short.status) == (Status.FAITHFUL, Status.FAITHFUL)
    assert (late.name, late.faithful_up_to) == ("failures_late_s", 0.1)
    assert late.value == pytest.approx(0.01)
    late, short = checks(change(slow, 8.0, 33.0, 13.0), change(DiskState(), 13.0, 33.0003))
    assert (late.status, late.value) == (Status.DEGRADED, 25.0)
    assert short.status is Status.DEGRADED
    assert short.value == pytest.approx(1.0, abs=1e-3)
    assert short.text == (
        "st002/0 (reads take 0.05 s more) in phase p was without 100% of its time: due at 8.000 s of the run, for 5 s; "
        "it was so from 33.000 s until 33.000 s; 1 of 2 changes are beyond the limit"
    )
    late, short = checks(change(slow, 8.0, 8.0, 42.0))
    assert short.value == 0, "to the end of the phase, as was due"
    assert checks() == []
    assert checks(missed=[Change(disk, slow, 8.0, 8.0, math.nan, (0,), missed="it was killed")]) == []
    host = ProgramTarget("st001", "storage")
    late, short = checks(
        Change(host, RESTARTED, 1.0, 1.0, 1.0, (0,), "", jobs, 3.0),
        Change(host, ProgramState(), 3.0, 3.0, 4.5, (0,), "", jobs),
    )
    assert late.value == 0, "a program that is started again takes a while to start"


def test_the_verdict_says_which_jobs_failures_have_ended() -> None:
    jobs = pd.DataFrame({"job": ["nccl", "storage"], "phase": "p", "failed": ["rank 2 was killed; asked for: x", ""]})
    (check,) = ended_checks(jobs)
    assert check.status is Status.FAITHFUL
    assert check.text == "jobs ended as was asked for: nccl in phase p: rank 2 was killed; asked for: x"
    assert ended_checks(jobs[1:]) == []


def test_what_was_done_to_programs_is_said_once_by_host_and_without_what_ended_it() -> None:
    stopped, disk = ProgramTarget("z0h003"), DiskTarget("st001", 2)
    changes = [
        LinkChange(LINK, DOWN, 1.0, 1.0, 1.0, (0,)),
        *[Change(stopped, state, 1.0, 1.0, 1.0, (1,)) for state in (STOPPED, ProgramState()) for _ in range(3)],
        Change(disk, DiskState(fails=True), 1.0, 1.0, 1.0, (2,)),
    ]
    assert stopped_on(changes) == {"z0h003": ("programs on z0h003 stopped (failures.1)",)}
    assert asked_words([f"a{number}" for number in range(9)] * 2) == "a0, a1, a2, a3 and 5 more"


def test_what_found_no_room_on_a_host_whose_programs_were_stopped_is_asked_for_and_elsewhere_not() -> None:
    lost = replace(counted(1000), udp_dropped=100, connections_dropped=50)
    udp, listen, *_ = socket_checks(lost)
    assert (udp.status, listen.status) == (Status.INVALID, Status.INVALID)
    stopped = {"z0h003": ["programs on z0h003 stopped (failures.0)"]}
    there = replace(lost, udp_dropped_at={"z0h003": 100}, connections_dropped_at={"z0h003": 45, "st000": 5})
    udp, listen, *_ = socket_checks(there, stopped)
    assert (udp.status, listen.status, listen.value) == (Status.FAITHFUL, Status.DEGRADED, 5)
    assert udp.text == (
        "100 datagrams found no room in their sockets, 100 of them as asked for: programs on z0h003 stopped "
        "(failures.0)"
    )
    elsewhere = replace(lost, udp_dropped_at={"z0h004": 100}, connections_dropped_at={"z0h004": 50})
    udp, listen, *_ = socket_checks(elsewhere, stopped)
    assert (udp.status, listen.status) == (Status.INVALID, Status.INVALID)
    assert "asked for" not in udp.text


# Jobs that were hit --------------------------------------------------------------------------------------------------


@dataclass
class Hurt:
    """A job that has nothing to say for itself once it was hit."""

    name: str = "hurt"
    level: ServiceLevel = ServiceLevel.NCCL
    is_hit: bool = True
    plays: int = 0

    def start(self) -> None:
        raise AssertionError("whoever makes jobs starts them")

    def play(self, phase: str) -> None:
        self.plays += 1
        if self.plays > 1:
            raise TrafficError("rank 2 was killed")

    def halt(self) -> Records:
        raise TrafficError("rank 1: its peer has gone")

    def close(self) -> None:
        raise AssertionError("whoever makes jobs closes them")

    def done_to(self, name: str) -> str:
        return "programs on z0h003 killed (failures.0)" if self.is_hit and name == self.name else ""


@pytest.mark.parametrize("window", [(0.0, None), (0.0, 0.05)])
def test_a_job_that_was_hit_and_fails_is_a_result_and_no_fault(window: tuple[float, float | None]) -> None:
    job = Hurt()
    line = Timeline("p", [JobWindow(job, *window)], done_to=job.done_to)
    line.begin()
    time.sleep(0.2)  # Its window may end meanwhile, or not.
    line.verify()
    (played,) = line.end().played
    assert played.failed == ("rank 1: its peer has gone; asked for: programs on z0h003 killed (failures.0)")


@pytest.mark.parametrize("window", [(0.0, None), (0.0, 0.05)])
def test_a_job_that_fails_of_itself_is_a_fault(window: tuple[float, float | None]) -> None:
    job = Hurt(is_hit=False)
    line = Timeline("p", [JobWindow(job, *window)], done_to=job.done_to)
    line.begin()
    time.sleep(0.2)
    with pytest.raises(TrafficError, match=r"^rank 1: its peer has gone$"):
        line.end()


def test_a_job_that_cannot_play_again_says_what_was_done_to_it_and_what_helps() -> None:
    job = Hurt(plays=1)
    with pytest.raises(TrafficError) as caught:
        Timeline("two", [JobWindow(job)], done_to=job.done_to).begin()
    assert str(caught.value) == (
        "job hurt: cannot play phase two, after programs on z0h003 killed (failures.0): rank 2 was killed; let that "
        "happen in its last phase only: later in a phase than the others last, or for a time"
    )


# A new kind ----------------------------------------------------------------------------------------------------------

FANS = '''
"""Fans of switches that stand still."""

from dataclasses import dataclass
from typing import ClassVar

from fabric.failures.injection import Effects, ThreadInjector
from fabric.failures.kind import FailureKind
from fabric.failures.line import FailureConfig
from fabric.failures.schedule import State


@dataclass(frozen=True)
class Fan:
    switch: str

    def __str__(self):
        return f"fan of {self.switch}"


@dataclass(frozen=True)
class FanState(State):
    turns: bool = True

    @classmethod
    def composed(cls, states):
        return cls(all(state.turns for state in states))

    def __str__(self):
        return "whole" if self.turns else "stands still"


class Fans(Effects):
    def __init__(self, done):
        super().__init__()
        self.done = done

    def bring(self, part, before, state):
        self.done.append((str(part.target), str(state)))
        return ""

    def mended(self, state):
        return None if state.turns else FanState()


class FanFailureConfig(FailureConfig):
    targets: ClassVar[tuple[str, ...]] = ("fan",)

    fan: str

    def stretches(self, fabric, began_s, ended_s):
        if fabric.node_named(self.fan) not in fabric.switches:
            raise ValueError(f"fan: no switch {self.fan!r}")
        yield Fan(self.fan), began_s, ended_s, FanState(False)


DONE = []
KIND = FailureKind("fan", Fan, lambda scene: ThreadInjector(Fans(DONE), scene.hit))
'''


class NoLinks:
    """What stands for the injector of links."""

    def prepare(self, schedule: FailureSchedule) -> None:
        assert schedule.events == ()

    def play(self, started: float) -> None: ...

    def carry_out(self, schedule: FailureSchedule) -> None: ...

    def look_again(self) -> None: ...

    def restore(self) -> FaultReport:
        return FaultReport(refused=3)

    def release(self) -> None: ...

    def abandon(self) -> None: ...


def test_a_new_kind_of_failure_is_a_file_and_its_entries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """CONTRIBUTING says which files a kind touches: its own, and the list. Here the first is elsewhere, and the list is
    patched."""
    (tmp_path / "fans.py").write_text(FANS)
    monkeypatch.syspath_prepend(str(tmp_path))
    fans = importlib.import_module("fans")
    no_links = FailureKind("link", type(LINK), lambda scene: NoLinks())
    monkeypatch.setattr(failures, "LINK", no_links)
    monkeypatch.setattr(failures, "KINDS", [no_links, *KINDS[1:], fans.KIND])

    any_line: Any = AnyLine([*LINES, fans.FanFailureConfig]).type

    class Whole(Strict):
        failures: list[any_line]

    lines: Sequence[FailureConfig] = checked(Whole, {"failures": [{"fan": "z0s00", "at": 0.02}]}, "test").failures
    schedule = schedule_failures(lines, FABRIC, 1)
    injections = Injections(None, None, 1)  # type: ignore[arg-type]
    injections.prepare(schedule, [])
    injections.play(time.monotonic())
    until(lambda: fans.DONE, "the failure at 0.02 s")
    report = injections.restore()
    injections.release()
    assert fans.DONE == [("fan of z0s00", "stands still"), ("fan of z0s00", "whole")]
    assert report.refused == 3
    rows = failure_rows("p", report)
    assert [(row["kind"], row["target"], row["state"]) for row in rows] == [
        ("fan", "fan of z0s00", "stands still"), ("fan", "fan of z0s00", "whole"),
    ]  # fmt: skip
    with pytest.raises(ConfigError, match=r"failures\.0\.fan: no switch 'z0h000'"):
        schedule_failures(checked(Whole, {"failures": [{"fan": "z0h000", "at": 1}]}, "test").failures, FABRIC, 1)
    for line, words in (
        ({"fan": "z0s00", "at": 1, "rate": 0.5}, r"failures\.0\.rate: not of a fan; it has no such key"),
        ({"at": 1}, f"{', '.join(LINES[-1].targets)}, fan$"),
    ):
        with pytest.raises(ConfigError, match=words):
            checked(Whole, {"failures": [line]}, "test")


def test_kinds_have_names_and_hits_have_words() -> None:
    targets = (LINK, ProgramTarget("a"), DiskTarget("a"), GpuTarget("a", 2))
    assert [kind_of(one) for one in targets] == ["link", "process", "disk", "gpu"]
    change = Change(ProgramTarget("z0h003"), KILLED, 1.0, 1.0, 1.0, (0, 2), jobs=("nccl",))
    assert in_words(change) == "programs on z0h003 killed (failures.0 and failures.2)"
    assert Failure(ProgramTarget("a"), 0.0, math.inf, KILLED).causes == ()
