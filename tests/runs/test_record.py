"""What a run's metrics are in its files."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from fabric.metrics import Metric
from fabric.records.summary_table import SummaryTable
from fabric.results import ResultWriter
from runs import record
from runs.run_tables import RunTables
from runs.session import Session
from topologies.load import load_fabric

TOLD: dict[str, tuple[Any, str]] = {
    "by paths": ({"lanes.read.p99_s": 0.25, "lanes.drops_packets": 3}, ""),
    "as metrics": ([Metric("lanes", "mine", "read.p99_s", 0.25, is_named_by_job=False)], "mine"),
}
SAID = {"title": "t", "tables": [SummaryTable("T", ["a"], [["b"]])]}


@pytest.mark.parametrize(("metrics", "job"), TOLD.values(), ids=list(TOLD))
def test_metrics_are_in_the_summary_by_their_paths_and_in_the_table_with_their_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, metrics: Any, job: str
) -> None:
    monkeypatch.setattr(record, "_manifest", lambda *_: {})
    tables = RunTables()
    run = SimpleNamespace(
        judge=lambda: None,
        live=SimpleNamespace(fabric=load_fabric("fire_flyer_2_tiny")),
        keep_frame=tables.keep_frame,
        table=tables.table,
    )
    monkeypatch.setattr(record, "write_samples", lambda run, writer: None)
    record.write_run(cast(Session, run), ResultWriter(tmp_path), {}, {}, SAID | {"metrics": metrics}, [])
    kept = json.loads((tmp_path / "summary.json").read_text())
    assert kept["metrics"]["lanes.read.p99_s"] == 0.25
    assert (kept["title"], kept["tables"]) == ("t", [{"title": "T", "columns": ["a"], "rows": [["b"]]}])
    rows = tables.table("metrics").set_index("path")
    assert (rows.loc["lanes.read.p99_s", "job"], rows.loc["lanes.read.p99_s", "name"]) == (job, "read.p99_s")
