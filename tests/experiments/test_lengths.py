"""A grid experiment says its question in few lines: its cases, what it measures, its tables, figures and answer."""

from __future__ import annotations

from pathlib import Path

import pytest

from runs.registry import EXPERIMENTS

MOST = 120
"""Lines of an experiment's package, without its config."""
LONGER: dict[str, tuple[int, str]] = {}
STUDIES = {name: one.folder for name, one in EXPERIMENTS.items() if one.study is not None}


def lines_of(folder: Path) -> int:
    """Return how many lines a package has that say what it asks: all but its config, and the docstring of all of it."""
    files = [path for path in folder.rglob("*.py") if path.name not in ("config.py", "__init__.py")]
    return sum(len(path.read_text().splitlines()) for path in files)


@pytest.mark.parametrize("name", sorted(STUDIES))
def test_a_grid_experiment_is_short_or_says_why_it_is_not(name: str) -> None:
    most, why = LONGER.get(name, (MOST, ""))
    assert lines_of(STUDIES[name]) <= most, f"{name}: {why or 'name what makes it longer, or let others have it'}"


def test_those_that_say_why_they_are_longer_are() -> None:
    assert {name for name in LONGER if lines_of(STUDIES[name]) <= MOST} == set()
    assert LONGER.keys() <= STUDIES.keys()


def test_lines_of_config_are_not_counted(tmp_path: Path) -> None:
    for name, text in (("config.py", "a\nb\n"), ("study.py", "a\nb\nc\n"), ("__init__.py", "a\n")):
        (tmp_path / name).write_text(text)
    assert lines_of(tmp_path) == 3
