"""What came to pass between looks at Slurm, as the platform's events: pure."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cluster.nodes import Nodes
from cluster.platform.events import Event, JobSpec
from cluster.platform.programs import job_numbers, row_of
from cluster.platform.state import JobState
from cluster.slurm.answers import SlurmJobSeen, SlurmNodeSeen
from cluster.slurm.watching import LifeEnd, Watch
from fabric.errors import TrafficError

NODES = Nodes.grid(1, 1, 4)
A, B, C, D = NODES.names
UP = tuple(SlurmNodeSeen(name, frozenset({"IDLE"})) for name in NODES.names)


class Seen:
    """A cluster as it is looked at, and what follows: rows as the table of events has them, without their times."""

    def __init__(self, *wanted: int) -> None:
        self.ends: dict[tuple[int, int], LifeEnd] = {}
        self.watch = Watch(NODES, lambda job, restart: self.ends.get((job, restart), LifeEnd()))
        self.now_s = 0.0
        for nodes in wanted:
            self.watch.submitted(0.0, JobSpec("job", "ada", nodes, ("true",)))

    def look(self, *jobs: SlurmJobSeen, nodes: tuple[SlurmNodeSeen, ...] = UP) -> list[tuple[object, ...]]:
        self.now_s += 1
        return [self._row(event) for event in self.watch.look(self.now_s, jobs, nodes)]

    def _row(self, event: Event) -> tuple[object, ...]:
        row = row_of(event, job_numbers(self.watch.state))
        assert row["at_s"] == self.now_s
        return row["event"], row["life"], row["nodes"] or row["why"]


def running(number: int, *nodes: str, restarts: int = 0) -> SlurmJobSeen:
    return SlurmJobSeen(100 + number, number, "RUNNING", restarts, nodes, 0)


def test_a_job_starts_and_ends_well_or_not() -> None:
    seen = Seen(2, 1)
    first, second = running(1, A, B), running(2, C)
    assert seen.look(replace(first, state="PENDING", nodes=()), second) == [("started", 2, C)]
    assert seen.look(first, second) == [("started", 1, f"{A} {B}")]
    assert seen.look(first, second) == []
    seen.ends[(1, 0)] = LifeEnd(step=40)
    done, failed = replace(first, state="COMPLETED"), replace(second, state="FAILED", code=3)
    assert seen.look(replace(first, state="COMPLETING"), second) == []
    assert seen.look(done, failed) == [
        ("finished", 1, "code 0, step 40"),
        ("fail", 2, "Slurm says FAILED, exit code 3"),
        ("left", 2, "code 3, step None"),
    ]
    assert seen.look(done, failed) == [] and seen.watch.left == []


def test_a_job_that_begins_and_ends_between_two_looks_has_both() -> None:
    seen = Seen(1)
    assert seen.look(replace(running(1, D), state="COMPLETED")) == [
        ("started", 1, D),
        ("finished", 1, "code 0, step None"),
    ]


def test_a_job_that_yields_goes_on_as_another_life() -> None:
    seen = Seen(1)
    job = running(1, A)
    seen.look(job)
    told = replace(job, is_told=True)
    assert seen.look(told) == [("suspend", 1, "a job of a higher level needs its nodes")]
    assert seen.look(told) == []
    seen.ends[(1, 0)] = LifeEnd(step=5)
    assert [seen.look(told) for _ in range(2)] == [[("saved", 1, "step 5")], []]
    seen.ends[(1, 0)] = LifeEnd(step=7, is_suspended=True)
    held = replace(job, state="PENDING", restarts=1, nodes=())
    assert seen.look(held) == [("left", 1, "code 1, step 7")]
    assert next(seen.watch.queued_again()) == 101  # Whoever breaks off then could not release it.
    assert [list(seen.watch.queued_again()) for _ in range(2)] == [[101], []]
    assert seen.look(running(1, B, restarts=1)) == [("started", 2, B)]
    assert list(seen.watch.queued_again()) == []
    assert seen.watch.lives == {1: (1, 0), 2: (1, 1)}


def test_who_suspends_itself_is_format_apart_from_who_loses_a_node() -> None:
    seen = Seen(1, 2)
    seen.look(running(1, A), running(2, B, C))
    seen.ends[(1, 0)] = LifeEnd(is_suspended=True)
    down = tuple(replace(node, states=frozenset({"DOWN"}), reason="Not responding") for node in UP if node.name == C)
    again = [replace(running(number), state="PENDING", restarts=1) for number in (1, 2)]
    assert seen.look(*again, nodes=down) == [
        ("node_out", 0, C),
        ("suspend", 1, "its program suspended itself"),
        ("left", 1, "code 1, step None"),
        ("restart", 2, f"{C}: Not responding"),
        ("left", 2, "code 1, step None"),
    ]
    assert seen.look(*again) == [("node_back", 0, C)]
    seen.look(running(1, A, restarts=1), running(2, B, C, restarts=1))
    seen.ends[(1, 1)] = LifeEnd(is_lacking=True)
    lacking = replace(running(1), state="PENDING", restarts=2)
    assert seen.look(lacking, running(2, B, C, restarts=1))[0] == (
        "restart",
        3,
        "its program lacks what it cannot do without",
    )


def test_a_notice_between_two_looks_is_told_as_one() -> None:
    seen = Seen(1)
    seen.look(running(1, A))
    seen.ends[(1, 0)] = LifeEnd(is_suspended=True, is_told=True)
    (told, _) = seen.look(replace(running(1), state="PENDING", restarts=1))
    assert told == ("suspend", 1, "a job of a higher level needs its nodes")


def test_nodes_that_are_given_before_all_of_a_job_are_free_end_it() -> None:
    """Slurm frees node by node: what was told to end on the others is over for who gets one of them."""
    seen = Seen(2, 1)
    seen.look(running(1, A, B))
    leaving = replace(running(1, A, B), state="COMPLETING")
    assert seen.look(leaving, running(2, A)) == [("finished", 1, "code 0, step None"), ("started", 2, A)]
    assert seen.look(replace(leaving, state="COMPLETED"), running(2, A)) == []


def test_who_is_queued_again_and_not_yet_free_of_its_nodes_has_not_begun_again() -> None:
    seen = Seen(2, 3)
    seen.look(running(2, A, B, C))
    down = tuple(replace(node, states=frozenset({"DOWN"}), reason="Not responding") for node in UP if node.name == B)
    leaving = replace(running(2, C, restarts=1), state="COMPLETING")
    assert [row[:2] for row in seen.look(leaving, nodes=down)] == [("node_out", 0), ("restart", 2)]
    assert seen.look(running(1, A, C), leaving, nodes=down) == [
        ("left", 2, "code 1, step None"),
        ("started", 1, f"{A} {C}"),
    ]
    held = replace(leaving, state="PENDING", nodes=())
    assert seen.look(running(1, A, C), held, nodes=down) == []


def test_cancelled_jobs_end_whether_they_have_begun_or_not() -> None:
    seen = Seen(1, 1)
    seen.look(running(1, A))
    gone = [replace(running(1, A), state="CANCELLED", code=143), replace(running(2), state="CANCELLED")]
    assert [row[:2] for row in seen.look(*gone)] == [("cancel", 1), ("left", 1), ("cancel", 2), ("left", 2)]


def test_a_job_that_slurm_ends_at_its_limit_is_no_cancelled_one() -> None:
    seen = Seen(1)
    seen.look(running(1, A))
    assert [row[:2] for row in seen.look(replace(running(1, A), state="TIMEOUT"))] == [("timeout", 1), ("left", 1)]
    assert seen.watch.state.jobs[1].state is JobState.TIMEOUT


def test_jobs_of_others_are_not_ours_and_impossible_ones_are_refused() -> None:
    seen = Seen(2)
    assert seen.look(running(9, A)) == []
    with pytest.raises(TrafficError, match="what Slurm shows does not follow"):
        seen.look(running(1, A))
