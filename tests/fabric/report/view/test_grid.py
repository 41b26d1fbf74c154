"""Matrices of samples: each phase's, whole samples only, exactly as the tables have them."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from fabric.errors import ResultError
from fabric.report.view.grid import Grid, grids_of, phase_of_each
from fabric.results import Phase
from fabric.tables import TABLES
from tests.rows import table_of

PHASES = [Phase("one", "One", "lanes", 1.0, 2.0), Phase("two", "Two", "lossless", 5.0, 6.0)]
PORTS, LANES = ("a:1", "b:2"), ("storage", "other")


def rows(*times_s: float) -> pd.DataFrame:
    """Return samples of two ports with two lanes, in an order that is not theirs; what is sent is 100 per second."""
    found = [
        (at, port, lane, round(100 * at) + number, round(at), number, 7 * number, 0)
        for at in times_s
        for number, (port, lane) in enumerate(
            [("b:2", "other"), ("a:1", "other"), ("b:2", "storage"), ("a:1", "storage")]
        )
    ]
    return table_of("ports", found).astype(TABLES["ports"].dtypes)


def grids(ports: pd.DataFrame, stalls: pd.DataFrame | None = None) -> list[Grid]:
    return grids_of(
        {"ports": ports, "stalls": TABLES["stalls"].empty() if stalls is None else stalls}, PHASES, PORTS, LANES
    )


def test_a_sample_just_outside_of_a_phase_is_of_it() -> None:
    assert phase_of_each(np.array([0.9, 1.5, 2.01, 3.4, 3.6, 4.99, 9.0]), PHASES).tolist() == [0, 0, 0, 0, 1, 1, 1]


def test_rows_are_samples_and_columns_are_ports_and_lanes() -> None:
    first, second = grids(rows(1.0, 1.5, 5.0))
    assert first.at_s.tolist() == [1.0, 1.5]
    names = [(PORTS[port], LANES[lane]) for port, lane in zip(first.ports, first.lanes, strict=True)]
    assert names == [("a:1", "storage"), ("a:1", "other"), ("b:2", "storage"), ("b:2", "other")]
    assert first.columns["sent_bytes"].tolist() == [[103, 101, 102, 100], [153, 151, 152, 150]]
    assert second.columns["backlog_bytes"].tolist() == [[21, 7, 14, 0]]


def test_a_sample_that_lacks_a_lane_is_left_out_and_counted() -> None:
    found = rows(1.0, 1.5, 2.0)
    first, _ = grids(found.drop(index=5))
    assert first.at_s.tolist() == [1.0, 2.0]
    assert first.left_out == 1


def test_stalls_stand_beside_what_was_sent() -> None:
    rows_of_stalls = [(5.0, "b:2", "other", 3, 900, 40, 50), (5.5, "b:2", "other", 4, 950, 0, 50)]
    stalls = table_of("stalls", rows_of_stalls).astype(TABLES["stalls"].dtypes)
    first, second = grids(rows(1.0, 5.0, 5.5), stalls)
    assert "stalled_ns" not in first.columns
    assert second.columns["stalled_ns"].tolist() == [[0, 0, 0, 900], [0, 0, 0, 950]]


def test_a_phase_without_samples_is_empty() -> None:
    first, second = grids(rows(5.0))
    assert (len(first.at_s), len(second.at_s)) == (0, 1)
    assert len(first.thinned(3).at_s) == 0


def test_a_thinned_grid_keeps_the_first_and_the_last_sample() -> None:
    first, _ = grids(rows(1.0, 1.1, 1.2, 1.3, 1.4, 1.5))
    assert first.thinned(4).at_s.tolist() == [1.0, 1.4, 1.5]
    assert first.thinned(4).columns["sent_bytes"][:, 0].tolist() == [103, 143, 153]


def test_two_rows_of_one_lane_and_time_are_refused() -> None:
    with pytest.raises(ResultError, match="samples of phase one have different ports and lanes"):
        grids(pd.concat([rows(1.0), rows(1.0)]))
