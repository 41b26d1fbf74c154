"""For what part of its time a lane stood still, and a fabric was congested: of the time in which the load played."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest

from fabric.results import Phase
from fabric.tables import TABLES
from runs.congestion import Found
from runs.stall_metrics import stall_metrics, stalled_fractions
from tests.rows import table_of

PHASE = Phase("p", "A phase", "lossless_lanes", 10.0, 20.0, "", 11.0, 14.0)
"""Its load plays for three seconds; its last operations take six more to end."""


def stalls(*samples: tuple[float, float], port: str = "a:1") -> pd.DataFrame:
    """Rows of the time of a sample and the seconds for which a lane had stalled by then."""
    rows = [(at_s, port, "x", round(10 * stalled_s), round(1e9 * stalled_s), 7, 7) for at_s, stalled_s in samples]
    return table_of("stalls", rows).astype(TABLES["stalls"].dtypes)


def outcome(phase: Phase) -> Any:
    return SimpleNamespace(phase=phase)


ALL_THE_TIME = stalls((10.0, 0.0), (11.0, 0.0), (12.5, 1.5), (14.0, 3.0), (20.0, 3.0))


def test_a_lane_that_stalls_while_the_load_plays_stalls_all_the_time() -> None:
    found = stall_metrics(ALL_THE_TIME, outcome(PHASE))
    assert found["most_stalled_fraction"] == pytest.approx(1.0)
    assert (found["stalled_s"], found["stalls"]) == (3.0, 30), "what is counted is counted over the whole phase"
    before = Phase("p", "A phase", "lossless_lanes", 10.0, 20.0)
    assert stall_metrics(ALL_THE_TIME, outcome(before))["most_stalled_fraction"] == pytest.approx(0.3)


def test_who_knows_how_long_it_played_says_so() -> None:
    assert stall_metrics(ALL_THE_TIME, outcome(PHASE), played_s=6.0)["most_stalled_fraction"] == pytest.approx(0.5)


def test_a_load_too_short_for_two_samples_has_the_fraction_of_its_phase() -> None:
    few = stalls((10.0, 0.0), (12.0, 2.0), (20.0, 5.0))
    assert stalled_fractions(few, PHASE).tolist() == pytest.approx([0.5])
    assert stalled_fractions(stalls(), PHASE).empty
    assert stall_metrics(stalls(), outcome(PHASE)) == {}


def test_trees_count_while_the_load_plays() -> None:
    """Half of the first lies before it, and the last after it."""
    columns = TABLES["congestion_trees"].columns
    rows = [
        {"phase": "p", "at_s": at_s, "interval_s": 1.0, "root_port": root, "root_lane": "x"}
        for at_s, root in ((11.5, "a:1"), (13.0, "a:1"), (13.0, "b:1"), (17.0, "a:1"))
    ]
    trees = pd.DataFrame(rows, columns=list(columns))
    nothing = pd.DataFrame()
    found = Found(PHASE, trees, nothing, nothing)
    assert found.part_of_load(trees) == pytest.approx(0.5)
    assert found.part_of_load(trees[trees["root_port"] == "b:1"]) == pytest.approx(1 / 3)
