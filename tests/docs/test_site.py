"""The site builds from the documents as they are, without a warning."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
_NEEDED = ("sphinx", "myst_parser", "furo")


@pytest.mark.timeout(1500)
@pytest.mark.skipif(
    not all(map(importlib.util.find_spec, _NEEDED)),
    reason="builds the site; needs Sphinx, MyST and furo, which make test and make docs install",
)
def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    """It reads and resolves all pages of a copy, without what an earlier build has generated, and writes no HTML, which
    would take as long again: `make docs` does."""
    shutil.copytree(ROOT / "docs", tmp_path / "docs", ignore=shutil.ignore_patterns("generated", "__pycache__"))
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", "dummy", "docs", "site"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=1400, check=False)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    read = {path.stem for path in (tmp_path / "site" / ".doctrees").glob("*.doctree")}
    assert read >= {path.stem for path in (ROOT / "docs").glob("*.md")}
