"""The notebooks in ``docs/notebooks``: a kernel runs their cells in order. In place of runs, results of known numbers
are written, so that this costs no guest; the settings that notebooks name are checked as those of any run."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.virtual.command import ROOT

NOTEBOOKS = sorted((ROOT / "docs/notebooks").glob("*.ipynb"))
KERNEL_TIMEOUT_S = 300
STAND_IN = """
import tests.docs.stand_in_runs
tests.docs.stand_in_runs.play_nothing()
"""


def code_cells(path: Path) -> list[str]:
    cells = json.loads(path.read_text())["cells"]
    return ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]


def run_by_a_kernel(path: Path, here: Path, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Return the code cells with what they showed. An error of one is raised."""
    why = "needs a notebook's kernel: .venv/bin/pip install -c constraints.txt -e '.[notebooks]'"
    nbclient = pytest.importorskip("nbclient", reason=why)
    pytest.importorskip("ipykernel", reason=why)
    nbformat = pytest.importorskip("nbformat", reason=why)
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent), prepend=os.pathsep)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("FABRIC_ENGINE", "virtual")
    monkeypatch.setenv("IPYTHONDIR", str(here / "ipython"))
    notebook = nbformat.read(path, as_version=4)
    notebook.cells.insert(0, nbformat.v4.new_code_cell(STAND_IN))
    resources = {"metadata": {"path": str(here)}}
    nbclient.NotebookClient(notebook, timeout=KERNEL_TIMEOUT_S, kernel_name="python3", resources=resources).execute()
    return [cell for cell in notebook.cells[1:] if cell.cell_type == "code"]


def shown(cells: list[Any], kind: str) -> list[str]:
    """Return what cells showed as ``text/plain``, ``image/png`` or ``text/html``."""
    return [one.data[kind] for cell in cells for one in cell.outputs if kind in one.get("data", {})]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=[path.stem for path in NOTEBOOKS])
def test_cells_run_in_their_order(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cells = run_by_a_kernel(path, tmp_path, monkeypatch)
    assert any(text.startswith("iVBOR") for text in shown(cells, "image/png")), "a figure shows itself"
    assert any("faithful" in text for text in shown(cells, "text/html")), "a result shows its verdict"
    said = [*shown(cells, "text/plain"), *(one.text for cell in cells for one in cell.outputs if "text" in one)]
    assert any("'steps'" in text and "kv_requests" not in text for text in said), "tables that it has"


def test_each_has_some_ten_cells() -> None:
    assert NOTEBOOKS
    assert {path.stem: count for path in NOTEBOOKS if (count := len(json.loads(path.read_text())["cells"])) > 12} == {}
