"""Medians over runs of what some of them know only the least of."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from experiments.sweeps.tables import with_least

NOTHING = np.nan


@pytest.mark.parametrize(
    ("known", "least", "name", "values"),
    [
        ([8.0, NOTHING, 9.0], [NOTHING, 10.0, NOTHING], "lanes.flow.p99_s", [8.0, 10.0, 9.0]),
        ([8.0, NOTHING, NOTHING], [NOTHING, 10.0, 11.0], "lanes.flow.p99_at_least_s", [8.0, 10.0, 11.0]),
        ([12.0, NOTHING, 13.0], [NOTHING, 10.0, NOTHING], "lanes.flow.p99_at_least_s", [12.0, 10.0, 13.0]),
    ],
)
def test_runs_with_the_largest_values_are_not_left_out(
    known: list[float], least: list[float], name: str, values: list[float]
) -> None:
    """The median of those alone that know theirs would be that of the runs whose fabric was the least congested."""
    columns = {"lanes.flow.p99_s": known, "lanes.flow.p99_at_least_s": least, "lanes.sent_packets": [1.0, 2.0, 3.0]}
    found = with_least(pd.DataFrame(columns)).dropna(axis="columns", how="all")
    assert found[name].tolist() == values
    assert set(found.columns) == {name, "lanes.sent_packets"}


def test_what_no_run_knows_is_the_least_of_all() -> None:
    found = with_least(pd.DataFrame({"p99_at_least_s": [1.0, 3.0, 2.0]})).dropna(axis="columns", how="all")
    assert {name: column.tolist() for name, column in found.items()} == {"p99_at_least_s": [1.0, 3.0, 2.0]}
