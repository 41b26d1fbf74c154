"""A grid experiment says its question in few lines: its cases, what it measures, its tables, figures and answer."""

from __future__ import annotations

from pathlib import Path

import pytest

from runs.registry import EXPERIMENTS

MOST = 120
"""Lines of an experiment's package, without its config."""
LONGER = {
    "checkpoints": (
        516,
        "training, whose step it makes, plays beside checkpoints and stands still for them by decision",
    ),
    "collectives": (
        480,
        "a case is any collective by any algorithm, with its closed form, and a table of each as nccl-tests has it",
    ),
    "dcqcn_frontier": (709, "it judges the paper's claim point by point, and says in words what would make it fail"),
    "expert_parallel": (
        331,
        "it makes DeepSeek's step of tokens that a rule routes, and sets it beside what was published",
    ),
    "hfreduce_vs_nccl": (717, "the series of the paper's Figure 7 with the limits of a node that bind each"),
    "incast": (186, "which limit keeps throughput is found over cases, in two tables and four panels"),
    "isolation": (406, "four programs alone and in all mixes, a port watched meanwhile, six tables and three figures"),
    "kv_cache": (583, "five studies of one cache, each with phases and a table of its own, and two figures of rows"),
    "protection": (284, "two axes that do not make a grid, and figures of results from before it was a study"),
    "routing_incast": (541, "bystanders are chosen by the ports that their planned paths share with the incast"),
    "storage_throughput": (236, "reads alone, other jobs alone, and both, with what these keep"),
    "training_scaling": (602, "steps are put together on paper of pieces that are played, fitted on the smallest run"),
}
"""Those that need more, how many at most, and what for."""
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
