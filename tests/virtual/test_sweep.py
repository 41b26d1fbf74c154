"""A sweep of one run from its file to its tables: a replay with a trigger, beside theory."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from app.cli import main
from experiments import load

pytestmark = pytest.mark.guest

SWEEP = """
experiment: replay
settings:
  topology: head_of_line
  sample_period: 1 ms
  matrix: |
    Nodes 6
    Connections 3
    Triggers 1
    0->2 id 1 start 0 size 1000000 recv_done_trigger 1
    1->2 id 2 start 0 size 1000000 recv_done_trigger 1
    2->0 id 3 trigger 1 size 500000
    trigger id 1 barrier count 2
grid:
  source: [pair.cm]
memory: 2 GiB
figures:
  - {y: replay.worst_ratio, x: source}
"""


def test_a_swept_replay_is_as_theory_says_and_is_not_run_twice(tmp_path: Path) -> None:
    file, out = tmp_path / "pair.yaml", tmp_path / "out"
    file.write_text(SWEEP)
    assert main(["sweep", str(file), "--out", str(out)]) == 0
    runs = pd.read_csv(out / "runs.csv")
    assert list(runs["verdict"]) == ["faithful"]
    assert 0.95 < runs["replay.median_ratio"].item() < 1.05, runs.T.to_string()
    assert runs["replay.worst_ratio"].item() < 1.05
    assert (out / "figures" / "figure_1.png").exists()
    rows = load(out / "runs" / runs["run"].item()).table("replayed")
    first, second, answer = rows.to_dict("records")
    assert answer["started_s"] >= max(first["ended_s"], second["ended_s"])
    assert answer["started_s"] - max(first["ended_s"], second["ended_s"]) < 1e-4
    written = (out / "runs" / runs["run"].item() / "manifest.json").stat().st_mtime_ns
    assert main(["sweep", str(file), "--out", str(out)]) == 0
    assert (out / "runs" / runs["run"].item() / "manifest.json").stat().st_mtime_ns == written
