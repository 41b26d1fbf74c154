"""Workers share the work of rewriting test files, and pytest takes what they have left."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.rewriting import rewrite_own_part


def test_each_file_is_rewritten_by_one_worker_and_pytest_runs_what_it_finds(
    tmp_path: Path, pytestconfig: pytest.Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "b", "c"):
        (tmp_path / f"test_{name}.py").write_text("def test_it() -> None:\n    assert 1 + 1 == 3\n")
    (tmp_path / "helper.py").write_text("")
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    monkeypatch.setattr(pytestconfig, "args", [str(tmp_path)])
    left: list[set[Path]] = []
    for worker in ("gw0", "gw1"):
        one: Any = {"workerid": worker, "workercount": 2}
        monkeypatch.setattr(pytestconfig, "workerinput", one, raising=False)
        rewrite_own_part(pytestconfig)
        left.append(set(tmp_path.rglob("*.pyc")))
    assert {path.name.partition(".")[0] for path in left[0]} == {"test_a", "test_c"}
    assert {path.name.partition(".")[0] for path in left[1] - left[0]} == {"test_b"}
    written = {path: path.stat().st_mtime_ns for path in left[1]}
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "no:xdist", "-q", str(tmp_path)]
    ours = os.environ | {"PYTHONDONTWRITEBYTECODE": ""}
    done = subprocess.run(command, cwd=tmp_path, env=ours, capture_output=True, text=True, timeout=240)
    assert done.stdout.count("assert (1 + 1) == 3") >= 3, done.stdout + done.stderr
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*-pytest-*.pyc")} == written
