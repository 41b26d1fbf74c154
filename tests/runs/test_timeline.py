"""Jobs that come and go: when each plays, what its rows bear, and what becomes of one that fails."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from fabric.errors import TrafficError
from fabric.model.lanes import ServiceLevel
from runs import timeline
from runs.timeline import JobWindow, Timeline
from tests.waiting import until
from traffic.job import Records


@dataclass
class Noted:
    """A job that notes what it is told; each halt gives a step, once ``may_end`` says so."""

    name: str
    fails: bool = False
    may_end: Callable[[], bool] = lambda: True
    level: ServiceLevel = ServiceLevel.NCCL
    told: list[tuple[str, float]] = field(default_factory=list)

    def start(self) -> None:
        raise AssertionError("whoever makes jobs starts them")

    def play(self, phase: str) -> None:
        if self.fails:
            raise TrafficError(f"{self.name} fell over")
        self.told.append((phase, time.monotonic()))

    def halt(self) -> Records:
        until(self.may_end, f"what {self.name} needs to end")
        self.told.append(("halt", time.monotonic()))
        return Records(steps=[{"step": len(self.told) // 2}])

    def close(self) -> None:
        raise AssertionError("whoever makes jobs closes them")

    @property
    def words(self) -> list[str]:
        return [word for word, _ in self.told]


def play(windows: list[JobWindow], is_over: Callable[[], bool]) -> tuple[float, timeline.PlayedTimeline]:
    """Play a phase until something is so; return when it began, and what jobs did."""
    line = Timeline("p", windows)
    began = line.begin()
    until(is_over, "what jobs are to be told")
    line.verify()
    return began, line.end()


def test_jobs_play_in_their_windows_and_rows_bear_their_names() -> None:
    whole, late, twice = Noted("whole"), Noted("late"), Noted("twice")
    windows = [JobWindow(whole), JobWindow(late, 0.2), JobWindow(twice, 0.3, 0.4), JobWindow(twice, 0.1, 0.2)]
    began, ended = play(windows, lambda: len(twice.told) == 4 and bool(late.told))
    assert whole.told[0][1] <= began
    assert late.words == ["p", "halt"]
    assert late.told[0][1] >= began + 0.2
    assert twice.words == ["p", "halt", "p", "halt"]
    assert all(at >= began + due for (_, at), due in zip(twice.told, (0.1, 0.2, 0.3, 0.4), strict=True))
    assert late.told[1][1] >= twice.told[3][1], "it plays to the end"
    assert sorted((row["job"], row["step"]) for row in ended.records.rows("steps")) == [
        ("late", 1), ("twice", 1), ("twice", 2), ("whole", 1),
    ]  # fmt: skip
    assert [one.job.name for one in ended.played] == ["late", "twice", "twice", "whole"]
    assert all(one.began < one.halted <= one.ended for one in ended.played)
    late_one, once, again, whole_one = ended.played
    assert once.began >= began + 0.1 and once.halted >= began + 0.2
    assert again.halted < ended.halted <= late_one.halted, "what was to end earlier ends no load that plays to the end"
    assert ended.halted <= whole_one.halted


def test_a_load_plays_until_its_job_is_told_to_halt_however_long_it_takes_to_end() -> None:
    """The first is told; what it has under way takes as long as it does, and the second plays on until then."""
    asked: list[float] = []

    def may_end() -> bool:
        asked.append(time.monotonic())
        return asked[-1] > asked[0] + 0.2

    slow, other = Noted("slow", may_end=may_end), Noted("other")
    _, ended = play([JobWindow(slow), JobWindow(other)], lambda: True)
    first, second = ended.played
    assert ended.halted <= first.halted < first.ended - 0.2
    assert second.halted >= first.ended


def test_jobs_of_the_whole_phase_begin_and_end_in_their_order() -> None:
    first, second = Noted("first"), Noted("second")
    play([JobWindow(first), JobWindow(second)], lambda: True)
    assert first.told[0][1] <= second.told[0][1]
    assert first.told[1][1] <= second.told[1][1]


@dataclass
class Finite(Noted):
    """A job that is done once ``may_end`` says so."""

    def finish(self) -> None:
        until(self.may_end, f"what {self.name} needs to finish")
        self.told.append(("finished", time.monotonic()))


def test_a_job_with_a_fixed_amount_to_do_is_awaited_before_any_ends() -> None:
    asked: list[bool] = []
    other, finite = Noted("other"), Finite("finite", may_end=lambda: len(asked) > 2)
    line = Timeline("p", [JobWindow(other), JobWindow(finite)])
    line.begin()
    ending = threading.Thread(target=line.finish)
    ending.start()
    while len(asked) <= 2:
        assert (other.words, finite.words) == (["p"], ["p"])
        asked.append(True)
        time.sleep(0.01)
    ending.join(30)
    assert finite.words == ["p", "finished"]
    line.end()
    assert other.words == ["p", "halt"]
    assert finite.words == ["p", "finished", "halt"]


def test_a_job_that_takes_long_to_end_holds_no_other_up() -> None:
    other = Noted("other")
    slow = Noted("slow", may_end=lambda: other.words == ["p", "halt"])
    play([JobWindow(slow, 0.01, 0.02), JobWindow(other, 0.1, 0.2)], lambda: len(slow.told) == 2)
    assert other.words == slow.words == ["p", "halt"]


def test_a_job_whose_time_never_comes_is_not_told() -> None:
    never = Noted("never")
    _, ended = play([JobWindow(never, 500.0)], lambda: True)
    assert (never.told, ended.records.rows("steps"), ended.played) == ([], [], [])


class Watched(Noted):
    """A job that says while it plays that it has failed, once it ``fails``."""

    def verify(self) -> None:
        if self.fails:
            raise TrafficError(f"{self.name} has lost a daemon")


@pytest.mark.parametrize("why", ["", "z0h001 was killed"])
def test_a_job_that_says_that_it_has_failed_ends_the_phase_unless_it_was_hit(why: str) -> None:
    job = Watched("lame")
    line = Timeline("p", [JobWindow(job)], done_to=lambda _: why)
    line.begin()
    line.verify()
    job.fails = True
    if not why:
        with pytest.raises(TrafficError, match=r"^lame has lost a daemon$"):
            line.verify()
        return
    line.verify()
    (played,) = line.end().played
    assert played.failed == "lame has lost a daemon; asked for: z0h001 was killed"


@pytest.mark.parametrize("until_s", [None, 0.05])
def test_a_job_that_fails_ends_the_phase(until_s: float | None) -> None:
    line = Timeline("p", [JobWindow(Noted("lame", fails=True), 0.01, until_s)])
    line.begin()
    with pytest.raises(TrafficError, match=r"^lame fell over$"):
        for _ in range(3000):
            line.verify()
            time.sleep(0.01)
    with pytest.raises(TrafficError, match=r"^lame fell over$"):
        line.end()


def test_a_job_that_does_not_end_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timeline, "HALT_S", 0.1)
    ended = threading.Event()
    stuck = Noted("stuck", may_end=ended.is_set)
    with pytest.raises(TrafficError, match=r"^job stuck: waited 0.1 s for it to end"):
        play([JobWindow(stuck, 0.01)], lambda: bool(stuck.told))
    ended.set()


@pytest.mark.parametrize("until_s", [None, 0.5])
def test_windows_of_one_job_do_not_overlap(until_s: float | None) -> None:
    job = Noted("one")
    with pytest.raises(TrafficError, match=r"^job one: is to play again at 0.4 s, before it has ended"):
        Timeline("p", [JobWindow(job, 0.1, until_s), JobWindow(job, 0.4)])
