"""Typed metrics: their parts out of their paths, and of results of either format."""

from __future__ import annotations

import json
import math
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from fabric.errors import ResultError
from fabric.metrics import Metric, by_path, by_phase, metric_at, metrics_frame, metrics_of, sifted
from fabric.results import FORMAT_VERSION, Result, ResultWriter

PATHS = {
    "lanes.hfreduce.algbw_Bps": ("lanes", "hfreduce", "algbw_Bps", "B/s"),
    "lanes.read.p99_s": ("lanes", "", "read.p99_s", "s"),
    "shared.drops_packets": ("shared", "", "drops_packets", "packets"),
    "shared.stalled_fraction": ("shared", "", "stalled_fraction", "1"),
    "deepest_queue_bytes": ("", "", "deepest_queue_bytes", "B"),
    "wait.cut.blackout_max_s": ("wait", "", "cut.blackout_max_s", "s"),
    "a.nic_rate_bps": ("a", "", "nic_rate_bps", "bit/s"),
    "together.nccl.tokens_per_s": ("together", "nccl", "tokens_per_s", "1/s"),
    "lanes.hfreduce.steps": ("lanes", "hfreduce", "steps", "1"),
}


@pytest.mark.parametrize("path", PATHS)
def test_a_path_is_taken_apart_and_put_together_again(path: str) -> None:
    metric = metric_at(path, 1.5)
    assert (metric.phase, metric.job, metric.name, metric.unit) == PATHS[path]
    assert metric.path == path


def test_a_path_has_the_job_only_where_the_name_needs_it() -> None:
    read = Metric("lanes", "storage", "read.p99_s", 1.0, is_named_by_job=False)
    assert (read.path, read.name_in_phase) == ("lanes.read.p99_s", "read.p99_s")
    step = Metric("lanes", "train-a", "step_s", 2.0)
    assert (step.path, step.name_in_phase) == ("lanes.train-a.step_s", "train-a.step_s")
    assert Metric("", "", "seconds", 3.0).path == "seconds"


def test_metrics_are_grouped_by_phase_and_named_by_their_paths() -> None:
    found = [
        *metrics_of("lanes", "storage", {"read.p99_s": 1.0}, is_named_by_job=False),
        *metrics_of("shared", "", {"drops_packets": 3}),
        *metrics_of("lanes", "nccl", {"algbw_Bps": 2.0}),
    ]
    assert by_phase(found) == {"lanes": {"read.p99_s": 1.0, "nccl.algbw_Bps": 2.0}, "shared": {"drops_packets": 3}}
    assert by_path(found) == {"lanes.read.p99_s": 1.0, "shared.drops_packets": 3, "lanes.nccl.algbw_Bps": 2.0}
    frame = metrics_frame(found)
    assert frame.query("job == 'storage'")["path"].tolist() == ["lanes.read.p99_s"]


def test_metrics_that_were_kept_without_their_paths_have_them(tmp_path: Path) -> None:
    found = result(tmp_path / "r", FORMAT_VERSION, {"lanes.hfreduce.algbw_Bps": 1.0, "deepest_queue_bytes": 2.0})
    file = found.directory / "samples" / "metrics.parquet"
    pd.read_parquet(file).drop(columns="path").to_parquet(file)
    assert found.metrics["path"].tolist() == ["lanes.hfreduce.algbw_Bps", "deepest_queue_bytes"]


def test_metrics_that_say_their_job_are_taken_as_they_are() -> None:
    told = [
        Metric("lanes", "train.a", "algbw_Bps", 1),
        Metric("lanes", "", "read.p99_s", 2.0),
    ]
    frame = metrics_frame(told)
    assert frame[["job", "name", "value", "path"]].to_numpy().tolist() == [
        ["train.a", "algbw_Bps", 1.0, "lanes.train.a.algbw_Bps"],
        ["", "read.p99_s", 2.0, "lanes.read.p99_s"],
    ]
    with pytest.raises(ResultError, match=r"^metric lanes\.a\.b: is there twice; give one of them another name$"):
        metrics_frame([Metric("lanes", "a", "b", 1.0), Metric("lanes", "", "a.b", 2.0)])


def test_what_is_no_number_is_no_metric() -> None:
    frame = metrics_frame({"a.b_s": 1, "a.d": "text"})  # type: ignore[dict-item]
    assert frame.to_dict("records") == [
        {"phase": "a", "job": "", "name": "b_s", "unit": "s", "value": 1.0, "path": "a.b_s"}
    ]


@pytest.mark.parametrize(
    ("value", "meant"),
    [
        (pd.Series([3, 4]).sum(), 7),
        (np.int32(-2), -2),
        (np.uint64(2**63), 2**63),
        (np.float32(1.5), 1.5),
        (np.bool_(True), 1),
        (True, 1),
        (np.array(2.5), 2.5),
        (Fraction(1, 4), 0.25),
    ],
)
def test_a_number_of_any_library_is_a_metric_and_python_has_it(value: Any, meant: float) -> None:
    kept, notes = sifted([Metric("lanes", "hfreduce", "steps", value)])
    assert ([one.value for one in kept], notes) == ([meant], [])
    assert json.loads(json.dumps(by_path(kept))) == {"lanes.hfreduce.steps": meant}


def test_what_is_left_out_of_the_metrics_is_named_with_why() -> None:
    told: dict[str, Any] = {
        "a.mean_s": np.float64(np.nan),
        "a.none_s": None,
        "a.ratio": math.inf,
        "a.word": "two",
        "a.time": pd.NaT,
        "a.kept_s": 1.0,
    }
    twice = [Metric("b", "x", "y", 1.0), Metric("b", "", "x.y", 2.0)]
    kept, notes = sifted([*(metric_at(path, value) for path, value in told.items()), *twice])
    assert by_path(kept) == {"a.kept_s": 1.0}
    assert notes == [
        "metrics left out, since not measured (NaN): a.mean_s, a.none_s",
        "metrics left out, since infinite: a.ratio",
        "metrics left out, since no number: a.word (str), a.time (NaTType)",
        "metrics left out, since there twice, so give one another name: b.x.y (1), b.x.y (2)",
    ]


def test_of_many_metrics_that_are_left_out_some_are_named() -> None:
    _, (note,) = sifted({f"a.m{number}_s": math.nan for number in range(30)})
    assert note.endswith("a.m11_s and 18 more")


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


def test_truths_of_results_of_format_1_are_no_metrics_as_they_never_were(tmp_path: Path) -> None:
    old = result(tmp_path / "r", 1, {"a.b_s": 1.0, "a.c": True})
    assert old.metrics["path"].tolist() == ["a.b_s"]


def test_names_of_nothing_are_refused_with_those_that_are(tmp_path: Path) -> None:
    found = result(tmp_path / "r", FORMAT_VERSION, {})
    with pytest.raises(ResultError, match=r"^table 'stepz': does not exist; there are ports, .*steps"):
        found.table("stepz")
