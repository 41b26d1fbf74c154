"""A grid experiment says its question in few lines: its cases, what it measures, its tables, figures and answer. One
that asks several questions of its cases (:class:`runs.study.Question`) says each in a module of its own, of as few."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest

from runs.registry import EXPERIMENTS

MOST = 120
"""Lines of an experiment's package, without its config."""
STUDIES = {name: one.folder for name, one in EXPERIMENTS.items() if one.study is not None}


def lines_of(folder: Path, is_of_modules: bool = False) -> int:
    """Return how many lines a package has that say what it asks: all but its config, and the docstring of all of it;
    with several questions, those of the longest module."""
    files = [path for path in folder.rglob("*.py") if path.name not in ("config.py", "__init__.py")]
    counts = [len(path.read_text().splitlines()) for path in files]
    return max(counts) if is_of_modules else sum(counts)


def length_of(name: str) -> int:
    """Return how long an experiment is, or the longest of its questions, if it has further ones."""
    study = import_module(f"experiments.{name}.study").STUDY
    return lines_of(STUDIES[name], is_of_modules=bool(study.further))


@pytest.mark.parametrize("name", sorted(STUDIES))
def test_a_grid_experiment_is_short(name: str) -> None:
    assert length_of(name) <= MOST, f"{name}: let it ask several questions, or let others have what is not one"


def test_lines_of_config_are_not_counted(tmp_path: Path) -> None:
    for name, text in (("config.py", "a\nb\n"), ("study.py", "a\nb\nc\n"), ("__init__.py", "a\n")):
        (tmp_path / name).write_text(text)
    assert lines_of(tmp_path) == 3
    (tmp_path / "further.py").write_text("a\nb\nc\nd\n")
    assert (lines_of(tmp_path), lines_of(tmp_path, is_of_modules=True)) == (7, 4)
