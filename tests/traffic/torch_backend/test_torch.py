"""Backend ``fabric`` as PyTorch's programs have it, where the libraries of docs/libraries.md have PyTorch."""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from experiments.libraries.catalogue import library_named
from experiments.libraries.installing import install
from fabric.errors import EmulationError

ROOT = Path(__file__).parents[3]
PYTORCH = library_named("gloo")


def play(case: str, ranks: int, has_to: bool = False) -> str:
    """Play a case of ``ranks.py`` with our Python and the library's PyTorch; return what it prints."""
    home = PYTORCH.home()
    if home is None and has_to:
        try:
            home = install(PYTORCH)
        except EmulationError as error:
            pytest.skip(f"PyTorch cannot be installed here: {error}")
    if home is None:
        pytest.skip("PyTorch is not there: python -m experiments.libraries.installing gloo")
    packages = next(home.glob("lib/python3*/site-packages"))
    if packages.parent.name != f"python{sys.version_info.major}.{sys.version_info.minor}":
        pytest.skip(f"PyTorch there is {packages.parent.name}'s, and this is {sys.version}")
    command = [sys.executable, "-W", "ignore", str(Path(__file__).with_name("ranks.py")), case, str(ranks)]
    surroundings = os.environ | {"PYTHONPATH": f"{ROOT}:{packages}"}
    done = subprocess.run(command, env=surroundings, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("case", ["operations", "errors"])
def test_operations_and_errors_are_as_users_know_them(case: str) -> None:
    play(case, 4 if case == "operations" else 2)


def test_losses_of_two_ranks_are_gloos_to_the_last_bit() -> None:
    assert play("training", 2).count("4 of 4 equal") == 4


@pytest.mark.soak
@pytest.mark.parametrize("ranks", [4, 8])
def test_losses_of_more_ranks_differ_by_the_order_of_sums_only(ranks: int) -> None:
    print(play("training", ranks, has_to=True))


def test_the_entry_point_is_there_and_needs_no_pytorch_to_load() -> None:
    project = (ROOT / "pyproject.toml").read_text()
    found = re.search(
        r'^\[project\.entry-points\."torch\.backends"\]\nfabric = "([\w.]+):(\w+)"$', project, re.MULTILINE
    )
    assert found is not None
    assert callable(getattr(importlib.import_module(found[1]), found[2]))
    assert "torch" not in sys.modules
    assert '"torch' not in project.partition("[project.optional-dependencies]")[0].partition("dependencies = [")[2]
