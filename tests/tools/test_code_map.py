"""The map of the code has every module, with words."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROGRAM = ROOT / "tools" / "code_map.py"
spec = importlib.util.spec_from_file_location("code_map", PROGRAM)
assert spec is not None
assert spec.loader is not None
code_map = importlib.util.module_from_spec(spec)
spec.loader.exec_module(code_map)


@pytest.mark.parametrize("package", code_map.PACKAGES)
def test_every_folder_and_module_is_in_it_with_words(package: str) -> None:
    lines = list(code_map.lines_of(ROOT / package))
    folders = [line.split("/  ") for line in lines if line and not line.startswith(" ")]
    assert all(len(parts) == 2 and parts[1] for parts in folders), "a folder's __init__.py says what it is for"
    modules = [line.split(maxsplit=1) for line in lines if line.startswith("  ") and line[2] != " "]
    assert all(len(parts) == 2 for parts in modules), "a module's docstring says what it is"
    paths = [path for path in (ROOT / package).rglob("*.py") if path.name != "__init__.py"]
    assert sorted(parts[0] for parts in modules) == sorted(path.stem for path in paths)


def test_a_folder_that_is_none_is_told() -> None:
    done = subprocess.run([sys.executable, str(PROGRAM), "fabrik"], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("fabrik: is not a folder of ")
