"""Medians over runs of what some of them know only the least of."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import cast

import numpy as np
import pandas as pd
import pytest

from app.commands.study import _median_text, headlines_of
from app.sweeps.planning import SweepPlan
from app.sweeps.tables import INTERVAL, RANGE, medians_table, with_least
from runs.measures import SHARED
from tests.app.sweeps.plain_runs import METRIC, SHARE, InTurn, planned, swept

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


def test_runs_that_count_and_lack_a_metric_are_no_runs_left_out() -> None:
    plan = cast(SweepPlan, SimpleNamespace(axes=()))
    verdicts = ["faithful"] * 4 + ["invalid"]
    noticed = [1.0, 2.0, NOTHING, NOTHING, 9.0]
    rows = [
        {"run": str(seed), "seed": seed, "verdict": verdict, "reasons": "", "cut.noticed_s": value, "cut.reads": 5.0}
        for seed, verdict, value in zip(range(5), verdicts, noticed, strict=True)
    ]
    found = medians_table(plan, pd.DataFrame(rows)).set_index("metric")
    counts = found[["median", "runs", "left_out", "without"]].to_dict("index")
    assert list(counts["cut.noticed_s"].values()) == [1.5, 2, 1, 2]
    assert list(counts["cut.reads"].values()) == [5.0, 4, 1, 0]


@pytest.mark.parametrize(("seeds", "words"), [(1, ""), (2, RANGE), (5, RANGE), (6, INTERVAL)])
def test_of_few_runs_no_interval_is_claimed(seeds: int, words: str) -> None:
    plan = cast(SweepPlan, SimpleNamespace(axes=()))
    rows = [{"run": "r", "seed": n, "verdict": "faithful", "reasons": "", "a_s": float(n)} for n in range(seeds)]
    (row,) = medians_table(plan, pd.DataFrame(rows)).to_dict("records")
    assert row["low_to_high"] == words
    if words == RANGE:
        assert (row["low"], row["high"]) == (0.0, seeds - 1.0)


def test_what_no_run_knows_is_the_least_of_all() -> None:
    found = with_least(pd.DataFrame({"p99_at_least_s": [1.0, 3.0, 2.0]})).dropna(axis="columns", how="all")
    assert {name: column.tolist() for name, column in found.items()} == {"p99_at_least_s": [1.0, 3.0, 2.0]}


def test_a_headline_says_that_it_is_the_least_if_its_measure_is() -> None:
    row = {"metric": "lanes.read.p99_at_least_s", "runs": 1, "median": 2.0, "low": 2.0, "high": 2.0, "without": 0}
    assert _median_text(row, SHARED) == "> 2 s"
    assert _median_text({**row, "metric": "lanes.read.p99_s"}, SHARED) == "2 s"
    assert _median_text(row, ()) == "2 s"


DRAWN = [{"y": "{queueings}.hfreduce.algbw_Bps", "x": SHARE}]


@pytest.mark.parametrize("figures", [[], DRAWN], ids=["the first metrics", "its figures'"])
def test_a_sweep_ends_with_the_medians_of_what_its_figures_draw(tmp_path: Path, figures: list[dict[str, str]]) -> None:
    plan = planned(grid={SHARE: [0.1, 0.3], "queueings": [["lanes"]]}, seeds=3, figures=figures)
    found = headlines_of(swept(plan, tmp_path / "sweep", InTurn()))
    assert found is not None
    name = figures[0]["y"] if figures else METRIC
    assert found["columns"] == [SHARE, "queueings", name]
    assert found["rows"] == [
        ["0.1", "lanes", "0.000 MB/s [0.000 MB/s, 0.000 MB/s]"],
        ["0.3", "lanes", "0.000 MB/s [0.000 MB/s, 0.000 MB/s]"],
    ]
