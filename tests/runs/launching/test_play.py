"""What is kept of a run that fails: its logs, and the samples of the phases that had ended."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest

from fabric.errors import ConfigError
from fabric.results import ResultWriter
from fabric.tables import TABLES
from runs.launching import play
from runs.launching.events import Event, Note
from runs.launching.order import Order
from runs.run_tables import RunTables


def session(phases: int, **columns: list[Any]) -> Any:
    """A session that has played so many phases, with rows of the table ``metrics``."""
    tables = RunTables()
    if columns:
        tables.keep_frame("metrics", pd.DataFrame(columns))
    return SimpleNamespace(phases=[None] * phases, table=tables.table, aside=tables.aside)


def test_a_run_that_fails_after_a_phase_keeps_its_samples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where what theory says of it cannot be computed."""
    monkeypatch.setattr("fabric.world.inside.RUN_DIR", tmp_path / "run")
    monkeypatch.setattr(play, "restored", lambda *_: SimpleNamespace(experiment=SimpleNamespace(load_tables=dict)))

    def fail(resolved: Any, draft: ResultWriter, order: Order, report: Any) -> None:
        play._keep_samples(session(1), draft, report)
        raise ConfigError("theory", ["does not end"])

    monkeypatch.setattr(play, "_play", fail)
    events: list[Event] = []
    order = Order("replay", "", {}, str(tmp_path / "mine"), (), ())
    with pytest.raises(ConfigError, match="does not end"):
        play.play(order, events.append)
    kept = tmp_path / "mine.failed-samples"
    assert events == [Note(f"logs: {tmp_path / 'mine.failed-logs'}"), Note(f"samples: {kept}")]
    assert {path.stem for path in kept.iterdir()} == set(TABLES)
    assert list(pd.read_parquet(kept / "operations.parquet").columns) == list(TABLES["operations"].columns)


def test_a_run_that_fails_before_a_phase_has_ended_has_no_samples(tmp_path: Path) -> None:
    draft = ResultWriter(tmp_path / "draft")
    play._keep_samples(session(0), draft, lambda event: pytest.fail("nothing is to be told"))
    assert list((draft.directory / "samples").iterdir()) == []


def test_samples_that_cannot_be_written_do_not_hide_why_the_run_failed(tmp_path: Path) -> None:
    events: list[Event] = []
    play._keep_samples(session(1, wrong=[1]), ResultWriter(tmp_path / "draft"), events.append)
    (note,) = events
    assert isinstance(note, Note)
    assert note.text.startswith(
        "samples of the phases that had ended could not be written: ResultError: table metrics:"
    )
