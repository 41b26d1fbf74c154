"""Each experiment's summary of a run in which nothing completed: it says so, and is not a traceback."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from fabric.errors import ResultError, TrafficError
from fabric.model.encoding import fabric_as_json
from fabric.results import FORMAT_VERSION, ResultWriter
from runs.known_tables import own_tables
from runs.launching.run_result import RunResult
from runs.record import summary_as_json, write_samples
from runs.registry import EXPERIMENTS, resolve
from tests.experiments.declared import undeclared
from tests.experiments.unplayed import UnplayedSession, leave_jobs_unstarted, unplayed_session

ALL_OR_NOTHING = {
    "hfreduce_vs_nccl": "its steps are counted: a phase has them all, or fails",
    "lossy_rdma": "its messages are counted: a phase has them all, or fails",
    "queue_pairs": "its messages are counted: a phase has them all, or fails",
    "replay": "its flows are counted: the phase has them all, or fails",
    "spraying": "its messages and steps are counted: a phase has them all, or fails",
    "training_scaling": "its steps are counted: a phase has them all, or fails",
}
REFUSED = {
    "flash_cut_year": "no job ended two steps within 15 s; raise undisturbed_time",
    "goodput_year": "nothing was written in 10 s; raise storms.write_time",
    "time_sharing": "the platform took no job of the list",
}
"""They say why they cannot go on, and what to change: what follows is made of what did not happen."""


@pytest.mark.parametrize("name", sorted(set(EXPERIMENTS) - set(ALL_OR_NOTHING)))
def test_a_run_in_which_nothing_completed_has_a_summary_and_figures(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    resolved = resolve(name, [])
    run = resolved.experiment.load_run()
    leave_jobs_unstarted(monkeypatch)
    session = unplayed_session(resolved.experiment, resolved.config, resolved.fabric, tmp_path)
    if name in REFUSED:
        with pytest.raises(TrafficError, match=re.escape(REFUSED[name])):
            run(session, resolved.config)
        return
    played = run(session, resolved.config)
    assert not played["metrics"] or undeclared(name, played["metrics"]) == []
    summary = summary_as_json(played)
    assert json.dumps(summary, allow_nan=False)
    shown = [cell for cell in _texts(summary) if re.search(r"(?<![A-Za-z])(nan|inf|NaT|None)(?![A-Za-z])", cell)]
    assert not shown, "what nobody measured is a dash, or in words"
    assert not [note for note in summary.get("notes", ()) if "no number" in note or "twice" in note]
    result = _written(session, tmp_path / name, name, summary)
    for figure in resolved.experiment.load_figures():
        with suppress(ResultError):  # There is nothing to show.
            result.figure(figure.name)


def _texts(summary: dict[str, Any]) -> Iterator[str]:
    yield str(summary.get("answer"))
    for table in summary["tables"]:
        yield from (cell for row in table["rows"] for cell in row if isinstance(cell, str))


def _written(session: UnplayedSession, directory: Path, name: str, summary: dict[str, Any]) -> RunResult:
    writer = ResultWriter(directory, own_tables(EXPERIMENTS[name].load_tables()))
    write_samples(session, writer)
    writer.write_json("fabric.json", fabric_as_json(session.live.fabric))
    writer.write_json("summary.json", summary)
    manifest = {
        "format_version": FORMAT_VERSION,
        **EXPERIMENTS[name].in_manifest,
        "engine": "virtual",
        "seed": 1,
        "scale": session.live.fabric.scale,
        "verdict": {"status": "faithful", "reasons": [], "checks": []},
        "phases": [vars(outcome.phase) for outcome in session.phases],
    }
    writer.write_json("manifest.json", manifest)
    return RunResult(directory)
