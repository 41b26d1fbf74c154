"""Results of known numbers, written and read."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from fabric.report.page import write_report
from fabric.results import Result
from fabric.world.cache import locked
from tests.synthetic_result import Recipe, write_result

_DRAWN_S = 120.0
"""Long for what takes ten seconds."""


@pytest.fixture
def make_result(tmp_path: Path) -> Callable[..., Result]:
    """Return a function that writes a result, with the fields of ``Recipe`` as options, and reads it."""
    count = iter(range(100))
    return lambda **options: Result(write_result(tmp_path / f"run{next(count)}", Recipe(**options)))


@pytest.fixture(scope="session")
def drawn_result(tmp_path_factory: pytest.TempPathFactory) -> Result:
    """The usual result with its figures and report, to be read only: drawn once, for all workers of a session."""
    own = tmp_path_factory.getbasetemp()
    place = own.parent if "PYTEST_XDIST_WORKER" in os.environ else own
    directory, complete = place / "drawn" / "run", place / "drawn-complete"
    with locked(place / "drawn-lock", "drawing the usual result", _DRAWN_S):
        if not complete.exists():
            write_report(Result(write_result(directory, Recipe())))
            complete.touch()
    return Result(directory)


@pytest.fixture
def make_directory(tmp_path: Path) -> Callable[..., Path]:
    """Return a function that writes a result and returns its directory, unread."""
    return lambda **options: write_result(tmp_path / "run", Recipe(**options))
