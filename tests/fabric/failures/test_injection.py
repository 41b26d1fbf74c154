"""What injectors of programs and disks do with jobs' handles, on one clock; here the handles note it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import pytest

from fabric.errors import TrafficError
from fabric.failures.injection import DiskEffects, Effects, GpuEffects, Hit, ProgramEffects, ThreadInjector
from fabric.failures.report import Change
from fabric.failures.schedule import Failure, FailureSchedule
from fabric.failures.targets import (
    KILLED,
    RESTARTED,
    STOPPED,
    DiskState,
    DiskTarget,
    GpuState,
    GpuTarget,
    ProgramState,
    ProgramTarget,
)
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
    done: list[object] = field(default_factory=list)

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


def test_a_target_is_of_one_job_or_of_all_and_nobody_is_met_twice() -> None:
    one, other, elsewhere = job("one", "a", "b"), job("other", "a"), job("elsewhere", "b")
    effects = ProgramEffects([one, other, elsewhere, object()])
    assert effects.apply(ProgramTarget("a"), STOPPED) == Hit(("one", "other"))
    assert effects.apply(ProgramTarget("a", "one"), STOPPED) == Hit(("one",))
    assert effects.apply(ProgramTarget("c"), STOPPED) is None
    assert (one.programs.done, other.programs.done, elsewhere.programs.done) == ([("stop", "a")], [("stop", "a")], [])


def test_programs_go_on_once_nobody_wants_them_stopped() -> None:
    one = job("one", "a")
    effects = ProgramEffects([one])
    for target, state in [
        (ProgramTarget("a"), STOPPED),
        (ProgramTarget("a", "one"), STOPPED),
        (ProgramTarget("a"), RUNS),
        (ProgramTarget("a", "one"), RUNS),
    ]:
        effects.apply(target, state)
    assert one.programs.done == [("stop", "a"), ("resume", "a")]


def test_what_is_killed_is_met_no_more() -> None:
    one = job("one", "a", "b")
    effects = ProgramEffects([one])
    assert effects.apply(ProgramTarget("a", "one"), KILLED) == Hit(("one",))
    assert effects.apply(ProgramTarget("a"), STOPPED) is None
    assert one.programs.done == [("kill", "a")]
    assert effects.mended(KILLED) is None


def test_what_is_to_come_back_is_started_again_unless_it_was_killed_for_good() -> None:
    one = job("one", "a", "b")
    effects = ProgramEffects([one])
    for target, state in [
        (ProgramTarget("a"), RESTARTED),
        (ProgramTarget("a", "one"), STOPPED),
        (ProgramTarget("a"), RUNS),
        (ProgramTarget("a", "one"), RUNS),
        (ProgramTarget("b"), RESTARTED),
        (ProgramTarget("b", "one"), KILLED),
        (ProgramTarget("b"), RUNS),
    ]:
        effects.apply(target, state)
    assert one.programs.done == [
        ("kill", "a"), ("restart", "a"), ("stop", "a"), ("resume", "a"), ("kill", "b"),
    ]  # fmt: skip
    assert (effects.mended(RESTARTED), effects.mended(KILLED)) == (RUNS, None)


def test_programs_that_are_gone_for_a_moment_are_resumed_all_the_same() -> None:
    one = job("one", "a")
    effects = ProgramEffects([one])
    effects.apply(ProgramTarget("a"), STOPPED)
    one.programs.hosts.clear()
    assert effects.apply(ProgramTarget("a"), RUNS) == Hit(("one",))
    assert one.programs.done[-1] == ("resume", "a")


def test_slow_programs_run_and_stand_still_in_turns_and_then_run() -> None:
    one = job("one", "a")
    effects = ProgramEffects([one])
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
    effects = DiskEffects([one, job("other")], seed=1)
    assert effects.apply(DiskTarget("a", 1), DiskState(rotten=2)) == Hit(("storage",), "chunk of a/1, chunk of a/1")
    assert effects.apply(DiskTarget("a"), DiskState(fails=True)) == Hit(("storage",))
    assert effects.apply(DiskTarget("a", 1), DiskState(rotten=3)) == Hit(("storage",), "chunk of a/1")
    assert effects.apply(DiskTarget("b"), DiskState(fails=True)) is None
    assert one.done == [
        ("a", 1, 2),
        ("a", 0, DiskState(fails=True)),
        ("a", 1, DiskState(fails=True, rotten=2)),
        ("a", 1, 1),
    ]
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


def test_a_gpu_has_each_error_once_and_keeps_it() -> None:
    one = Watched()
    effects = GpuEffects([one, job("other")])
    assert effects.apply(GpuTarget("a", 3), GpuState((79,))) == Hit(("platform",))
    assert effects.apply(GpuTarget("a", 3), GpuState((79, 94))) == Hit(("platform",))
    assert effects.apply(GpuTarget("b"), GpuState((79,))) is None
    assert effects.apply(GpuTarget("a", 8), GpuState((79,))) is None
    assert one.errors == [("a", 3, 79), ("a", 3, 94)]
    assert effects.apply(GpuTarget("a", 3), GpuState((79, 94), wrong=1)) == Hit(("platform",))
    assert effects.apply(GpuTarget("a", 3), GpuState((79, 94), wrong=1)) is None, "it is wrong already"
    assert one.errors[2:] == [("a", 3, 0)]
    assert effects.mended(GpuState((79,))) is None
    assert (str(GpuTarget("a", 3)), str(GpuState((79, 94))), str(GpuState())) == (
        "GPU 3 of a",
        "Xid 79, Xid 94",
        "whole",
    )


def played(
    effects: Effects, failures: list[Failure], is_over: Callable[[], object], heard: list[Change]
) -> tuple[Change, ...]:
    injector = ThreadInjector(effects, heard.append)
    injector.prepare(FailureSchedule.of(failures))
    began = time.monotonic()
    injector.play(began)
    until(is_over, "what the schedule has until it is over")
    report = injector.restore()
    assert all(one.due_s <= one.asked_s <= one.done_s for one in report.changes)
    return report.changes


def test_a_schedule_is_played_on_time_and_what_can_be_is_mended_at_its_end() -> None:
    one = job("one", "a", "b", "c")
    failures = [
        Failure(ProgramTarget("a"), 0.05, 0.1, STOPPED, (0,)),
        Failure(ProgramTarget("b"), 0.05, 9.0, STOPPED, (1,)),
        Failure(ProgramTarget("c"), 0.06, float("inf"), KILLED, (2,)),
        Failure(ProgramTarget("d"), 0.05, 0.1, STOPPED, (3,)),
    ]
    heard: list[Change] = []
    changes = played(ProgramEffects([one]), failures, lambda: len(heard) == 4, heard)
    assert [(str(one.target), str(one.state), one.causes, one.jobs) for one in changes] == [
        ("programs on a", "stopped", (0,), ("one",)),
        ("programs on b", "stopped", (1,), ("one",)),
        ("programs on c", "killed", (2,), ("one",)),
        ("programs on a", "whole", (0,), ("one",)),
        ("programs on b", "whole", (1,), ("one",)),
    ]
    assert heard == list(changes)
    assert one.programs.done[-1] == ("resume", "b")


class Broken:
    """Effects that fail at the second target."""

    def __init__(self) -> None:
        self.applied: list[object] = []
        self.has_failed = False

    def apply(self, target: ProgramTarget, state: ProgramState) -> Hit | None:
        if target.host == "b":
            self.has_failed = True
            raise TrafficError("b has gone")
        self.applied.append((target.host, state))
        return Hit(("one",))

    def mended(self, state: ProgramState) -> ProgramState | None:
        return None if state == RUNS else RUNS


def test_what_cannot_be_done_is_said_at_the_end_and_the_others_are_mended() -> None:
    effects = Broken()
    failures = [Failure(ProgramTarget(host), 0.01 * number, 9.0, STOPPED) for number, host in enumerate("abc", 1)]
    with pytest.raises(TrafficError, match="b has gone"):
        played(effects, failures, lambda: effects.has_failed, [])
    assert effects.applied == [("a", STOPPED), ("a", RUNS)]


class Stuck:
    """Effects that never end."""

    def __init__(self) -> None:
        self.begun, self.over = threading.Event(), threading.Event()

    def apply(self, target: object, state: object) -> Hit | None:
        self.begun.set()
        self.over.wait(30)
        return None

    def mended(self, state: object) -> None:
        return None


def test_a_wait_that_does_not_end_says_what_it_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fabric.failures.injection._END_TIMEOUT_S", 0.1)
    stuck = Stuck()
    with pytest.raises(TrafficError, match=r"failures: waited 0\.1 s for the last to be carried out"):
        played(stuck, [Failure(ProgramTarget("a"), 0.01, 9.0, STOPPED)], stuck.begun.is_set, [])
    stuck.over.set()
