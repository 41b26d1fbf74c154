"""Jobs that come and go: when each plays, what its rows bear, and what becomes of one that fails."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

import pytest

from experiments.run import timeline
from experiments.run.timeline import JobWindow, Timeline
from fabric.errors import TrafficError
from fabric.model.lanes import ServiceLevel
from traffic.job import Records


@dataclass
class Noted:
    """A job that notes what it is told; each halt gives a step."""

    name: str
    fails: bool = False
    halts_in_s: float = 0.0
    level: ServiceLevel = ServiceLevel.NCCL
    told: list[tuple[str, float]] = field(default_factory=list)

    def start(self) -> None:
        raise AssertionError("whoever makes jobs starts them")

    def play(self, phase: str) -> None:
        if self.fails:
            raise TrafficError(f"{self.name} fell over")
        self.told.append((phase, time.monotonic()))

    def halt(self) -> Records:
        time.sleep(self.halts_in_s)
        self.told.append(("halt", time.monotonic()))
        return Records(steps=[{"step": len(self.told) // 2}])

    def close(self) -> None:
        raise AssertionError("whoever makes jobs closes them")

    def at_s(self, origin: float) -> list[tuple[str, float]]:
        return [(word, at - origin) for word, at in self.told]


def play(windows: list[JobWindow], seconds: float) -> tuple[float, Records, list[timeline.Played]]:
    line = Timeline("p", windows)
    began = line.begin()
    time.sleep(seconds)
    line.verify()
    return began, *line.end()


def test_jobs_play_in_their_windows_and_rows_bear_their_names() -> None:
    whole, late, twice = Noted("whole"), Noted("late"), Noted("twice")
    windows = [
        JobWindow(whole),
        JobWindow(late, 0.2),
        JobWindow(twice, 0.3, 0.4),
        JobWindow(twice, 0.1, 0.2),
    ]
    began, records, played = play(windows, 0.6)
    assert whole.at_s(began)[0][1] <= 0
    assert late.at_s(began)[0][1] == pytest.approx(0.2, abs=0.05)
    assert [word for word, _ in twice.told] == ["p", "halt", "p", "halt"]
    assert [at for _, at in twice.at_s(began)] == pytest.approx([0.1, 0.2, 0.3, 0.4], abs=0.05)
    assert late.told[1][1] >= began + 0.6
    assert sorted((row["job"], row["step"]) for row in records.steps) == [
        ("late", 1), ("twice", 1), ("twice", 2), ("whole", 1),
    ]  # fmt: skip
    assert [one.job.name for one in played] == ["late", "twice", "twice", "whole"]
    assert all(one.began < one.ended for one in played)


def test_jobs_of_the_whole_phase_begin_and_end_in_their_order() -> None:
    first, second = Noted("first"), Noted("second")
    play([JobWindow(first), JobWindow(second)], 0.0)
    assert first.told[0][1] <= second.told[0][1]
    assert first.told[1][1] <= second.told[1][1]


def test_a_job_that_takes_long_to_end_holds_no_other_up() -> None:
    slow, other = Noted("slow", halts_in_s=0.4), Noted("other")
    began, _, _ = play([JobWindow(slow, 0.05, 0.1), JobWindow(other, 0.15, 0.2)], 0.3)
    assert [at for _, at in other.at_s(began)] == pytest.approx([0.15, 0.2], abs=0.05)


def test_a_job_whose_time_never_comes_is_not_told() -> None:
    never = Noted("never")
    _, records, played = play([JobWindow(never, 5.0)], 0.05)
    assert (never.told, records.steps, played) == ([], [], [])


@pytest.mark.parametrize("until_s", [None, 0.05])
def test_a_job_that_fails_ends_the_phase(until_s: float | None) -> None:
    line = Timeline("p", [JobWindow(Noted("lame", fails=True), 0.01, until_s)])
    line.begin()
    time.sleep(0.1)
    with pytest.raises(TrafficError, match=r"^lame fell over$"):
        line.verify()
    with pytest.raises(TrafficError, match=r"^lame fell over$"):
        line.end()


def test_a_job_that_does_not_end_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timeline, "_HALT_S", 0.1)
    with pytest.raises(TrafficError, match=r"^job stuck: waited 0.1 s for it to end"):
        play([JobWindow(Noted("stuck", halts_in_s=1.0), 0.01)], 0.05)


@pytest.mark.parametrize("until_s", [None, 0.5])
def test_windows_of_one_job_do_not_overlap(until_s: float | None) -> None:
    job = Noted("one")
    with pytest.raises(TrafficError, match=r"^job one: is to play again at 0.4 s, before it has ended"):
        Timeline("p", [JobWindow(job, 0.1, until_s), JobWindow(job, 0.4)])
