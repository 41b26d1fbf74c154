"""What injectors of programs and disks do with jobs' handles, on one clock; here the handles note it."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import pytest

from fabric.errors import TrafficError
from fabric.failures import injection
from fabric.failures.injection import Effects, NotThereError, Part, ThreadInjector
from fabric.failures.kinds.disk import DiskEffects, DiskState, DiskTarget
from fabric.failures.kinds.gpu import GpuEffects, GpuState, GpuTarget
from fabric.failures.kinds.process import KILLED, RESTARTED, STOPPED, ProgramEffects, ProgramState, ProgramTarget
from fabric.failures.report import Change, FaultReport
from fabric.failures.schedule import Failure, FailureEvent, FailureSchedule, State
from tests.failing import Applied
from tests.jumping_threads import JumpingThreads, jumping
from tests.waiting import until

RUNS = ProgramState()


@dataclass
class Programs:
    """Programs that note what is done to them."""

    hosts: list[str]
    done: list[tuple[str, str]] = field(default_factory=list)

    def stop_on(self, host: str) -> None:
        self.done.append(("stop", host))

    def resume_on(self, host: str) -> None:
        self.done.append(("resume", host))

    def kill_on(self, host: str) -> None:
        self.done.append(("kill", host))
        self.hosts.remove(host)

    def restart_on(self, host: str) -> None:
        self.done.append(("restart", host))
        self.hosts.append(host)


@dataclass
class Noted:
    """A job with programs, and with two disks on each of some hosts."""

    name: str
    programs: Programs
    disks: tuple[str, ...] = ()
    done: list[tuple[Any, ...]] = field(default_factory=list)

    @property
    def failing_programs(self) -> Sequence[Programs]:
        return (self.programs,)

    def disks_on(self, host: str) -> int:
        return 2 if host in self.disks else 0

    def set_disk(self, host: str, number: int, state: DiskState) -> None:
        self.done.append((host, number, state))

    def rot(self, host: str, number: int, count: int, seed: str) -> Sequence[str]:
        self.done.append((host, number, count))
        return [f"chunk of {host}/{number}"] * count


def job(name: str, *hosts: str, disks: tuple[str, ...] = ()) -> Noted:
    return Noted(name, Programs(list(hosts)), disks)


def changes_of(effects: Effects, *failures: Failure) -> list[Change]:
    """Return what an injector does of failures within a tenth of a second, in time that jumps."""
    return list(report_of(effects, *failures).changes)


def report_of(effects: Effects, *failures: Failure, hit: Callable[[Change], None] = lambda change: None) -> FaultReport:
    with jumping(injection) as threads:
        injector = ThreadInjector(effects, hit)
        injector.prepare(FailureSchedule.of(failures))
        injector.play(threads.now_s)
        threads.sleep(0.15)
        return injector.restore()


def words(changes: Sequence[Change]) -> list[tuple[str, str, tuple[int, ...]]]:
    return [(str(one.target), str(one.state), one.causes) for one in changes]


def test_a_target_is_of_one_job_or_of_all() -> None:
    one, other, elsewhere = job("one", "a", "b"), job("other", "a"), job("elsewhere", "b")
    effects = Applied(ProgramEffects([one, other, elsewhere, object()]))
    assert effects.apply(ProgramTarget("a"), STOPPED) == [("one", ""), ("other", "")]
    assert effects.apply(ProgramTarget("c"), STOPPED) == []
    assert (one.programs.done, other.programs.done, elsewhere.programs.done) == ([("stop", "a")], [("stop", "a")], [])


def test_programs_go_on_once_nobody_wants_them_stopped_and_rows_are_of_what_each_job_has() -> None:
    one, other = job("one", "a"), job("other", "a")
    changes = changes_of(
        ProgramEffects([one, other]),
        Failure(ProgramTarget("a"), 0.01, 0.05, STOPPED, (0,)),
        Failure(ProgramTarget("a", "one"), 0.03, 0.07, STOPPED, (1,)),
    )
    assert one.programs.done == other.programs.done == [("stop", "a"), ("resume", "a")]
    found = words(changes)
    assert sorted(found[:2]) == [("one on a", "stopped", (0,)), ("other on a", "stopped", (0,))]
    assert found[2:] == [("other on a", "whole", (0,)), ("one on a", "whole", (0, 1))]
    assert changes[3].due_s - changes[0].due_s == pytest.approx(0.06)


def test_what_is_asked_for_by_hand_is_done_at_once_heard_of_and_undone_only_once_nothing_wants_it() -> None:
    one, heard = job("one", "a"), list[Change]()

    def at_once(target: ProgramTarget, state: State, cause: int) -> FailureSchedule:
        return FailureSchedule((FailureEvent(0.0, target, state, (cause,)),))

    with jumping(injection) as threads:
        injector = ThreadInjector(ProgramEffects([one]), heard.append)
        injector.prepare(FailureSchedule())
        injector.play(threads.now_s)
        with pytest.raises(NotThereError, match="programs on b: nothing that runs here has it"):
            injector.carry_out(at_once(ProgramTarget("b"), STOPPED, 0))
        for target, state, cause in (
            (ProgramTarget("a"), STOPPED, 1),
            (ProgramTarget("a", "one"), STOPPED, 2),
            (ProgramTarget("a"), RUNS, 1),
        ):
            injector.carry_out(at_once(target, state, cause))
            threads.sleep(0.1)
        assert one.programs.done == [("stop", "a")]
        assert words(heard) == [("one on a", "stopped", (1,))]
        injector.carry_out(at_once(ProgramTarget("a", "one"), RUNS, 2))
        threads.sleep(0.1)
        assert one.programs.done == [("stop", "a"), ("resume", "a")]
        assert len(heard) == len(injector.restore().changes) == 2


def test_what_is_killed_is_met_no_more() -> None:
    one = job("one", "a", "b")
    effects = Applied(ProgramEffects([one]))
    assert effects.apply(ProgramTarget("a", "one"), KILLED)
    assert not effects.apply(ProgramTarget("a"), STOPPED)
    assert one.programs.done == [("kill", "a")]
    assert effects.effects.mended(KILLED) is None


def test_what_is_to_come_back_is_started_again_unless_it_was_killed_for_good() -> None:
    one, inf = job("one", "a", "b"), float("inf")
    effects = ProgramEffects([one])
    changes_of(
        effects,
        Failure(ProgramTarget("a"), 0.01, 0.03, RESTARTED),
        Failure(ProgramTarget("a", "one"), 0.02, 0.05, STOPPED),
        Failure(ProgramTarget("b"), 0.06, 0.08, RESTARTED),
        Failure(ProgramTarget("b", "one"), 0.07, inf, KILLED),
    )
    assert one.programs.done == [
        ("kill", "a"), ("restart", "a"), ("stop", "a"), ("resume", "a"), ("kill", "b"),
    ]  # fmt: skip
    assert (effects.mended(RESTARTED), effects.mended(KILLED)) == (RUNS, None)


def test_programs_that_are_gone_for_a_moment_are_resumed_all_the_same() -> None:
    one = job("one", "a")
    effects = Applied(ProgramEffects([one]))
    effects.apply(ProgramTarget("a"), STOPPED)
    one.programs.hosts.clear()
    assert effects.apply(ProgramTarget("a"), RUNS) == [("one", "")]
    assert one.programs.done[-1] == ("resume", "a")


def test_slow_programs_run_and_stand_still_in_turns_and_then_run() -> None:
    one = job("one", "a")
    effects = Applied(ProgramEffects([one]))
    effects.apply(ProgramTarget("a"), ProgramState(share=0.5))
    until(lambda: len(one.programs.done) > 10, "a program that stands still and runs in turns")
    effects.apply(ProgramTarget("a"), RUNS)
    done = [what for what, _ in one.programs.done]
    time.sleep(0.05)
    assert [what for what, _ in one.programs.done] == done, "it goes on after its end"
    assert done[-1] == "resume"
    assert {"stop", "resume"} == set(done)
    assert all(before != after for before, after in pairwise(done[:-1]))


def test_disks_are_set_one_by_one_and_rot_adds_up() -> None:
    one = job("storage", disks=("a",))
    effects, inf = DiskEffects([one, job("other")], seed=1), float("inf")
    changes = changes_of(
        effects,
        Failure(DiskTarget("a", 1), 0.01, inf, DiskState(rotten=2), (0,)),
        Failure(DiskTarget("a"), 0.03, 0.07, DiskState(fails=True), (1,)),
        Failure(DiskTarget("a", 1), 0.05, inf, DiskState(rotten=1), (2,)),
        Failure(DiskTarget("b"), 0.01, inf, DiskState(fails=True), (3,)),
    )
    assert [done for done in one.done if done[1] == 1] == [
        ("a", 1, 2),
        ("a", 1, DiskState(fails=True, rotten=2)),
        ("a", 1, 1),
        ("a", 1, DiskState(rotten=3)),
    ]
    assert [done for done in one.done if done[1] == 0] == [("a", 0, DiskState(fails=True)), ("a", 0, DiskState())]
    assert {change.detail for change in changes} == {"", "chunk of a/1", "chunk of a/1, chunk of a/1"}
    assert 3 not in {cause for change in changes for cause in change.causes}
    assert effects.mended(DiskState(fails=True, rotten=3)) == DiskState(rotten=3)
    assert effects.mended(DiskState(rotten=3)) is None


@dataclass
class Watched:
    """A job that looks at GPUs of one node."""

    name: str = "platform"
    errors: list[tuple[str, int, int]] = field(default_factory=list)

    def gpus_on(self, host: str) -> int:
        return 8 if host == "a" else 0

    def gpu_error(self, host: str, number: int, xid: int) -> None:
        self.errors.append((host, number, xid))

    def gpu_computes_wrong(self, host: str, number: int) -> None:
        self.errors.append((host, number, 0))


def test_a_gpu_has_each_error_once_in_order_of_time_and_keeps_it() -> None:
    """The failure that comes later is listed first."""
    one, inf = Watched(), float("inf")
    effects = GpuEffects([one, job("other")])
    changes = changes_of(
        effects,
        Failure(GpuTarget("a", 3), 0.04, inf, GpuState((79,)), (0,)),
        Failure(GpuTarget("a", 3), 0.02, inf, GpuState((13,)), (1,)),
        Failure(GpuTarget("a", 3), 0.06, inf, GpuState(wrong=1), (2,)),
        Failure(GpuTarget("b"), 0.02, inf, GpuState((79,)), (3,)),
        Failure(GpuTarget("a", 8), 0.02, inf, GpuState((79,)), (4,)),
    )
    assert one.errors == [("a", 3, 13), ("a", 3, 79), ("a", 3, 0)]
    assert words(changes) == [
        ("GPU 3 of a", "Xid 13", (1,)),
        ("GPU 3 of a", "Xid 13, Xid 79", (0,)),
        ("GPU 3 of a", "Xid 13, Xid 79, computes wrong values", (2,)),
    ]
    assert effects.mended(GpuState((79,))) is None
    assert str(GpuState()) == "whole"


class Slow(Effects):
    """Effects that take a second at one host, and at another find nothing until a time."""

    def __init__(self, threads: JumpingThreads, back_s: float) -> None:
        super().__init__()
        self.threads, self.back_s = threads, threads.now_s + back_s

    def bring(self, part: Part, before: State, state: State) -> str:
        assert isinstance(part.target, ProgramTarget)
        if part.target.host == "slow":
            self.threads.sleep(1.0)
        if part.target.host == "gone" and self.threads.now_s < self.back_s:
            raise NotThereError("it was killed")
        return ""

    def mended(self, state: State) -> State | None:
        return None if state == RUNS else RUNS


def played_slowly(back_s: float) -> FaultReport:
    """Return what becomes of one second of failures at 1 s, of which one target takes a second, and one is gone."""
    with jumping(injection) as threads:
        injector = ThreadInjector(Slow(threads, back_s))
        hosts = ("slow", "gone", "sound")
        injector.prepare(FailureSchedule.of(Failure(ProgramTarget(host), 1.0, 3.0, STOPPED) for host in hosts))
        injector.play(threads.now_s)
        threads.sleep(4.0)
        return injector.restore()


def at(changes: Sequence[Change]) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {}
    for one in changes:
        found.setdefault(str(one.target), []).append(round(one.done_s - 1000, 3))
    return found


def test_one_that_does_not_answer_delays_no_other_and_one_that_is_gone_is_taken_over_once_it_is_back() -> None:
    report = played_slowly(back_s=2.01)
    assert at(report.changes) == {
        "programs on slow": [2.0, 4.0], "programs on sound": [1.0, 3.0], "programs on gone": [2.05, 3.0],
    }  # fmt: skip
    gone = next(one for one in report.changes if "gone" in str(one.target))
    assert (gone.due_s, gone.asked_s, gone.due_end_s) == (1001.0, 1001.0, 1003.0)
    assert report.missed == ()


class Away(Noted):
    """A job whose service is away for as long as it is asked: it keeps how disks are to be for the next one."""

    def set_disk(self, host: str, number: int, state: DiskState) -> None:
        super().set_disk(host, number, state)
        raise NotThereError("its service was killed")


@pytest.mark.parametrize("end_s", [0.05, 9.0])
def test_a_service_that_is_back_only_after_a_failure_of_its_disk_has_that_whole(end_s: float) -> None:
    """It was slow forever, and rows said that it never was."""
    away = Away("storage", Programs(["a"]), ("a",))
    report = report_of(DiskEffects([away], 1), Failure(DiskTarget("a", 0), 0.01, end_s, DiskState(added_s=0.2)))
    assert report.changes == ()
    assert [one.missed for one in report.missed] == ["its service was killed"]
    assert away.done[-1] == ("a", 0, DiskState())


def test_one_that_is_not_back_in_time_is_missed_with_the_reason() -> None:
    report = played_slowly(back_s=3.5)
    assert "programs on gone" not in at(report.changes)
    (missed,) = report.missed
    assert (str(missed.target), missed.state, missed.missed) == ("programs on gone", STOPPED, "it was killed")
    assert (missed.due_s, missed.due_end_s) == (1001.0, 1003.0) and math.isnan(missed.done_s)


def test_what_supervises_programs_tells_that_they_are_back() -> None:
    one = job("one", "a")
    one.programs.begun = lambda host: None  # type: ignore[attr-defined]
    with jumping(injection) as threads:
        injector = ThreadInjector(ProgramEffects([one]))
        injector.prepare(FailureSchedule.of([Failure(ProgramTarget("a"), 1.0, 9.0, RESTARTED, (4,))]))
        injector.play(threads.now_s)
        threads.sleep(2.0)
        one.programs.hosts.append("a")
        one.programs.begun("a")  # type: ignore[attr-defined]
        threads.sleep(9.0)
        report = injector.restore()
    assert [(str(change.state), change.detail, change.causes) for change in report.changes] == [
        ("killed, to be started again", "", (4,)), ("whole", "by itself", (4,)),
    ]  # fmt: skip
    assert at(report.changes) == {"one on a": [1.0, 2.0]}
    assert one.programs.done == [("kill", "a")], "it is not started twice"


def test_a_schedule_is_played_on_time_and_what_can_be_is_mended_at_its_end() -> None:
    one = job("one", "a", "b", "c")
    failures = [
        Failure(ProgramTarget("a"), 0.05, 0.1, STOPPED, (0,)),
        Failure(ProgramTarget("b"), 0.05, 9.0, STOPPED, (1,)),
        Failure(ProgramTarget("c"), 0.06, float("inf"), KILLED, (2,)),
        Failure(ProgramTarget("d"), 0.05, 0.1, STOPPED, (3,)),
    ]
    heard: list[Change] = []
    changes = report_of(ProgramEffects([one]), *failures, hit=heard.append).changes
    assert all(one.due_s <= one.asked_s <= one.done_s for one in changes)
    assert [(str(one.target), str(one.state), one.causes, one.jobs) for one in changes] == [
        ("one on a", "stopped", (0,), ("one",)),
        ("one on b", "stopped", (1,), ("one",)),
        ("one on c", "killed", (2,), ("one",)),
        ("one on a", "whole", (0,), ("one",)),
        ("one on b", "whole", (1,), ("one",)),
    ]
    assert [replace(one, due_end_s=0.0) for one in heard] == [replace(one, due_end_s=0.0) for one in changes]
    ends = [one.due_end_s - one.due_s for one in changes[:2]]
    assert ends[0] == pytest.approx(0.05)
    assert changes[1].due_end_s == changes[4].due_s
    assert one.programs.done[-1] == ("resume", "b")


class Broken(Effects):
    """Effects that fail at the second target."""

    def __init__(self) -> None:
        super().__init__()
        self.applied: list[object] = []

    def bring(self, part: Part, before: ProgramState, state: ProgramState) -> str:
        assert isinstance(part.target, ProgramTarget)
        if part.target.host == "b":
            raise TrafficError("b has gone")
        self.applied.append((part.target.host, state))
        return ""

    def mended(self, state: ProgramState) -> ProgramState | None:
        return None if state == RUNS else RUNS


def test_what_cannot_be_done_is_said_at_the_end_and_the_others_are_mended() -> None:
    effects = Broken()
    failures = [Failure(ProgramTarget(host), 0.01 * number, 9.0, STOPPED) for number, host in enumerate("abc", 1)]
    with pytest.raises(TrafficError, match="b has gone"):
        report_of(effects, *failures)
    assert effects.applied == [("a", STOPPED), ("a", RUNS)]


class Stuck(Effects):
    """Effects that never end."""

    def __init__(self) -> None:
        super().__init__()
        self.begun, self.over = threading.Event(), threading.Event()

    def bring(self, part: Part, before: object, state: object) -> str:
        self.begun.set()
        self.over.wait(30)
        return ""

    def mended(self, state: object) -> None:
        return None


def test_a_wait_that_does_not_end_says_what_it_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fabric.failures.injection._END_TIMEOUT_S", 0.1)
    stuck = Stuck()
    with pytest.raises(TrafficError, match=r"failures: waited 0\.1 s for programs on a to be as asked for"):
        injector = ThreadInjector(stuck)
        injector.prepare(FailureSchedule.of([Failure(ProgramTarget("a"), 0.01, 9.0, STOPPED)]))
        injector.play(time.monotonic())
        until(stuck.begun.is_set, "the failure")
        injector.restore()
    stuck.over.set()
