"""What failures cost, from events: each part, and that the parts are the whole."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import pandas as pd
import pytest

from cluster.platform.costs_by_events import COLUMNS, costs_by_events
from cluster.platform.kinds import PLATFORM
from tests.cluster.platform.test_account import of_today, row
from traffic.measures import JobRows

DAY = [
    row(0, "submitted", 1, 1, why="low"),
    row(1, "started", 1, 1, "a b"),
    row(11, "saved", 1, 1, why="step 10"),
    row(21, "saved", 1, 1, why="step 20"),
    row(70, "node_out", nodes="b", why="not heard for 42 s"),
    row(70.5, "restart", 1, 1, why="b: not ready any more"),
    row(71, "left", 1, 1, why="code 137, step 20"),
    row(74, "asked", 1, 2, "a c"),
    row(74.5, "started", 1, 2, "a c"),
    row(90, "restart", 1, 2, why="c: its rank is gone"),
    row(92, "left", 1, 2, why="code 1, step 20"),
]


def costs(events: list[dict[str, Any]] = DAY) -> list[dict[str, Any]]:
    """Return the costs by a table from before there were columns for what the words say."""
    table = of_today(events)
    found: list[dict[str, Any]] = costs_by_events(table).to_dict("records")  # type: ignore[assignment]
    for one in found:
        parts = sum(one[name] for name in ("lost_steps_s", "detected_s", "stopped_s", "restarted_s"))
        assert one["total_s"] == pytest.approx(parts, nan_ok=True)
    return found


def values(found: dict[str, Any]) -> list[float]:
    return [round(found[name], 6) for name in ("lost_steps_s", "detected_s", "stopped_s", "restarted_s", "total_s")]


def test_each_part_of_what_a_failure_costs() -> None:
    """Of the table alone: the silent node was heard last at 28 s; nothing tells when the rank was lost."""
    first, second = costs()
    assert (first["failure"], first["began_s"], first["number"], first["life"]) == ("b: not heard for 42 s", 128, 1, 1)
    assert values(first) == [7, 42.5, 0.5, 3.5, 53.5]
    assert second["failure"] == "c: its rank is gone"
    assert values(second)[:3] == [15.5, 0, 2]
    assert math.isnan(second["restarted_s"]) and math.isnan(second["total_s"]), "it never ran again"


def test_when_a_node_was_heard_last_and_a_step_complete_are_numbers_whatever_the_words_say() -> None:
    """Words are rounded, and only one of the ways in which a silent node is found has the time in them."""
    silent = "not heard: asked to take task 7, no answer within 5 s"
    events = [
        {**event, "why": silent, "earlier_s": 42.034} if event["event"] == "node_out" else {**event, "earlier_s": 0.0}
        for event in DAY
    ]
    first, _ = costs(events=events)
    assert (first["failure"], round(first["began_s"], 6)) == (f"b: {silent}", 127.966)
    assert values(first) == [6.966, 42.534, 0.5, 3.5, 53.5]
    late = [{**event, "earlier_s": 4.56} if event["why"] == "step 20" else event for event in events]
    assert values(costs(events=late)[0])[0] == pytest.approx(6.966 + 4.56)


def test_a_step_saved_after_the_failure_is_kept() -> None:
    """Of a node that is only cut off, rank 0 elsewhere goes on."""
    late = [*DAY[:4], row(60, "saved", 1, 1, why="step 59"), *DAY[4:9]]
    (found,) = costs(events=late)
    assert values(found) == [0, 10.5, 0.5, 3.5, 14.5]


def test_a_step_that_was_told_of_late_counts_from_when_it_was_complete() -> None:
    """As of an agent that was killed, and found it on its disk when it was begun again."""
    late = [*DAY[:4], row(69, "saved", 1, 1, why="step 30, complete 38.0 s before"), *DAY[4:9]]
    (found,) = costs(events=late)
    assert values(found) == [0, 39.5, 0.5, 3.5, 43.5]


def test_no_failure_has_no_row_and_platforms_do_not_mix() -> None:
    empty = costs_by_events(of_today(DAY[:4]))
    assert list(empty.columns) == list(COLUMNS) and empty.empty
    two = [{**event, "job": job} for event in DAY for job in ("p", "q")]
    assert len(costs_by_events(of_today(two))) == 4


def _table_of(tables: dict[str, pd.DataFrame], name: str) -> pd.DataFrame:
    return tables.get(name, pd.DataFrame())


def test_a_run_tells_what_failures_cost_on_average_and_at_most() -> None:
    """Of those after which the job ran again."""
    for events, words in ((DAY, {"failure_cost_mean_s": 53.5, "failure_cost_most_s": 53.5}), (DAY[:4], {})):
        tables = {"platform_events": of_today(events).assign(nodes="")}
        found = PLATFORM.measures.of(JobRows(partial(_table_of, tables), [], None))
        assert {name: number for name, number in found.items() if name.startswith("failure")} == words
        assert found["events.saved"] == 2
