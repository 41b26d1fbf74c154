"""What a run's metrics are in its files."""

from __future__ import annotations

import json
import math
import re
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from fabric.metrics import Metric, listed
from fabric.records.notes import NothingReroutes
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
EXPERIMENT = cast(record.Recorded, SimpleNamespace(in_manifest={}, load_measures=list))
SAID = {"title": "t", "tables": [SummaryTable("T", ["a"], [["b"]])]}


def written(directory: Path, monkeypatch: pytest.MonkeyPatch, summary: dict[str, Any]) -> RunTables:
    monkeypatch.setattr(record, "_manifest", lambda *_: {"verdict": "v"})
    tables = RunTables()
    run = SimpleNamespace(
        judge=lambda: None,
        live=SimpleNamespace(fabric=load_fabric("fire_flyer_2_tiny")),
        phases=[],
        keep_frame=tables.keep_frame,
        table=tables.table,
        attempts=tables.attempts,
    )
    monkeypatch.setattr(record, "write_samples", lambda run, writer: None)
    record.write_run(cast(Session, run), ResultWriter(directory), EXPERIMENT, {}, summary, [])
    return tables


@pytest.mark.parametrize(("metrics", "job"), TOLD.values(), ids=list(TOLD))
def test_metrics_are_in_the_summary_by_their_paths_and_in_the_table_with_their_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, metrics: Any, job: str
) -> None:
    tables = written(tmp_path, monkeypatch, SAID | {"metrics": metrics})
    kept = json.loads((tmp_path / "summary.json").read_text())
    assert kept["metrics"]["lanes.read.p99_s"] == 0.25
    table = {"title": "T", "columns": ["a"], "rows": [["b"]], "numbers": [[None]]}
    assert (kept["title"], kept["tables"]) == ("t", [table])
    rows = tables.table("metrics").set_index("path")
    assert (rows.loc["lanes.read.p99_s", "job"], rows.loc["lanes.read.p99_s", "name"]) == (job, "read.p99_s")


FAULTS: dict[str, tuple[dict[str, Any], str]] = {
    "a metric that is NaN": ({"metrics": {"a.b_s": math.nan}}, r"not measured \(NaN\): a.b_s"),
    "a metric that is infinite": ({"metrics": {"a.b_s": math.inf}}, "infinite: a.b_s"),
    "a metric that is there twice": (
        {"metrics": [Metric("a", "b", "c", 1.0), Metric("a", "", "b.c", 1.0)]},
        r"there twice, so give one another name: a.b.c \(1\), a.b.c \(1\)",
    ),
    "a row with a cell too many": (
        {"tables": [SummaryTable("T", ["a"], [["b", "c"]])]},
        "table 'T': row 1 has 2 cells",
    ),
    "a table without rows": ({"tables": [{"title": "T"}]}, "table 'T': has no columns"),
    "a value that JSON lacks": ({"mine": {"when": [datetime(2026, 1, 1)]}}, "mine: when: 1: is a datetime"),
}


@pytest.mark.parametrize(("said", "note"), FAULTS.values(), ids=list(FAULTS))
def test_a_fault_of_what_is_said_costs_that_and_is_noted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: dict[str, Any], note: str
) -> None:
    good = {"title": "t", "metrics": {"x_s": 1.0}, "tables": SAID["tables"]}
    summary = {key: _both(good.get(key), said.get(key)) for key in {**good, **said}}
    tables = written(tmp_path, monkeypatch, summary)
    kept = json.loads((tmp_path / "summary.json").read_text())
    assert (kept["title"], kept["metrics"]["x_s"], kept["tables"][0]["title"]) == ("t", 1.0, "T")
    assert len(kept["tables"]) == 1
    assert re.search(note, kept["notes"][0]), kept["notes"]
    assert tables.table("metrics")["path"].tolist() == list(kept["metrics"]) == ["x_s"]
    assert json.loads((tmp_path / "manifest.json").read_text()) == {"verdict": "v"}


def _both(good: Any, added: Any) -> Any:
    """Return what is said with what is wrong beside it."""
    if isinstance(good, dict) and isinstance(added, list):
        return [*listed(good), *added]
    if isinstance(good, dict) and isinstance(added, dict):
        return good | added
    return good if added is None else added if good is None else [*good, *added]


def test_an_experiment_that_returns_nothing_has_a_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written(tmp_path, monkeypatch, dict(record.summary_of(None)))
    kept = json.loads((tmp_path / "summary.json").read_text())
    assert kept == {
        "metrics": {},
        "tables": [],
        "notes": ["no summary: the experiment's run returned a NoneType, not a dictionary"],
    }


def test_notes_are_words_in_the_summary_and_values_in_the_manifest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    note = NothingReroutes(("z0l00:1--z0s00:1",), ("one",))
    manifests: list[Any] = []
    monkeypatch.setattr(record, "notes_of", lambda run, metrics, own: [note])
    written(tmp_path, monkeypatch, SAID | {"metrics": {}, "notes": ["of its own"]})
    assert json.loads((tmp_path / "summary.json").read_text())["notes"] == ["of its own", note.words]

    def keep(*given: Any) -> dict[str, Any]:
        manifests.append(given)
        return {}

    monkeypatch.setattr(record, "_manifest", keep)
    run = SimpleNamespace(judge=lambda: None, live=SimpleNamespace(fabric=load_fabric("fire_flyer_2_tiny")))
    run.keep_frame = lambda *_: None
    record.write_run(cast(Session, run), ResultWriter(tmp_path), EXPERIMENT, {}, SAID | {"metrics": {}}, [])
    assert manifests[0][3] == [note]
