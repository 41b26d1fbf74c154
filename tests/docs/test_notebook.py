"""The notebook in ``docs/notebooks``: its cells run in their order, and draw what the runs of its sweep say."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import pytest

from app.sweeps.config import read_sweep
from app.sweeps.planning import plan_sweep
from app.sweeps.store import Store
from tests.app.sweeps.plain_runs import InTurn, measured, swept

NOTEBOOK = Path(__file__).parents[2] / "docs/notebooks/sweep_to_figure.ipynb"


def code_cells() -> list[str]:
    cells = json.loads(NOTEBOOK.read_text())["cells"]
    return ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]


def test_the_notebook_goes_from_a_sweep_to_a_figure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its runs are there already: a sweep runs what is missing."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent), prepend=":")
    monkeypatch.setenv("MPLBACKEND", "agg")
    first, *others = code_cells()
    found: dict[str, Any] = {}
    exec(first, found)
    plan = plan_sweep("shares", read_sweep(Path("shares.yaml")))
    swept(plan, Path("results/shares"), InTurn())
    for cell in others:
        exec(cell, found)
    assert found["done"].returncode == 0
    assert Store(Path("results/shares")).missing(plan.runs) == []
    of_share = {0.1: 101.5e-6, 0.3: 301.5e-6, 0.5: 501.5e-6}  # MB/s; see plain_runs.measured.
    assert found["medians"].to_dict() == pytest.approx(of_share)
    assert sorted(found["believed"][found["METRIC"]]) == sorted(measured(run.spec) for run in plan.runs)
    assert found["result"].verdict["status"] == "faithful"
    assert found["result"].metric(found["METRIC"]) in set(found["runs"][found["METRIC"]])
    assert plt.imread("shares.png").std() > 0
    plt.close(found["figure"])
