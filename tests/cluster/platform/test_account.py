"""What came to pass, in words, from events."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd

from cluster.platform.account import account
from cluster.platform.kinds import PLATFORM_EVENTS


def row(
    at_s: float, event: str, number: int = 0, life: int = 0, nodes: str = "", *, why: str = "", step: int = -1
) -> dict[str, Any]:
    own = {"number": number, "life": life, "nodes": nodes, "why": why, "step": step}
    return {"at_s": 100 + at_s, "event": event, **own}


def of_today(events: Sequence[dict[str, Any]]) -> pd.DataFrame:
    """Return a table from before there were columns for what the words say, as it is read."""
    return PLATFORM_EVENTS.of_today(pd.DataFrame([{"job": "p", **event} for event in events]))


DAY = [
    row(0, "submitted", 1, 1, why="low"),
    row(1, "started", 1, 1, "a b"),
    row(2, "submitted", 2, 2, why="high"),
    row(3, "suspend", 1, 1, why="high comes first, and needs its nodes"),
    row(4, "left", 1, 1, step=3),
    row(5, "started", 2, 2, "a"),
    row(6, "finished", 2, 2),
    row(7, "started", 1, 3, "a b"),
    row(70, "node_out", nodes="b", why="not heard for 61 s"),
    row(70.5, "restart", 1, 3),
    row(71, "left", 1, 3),
    row(72, "started", 1, 4, "a c"),
    row(80, "finished", 1, 4, step=9),
]
LOST = "b was taken out at 70.0 s (not heard for 61 s)"


def told(*events: dict[str, Any], asked: int = 2) -> str:
    return account(of_today(events), 100.0, asked)


def test_a_day_in_words() -> None:
    assert told(*DAY, row(90, "node_back", nodes="b")) == (
        "2 of 2 jobs finished; 1 suspended for others: low went on from step 3; "
        f"{LOST}, back at 90.0 s; low began again 1.5 s later from step 3 on a, c."
    )


def test_a_repair_that_did_not_help_is_told_with_the_node() -> None:
    again = row(75, "node_out", nodes="b", why="validator after a repair: x")
    assert f"{LOST}, still out at 75.0 s (validator after a repair: x), back at 90.0 s; low" in told(
        *DAY[:10], again, *DAY[10:], row(90, "node_back", nodes="b")
    )


def test_what_did_not_come_to_pass_is_said() -> None:
    assert told(*DAY[:4], asked=3) == (
        "0 of 3 jobs finished, 1 not submitted before the phase ended; 1 suspended for others: low did not go on."
    )
    assert told(*DAY[:11]) == (
        f"1 of 2 jobs finished; 1 suspended for others: low went on from step 3; {LOST}, not back; "
        "low was stopped at 70.5 s and did not begin again."
    )
    ends = [row(8, "fail", 1, 3), row(8, "cancel", 2, 2), row(8, "timeout", 3, 5)]
    assert told(*DAY[:3], *ends, asked=3) == (
        "0 of 3 jobs finished, 1 failed, 1 stopped at their limits, "
        "1 stopped by their users or at the end of the phase, 1 not submitted before the phase ended."
    )


def test_a_step_that_an_earlier_life_saved_counts_and_a_job_without_one_goes_on_from_the_start() -> None:
    lost = [row(8, "restart", 1, 1), row(9, "left", 1, 1), row(10, "started", 1, 2, "a c")]
    first = [row(0, "submitted", 1, 1, why="low"), row(1, "started", 1, 1, "a b")]
    assert "low began again 2.0 s later from the start on a, c" in told(*first, *lost)
    late = row(7, "saved", 1, 1, step=20)
    assert "low began again 2.0 s later from step 20 on a, c" in told(*first, late, *lost)
