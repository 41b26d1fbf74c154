"""What the jobs of a phase did, from their rows: pauses, ends that nobody asked for, and failures with a reason."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from fabric.measure.load_checks import FailedOperations
from runs.decided_jobs import Played
from runs.load_evidence import failed_operations, played_loads
from traffic.job import Job, Records


def row(operation: str, started_s: float, took_s: float, job: str = "a") -> dict[str, Any]:
    return {"job": job, "operation": operation, "started_s": started_s, "ended_s": started_s + took_s}


def played(began: float = 100.0, halted: float = 110.0, job: str = "a", **more: Any) -> Played:
    return Played(cast(Job, SimpleNamespace(name=job, **more)), began, halted, halted + 5)


def reads(until_s: float) -> list[dict[str, Any]]:
    """Return two clients' reads, back to back until a time."""
    return [
        row("read", 100 + client * 0.25 + number / 2, 0.5)
        for client in (0, 1)
        for number in range(round((until_s - 100) * 2))
    ]


def test_a_load_that_stops_by_itself_is_idle_at_its_end() -> None:
    (whole,) = played_loads([played()], Records(operations=reads(112.0)))
    assert (whole.idle_begin_s, whole.idle_end_s, whole.longest_pause_s) == (0.0, 0.0, 0.0)
    assert whole.idle_fraction == 0.0
    (stopped,) = played_loads([played()], Records(operations=reads(104.0)))
    assert stopped.idle_end_s == pytest.approx(5.75)
    assert stopped.idle_fraction == pytest.approx(0.575)


def test_a_load_that_begins_late_is_idle_at_its_begin() -> None:
    (late,) = played_loads([played(98.0)], Records(operations=reads(112.0)))
    assert late.idle_fraction == pytest.approx(2 / 12)


def test_each_window_of_a_job_is_by_itself_and_what_is_under_way_when_it_is_told_to_halt_plays() -> None:
    rows = [*reads(104.0), *(row("read", 120 + number, 1.5) for number in range(10))]
    first, second = played_loads([played(100.0, 104.0), played(120.0, 131.0)], Records(operations=rows))
    assert (first.seconds, first.idle_fraction) == (4.0, 0.0)
    assert second.operations == 10
    assert second.idle_end_s == pytest.approx(0.5)


def test_a_step_that_lasts_to_the_end_plays_and_one_that_nobody_follows_does_not() -> None:
    long, short = [{"job": "a", "started_s": 100.0, "ended_s": end} for end in (113.0, 104.0)]
    (playing,) = played_loads([played()], Records(steps=[long]))
    (ended,) = played_loads([played()], Records(steps=[short]))
    assert playing.idle_fraction == 0.0
    assert ended.idle_fraction == pytest.approx(0.6)
    assert played_loads([played()], Records(work_steps=[short])) == [ended], "steps of graphs count alike"


def test_a_load_may_rest_for_as_long_as_its_config_lets_it() -> None:
    def idle_fraction(rests_s: float) -> float:
        one = played(level=None, rests_s=rests_s, **methods("start", "play", "halt", "close"))
        (found,) = played_loads([one], Records(operations=reads(104.0)))
        return found.idle_fraction

    assert idle_fraction(6.0) == 0.0
    assert idle_fraction(5.0) == pytest.approx(0.575)


def methods(*names: str) -> Any:
    return dict.fromkeys(names, lambda: None)


def test_who_ends_by_himself_is_not_looked_at() -> None:
    finite = played(level=None, **methods("start", "play", "halt", "close", "finish"))
    assert played_loads([finite], Records(operations=reads(104.0))) == []
    programs = Records(operations=[row("program", 100, 1.0), row("program_stopped", 100, 2.0)])
    assert played_loads([played()], programs) == []
    assert failed_operations(programs) == []


def flows(*outcomes: tuple[str, float]) -> list[dict[str, Any]]:
    return [row(name, 100.0, took_s) for name, took_s in outcomes]


@pytest.mark.parametrize(
    ("outcomes", "unexplained"),
    [
        ([("flow", 0.1), ("flow", 16.8), ("flow_failed", 10.05), ("flow_failed", 10.26)], 0),  # Others took as long.
        ([("flow", 5.2), ("flow_failed", 10.05)], 0),  # About as long.
        ([("flow", 0.1), ("flow", 0.9), ("flow_failed", 10.05)], 1),
        ([("flow", 16.8), ("flow_failed", 0.001)], 1),  # Turned away: no network does that.
        ([("flow_failed", 10.0)], 1),
        ([("flow", 0.1), ("flow_abandoned", 9.0), ("flow_refused", 0.0)], 0),  # The phase ended; too many ran.
        ([("read", 0.1), ("read_failed", 30.0)], 1),
        ([("read", 20.0), ("read_failed", 30.0)], 0),
    ],
)
def test_a_failure_has_a_reason_if_others_took_as_long(outcomes: list[tuple[str, float]], unexplained: int) -> None:
    (found,) = failed_operations(Records(operations=flows(*outcomes)))
    assert found.unexplained == unexplained
    assert found.begun == sum(not name.endswith("refused") for name, _ in outcomes)


def test_failures_are_told_by_job_and_kind() -> None:
    rows = [row("read", 0, 1.0), row("write_failed", 0, 9.0), row("flow", 0, 1.0, "b"), row("incast", 0, 1.0, "c")]
    assert failed_operations(Records(operations=rows)) == [
        FailedOperations("a", "read", 1, 0, 0, 1.0),
        FailedOperations("a", "write", 1, 1, 1, 0.0),
        FailedOperations("b", "flow", 1, 0, 0, 1.0),
    ]
