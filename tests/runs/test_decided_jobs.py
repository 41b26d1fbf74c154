"""Jobs that come, pause, resume and go by decision while a phase plays: what they are told, and what rows say of it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from fabric.errors import ResultError, TrafficError
from fabric.model.lanes import ServiceLevel
from runs import decided_jobs
from runs.decided_jobs import DecidedJobs, JobState
from runs.phase_rows import job_row
from runs.session import _timeline
from runs.timeline import JobWindow, PlayedTimeline, Timeline
from traffic.job import Records


@dataclass
class Noted:
    """A job that notes what it is told, in the thread that tells it; ``held``: an order that it does not end."""

    name: str
    fails_at: str = ""
    held: str = ""
    table: str = "steps"
    level: ServiceLevel = ServiceLevel.NCCL
    told: list[str] = field(default_factory=list)
    released: threading.Event = field(default_factory=threading.Event)

    def _note(self, word: str) -> None:
        self.told.append(word)
        if word == self.fails_at:
            raise TrafficError(f"{self.name} fell over at its {word}")
        if word == self.held:
            assert self.released.wait(30)

    def start(self) -> None:
        self._note("start")

    def play(self, phase: str) -> None:
        self._note(f"play {phase}")

    def halt(self) -> Records:
        self._note("halt")
        return Records({self.table: [{"step": self.told.count("halt")}]})

    def close(self) -> None:
        self._note("close")


@dataclass
class Decides:
    """A decider that is a function."""

    by: Callable[[DecidedJobs], None]

    def decide(self, jobs: DecidedJobs) -> None:
        self.by(jobs)


def until(jobs: DecidedJobs, name: str, state: JobState) -> None:
    """Wait, as a decider does, for the state of a job."""
    deadline = jobs.now_s + 30
    while jobs.states[name] is not state:
        assert jobs.wait(deadline), "the phase ended before"
        assert jobs.now_s < deadline, f"waited 30 s for {name} to be {state.value}"


def play(decider: Callable[[DecidedJobs], None], *windows: JobWindow) -> PlayedTimeline:
    """Play a phase that ends once the decider has returned."""
    decided = threading.Event()

    def deciding(jobs: DecidedJobs) -> None:
        try:
            decider(jobs)
        finally:
            decided.set()

    line = Timeline("p", windows, Decides(deciding))
    line.begin()
    try:
        assert decided.wait(60)
        line.verify()
        return line.end()
    except Exception:
        line.abandon()
        raise


def test_a_job_comes_pauses_resumes_and_goes_and_each_time_that_it_played_is_a_row() -> None:
    job, other = Noted("a"), Noted("whole")

    def decide(jobs: DecidedJobs) -> None:
        jobs.start(job)
        jobs.play("a")
        until(jobs, "a", JobState.PLAYING)
        jobs.halt("a")
        until(jobs, "a", JobState.READY)
        jobs.play("a")
        until(jobs, "a", JobState.PLAYING)
        jobs.halt("a")
        jobs.close("a")
        until(jobs, "a", JobState.CLOSED)

    ended = play(decide, JobWindow(other))
    assert job.told == ["start", "play p", "halt", "play p", "halt", "close"]
    assert other.told == ["play p", "halt"]
    rows = [job_row("p", one) for one in ended.played]
    assert [row["job"] for row in rows] == ["a", "a", "whole"]
    assert all(row["started_s"] <= row["halted_s"] <= row["ended_s"] for row in rows)
    assert rows[0]["ended_s"] <= rows[1]["started_s"]
    assert rows[1]["halted_s"] <= ended.halted <= rows[2]["halted_s"]
    assert [(row["job"], row["step"]) for row in ended.records.rows("steps")] == [("a", 1), ("a", 2), ("whole", 1)]


def test_what_plays_at_the_end_is_halted_and_only_what_was_started_here_is_closed() -> None:
    came, paused, taken = Noted("came"), Noted("paused"), Noted("taken")

    def decide(jobs: DecidedJobs) -> None:
        jobs.start(came)
        jobs.start(paused)
        jobs.take(taken)
        for name in ("came", "taken"):
            jobs.play(name)
            until(jobs, name, JobState.PLAYING)

    ended = play(decide)
    assert came.told == ["start", "play p", "halt", "close"]
    assert paused.told == ["start", "close"]
    assert taken.told == ["play p", "halt"]
    assert [one.job.name for one in ended.played] == ["came", "taken"]
    assert all(one.halted >= ended.halted for one in ended.played)


def test_a_job_that_takes_long_to_start_holds_up_neither_the_decider_nor_another_job() -> None:
    slow, quick = Noted("slow", held="start"), Noted("quick")
    seen: list[JobState] = []

    def decide(jobs: DecidedJobs) -> None:
        jobs.start(slow)
        jobs.start(quick)
        jobs.play("quick")
        until(jobs, "quick", JobState.PLAYING)
        seen.append(jobs.states["slow"])
        slow.released.set()

    play(decide)
    assert seen == [JobState.STARTING]


def test_a_decider_waits_for_a_time_for_a_change_or_for_the_end() -> None:
    found: list[tuple[bool, float]] = []
    told = threading.Event()

    def decide(jobs: DecidedJobs) -> None:
        found.append((jobs.wait(0.05), jobs.now_s))
        jobs.start(Noted("a"))
        found.append((jobs.wait(500.0), jobs.now_s))
        told.set()
        while jobs.wait():
            pass
        found.append((jobs.wait(), jobs.now_s))

    line = Timeline("p", [], Decides(decide))
    line.begin()
    assert told.wait(30)
    line.end()
    (first, at_s), (second, changed_s), (last, _) = found
    assert (first, second, last) == (True, True, False)
    assert at_s >= 0.05
    assert changed_s < 30, "a change ends the wait"


@pytest.mark.parametrize(
    ("orders", "words"),
    [
        (["play"], "job a: is not one of this decider's (none); start or take it first"),
        (["start", "halt"], "job a: cannot halt: by then it is ready, and must be playing"),
        (["start", "play", "close"], "job a: cannot close: by then it is playing, and must be ready"),
        (["start", "play", "play"], "job a: cannot play: by then it is playing, and must be ready"),
        (["start", "close", "play"], "job a: cannot play: by then it is closed, and must be ready"),
        (["start", "start"], "job a: the phase p has another of this name; give it its own"),
    ],
)
def test_an_order_that_cannot_follow_is_refused_where_it_is_given(orders: list[str], words: str) -> None:
    job = Noted("a")

    def decide(jobs: DecidedJobs) -> None:
        for order in orders:
            getattr(jobs, order)(job if order == "start" else "a")
            if order == "start":
                until(jobs, "a", JobState.READY)

    with pytest.raises(TrafficError) as refused:
        play(decide)
    assert str(refused.value) == words
    assert job.told.count("start") == job.told.count("close"), "what came has gone, though the phase failed"


def test_a_job_of_a_window_is_no_deciders() -> None:
    with pytest.raises(TrafficError, match="job a: the phase p has another of this name"):
        play(lambda jobs: jobs.take(Noted("a")), JobWindow(Noted("a")))


@pytest.mark.parametrize("at", ["start", "play p", "halt"])
def test_a_job_that_fails_ends_the_phase_and_is_closed(at: str) -> None:
    job = Noted("lame", fails_at=at)

    def decide(jobs: DecidedJobs) -> None:
        jobs.start(job)
        jobs.play("lame")
        jobs.halt("lame")
        while jobs.wait(jobs.now_s + 0.2) and job.told[-1:] != [at]:
            pass

    with pytest.raises(TrafficError, match=f"^lame fell over at its {at}$"):
        play(decide)
    assert job.told[-1] == "close"


def test_a_decider_that_fails_ends_the_phase() -> None:
    def decide(_: DecidedJobs) -> None:
        raise ValueError("no queue of this name")

    with pytest.raises(ValueError, match="no queue of this name"):
        play(decide)


def test_a_decider_that_does_not_return_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decided_jobs, "HALT_S", 0.1)
    ended = threading.Event()
    line = Timeline("p", [], Decides(lambda _: assert_set(ended)))
    line.begin()
    with pytest.raises(TrafficError, match=r"^phase p: waited 0.1 s for its decider to return"):
        line.end()
    ended.set()


def assert_set(event: threading.Event) -> None:
    assert event.wait(30)


def test_a_job_that_does_not_end_is_named_with_what_it_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decided_jobs, "HALT_S", 0.1)
    stuck = Noted("stuck", held="halt")

    def decide(jobs: DecidedJobs) -> None:
        jobs.start(stuck)
        jobs.play("stuck")
        jobs.halt("stuck")
        until(jobs, "stuck", JobState.HALTING)

    with pytest.raises(TrafficError, match=r"^job stuck: waited 0.1 s for it to end, and it is halting"):
        play(decide)
    stuck.released.set()
    assert stuck.told[-1] == "close"


def test_rows_of_a_table_that_nobody_has_declared_are_refused() -> None:
    job = Noted("a", table="tokens")

    def decide(jobs: DecidedJobs) -> None:
        jobs.start(job)
        jobs.play("a")

    with pytest.raises(ResultError, match="job a: has rows of a table tokens, which is not declared"):
        play(decide)


def test_a_phase_has_one_decider_among_its_jobs() -> None:
    decider, whole = Decides(lambda _: None), Noted("whole")
    assert _timeline("p", [whole, JobWindow(Noted("late"), 1.0), decider]).names == ("whole", "late")
    with pytest.raises(TrafficError, match="phase p: 2 deciders"):
        _timeline("p", [decider, decider])


def test_without_a_decider_nothing_is_decided() -> None:
    line = Timeline("p", [])
    began = line.begin()
    line.verify()
    assert (line.end().played, began <= time.monotonic()) == ([], True)
    line.abandon()
