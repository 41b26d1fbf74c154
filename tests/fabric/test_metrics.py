"""Typed metrics: their parts out of their paths, and of results of either format."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fabric.errors import ResultError
from fabric.metrics import Metric, metric_at, metrics_frame
from fabric.results import FORMAT_VERSION, Result, ResultWriter

PATHS = {
    "lanes.hfreduce.algbw_Bps": ("lanes", "hfreduce", "algbw_Bps", "B/s"),
    "lanes.read.p99_s": ("lanes", "", "read.p99_s", "s"),
    "shared.drops_packets": ("shared", "", "drops_packets", "packets"),
    "shared.stalled_fraction": ("shared", "", "stalled_fraction", "1"),
    "deepest_queue_bytes": ("", "", "deepest_queue_bytes", "B"),
    "wait.cut.blackout_max_s": ("wait", "", "cut.blackout_max_s", "s"),
    "a.nic_rate_bps": ("a", "", "nic_rate_bps", "bit/s"),
    "lanes.hfreduce.steps": ("lanes", "hfreduce", "steps", "1"),
}


@pytest.mark.parametrize("path", PATHS)
def test_a_path_is_taken_apart_and_put_together_again(path: str) -> None:
    metric = metric_at(path, 1.5)
    assert (metric.phase, metric.job, metric.name, metric.unit) == PATHS[path]
    assert metric.path == path


def test_jobs_may_have_other_names() -> None:
    assert metric_at("p.train-a.algbw_Bps", 1.0, {"train-a"}) == Metric("p", "train-a", "algbw_Bps", 1.0)


def test_what_is_no_number_is_no_metric() -> None:
    frame = metrics_frame({"a.b_s": 1, "a.c": True, "a.d": "text"})  # type: ignore[dict-item]
    assert frame.to_dict("records") == [{"phase": "a", "job": "", "name": "b_s", "unit": "s", "value": 1.0}]


def result(directory: Path, version: int, metrics: dict[str, float]) -> Result:
    writer = ResultWriter(directory)
    writer.write_json("manifest.json", {"format_version": version})
    writer.write_json("fabric.json", {})
    writer.write_json("summary.json", {"metrics": metrics})
    if version > 1:
        writer.write_table("metrics", metrics_frame(metrics))
    return Result(directory)


def test_results_of_both_formats_have_the_same_metrics(tmp_path: Path) -> None:
    values = dict.fromkeys(PATHS, 2.0)
    old, new = (result(tmp_path / str(version), version, values).metrics for version in (1, FORMAT_VERSION))
    assert old.to_dict("records") == new.to_dict("records")
    assert dict(old.dtypes) == dict(new.dtypes)
    assert json.loads((tmp_path / "1" / "summary.json").read_text())["metrics"] == values
    lanes = new[(new["phase"] == "lanes") & (new["job"] == "hfreduce")].set_index("name")["value"]
    assert lanes["algbw_Bps"] == 2.0


def test_names_of_nothing_are_refused_with_those_that_are(tmp_path: Path) -> None:
    found = result(tmp_path / "r", FORMAT_VERSION, {})
    with pytest.raises(ResultError, match=r"^table 'stepz': does not exist; there are ports, .*steps"):
        found.table("stepz")
