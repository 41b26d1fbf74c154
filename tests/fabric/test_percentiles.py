"""Percentiles against numbers worked out by hand."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from app.whose_packages import PACKAGES
from fabric.percentiles import Percentile, nearest_ranks, percentiles


def test_percentiles_are_values_that_were_observed() -> None:
    assert nearest_ranks(np.arange(1, 1001) / 1000, 50, 99, 99.9, 100) == [0.5, 0.99, 0.999, 1.0]
    assert nearest_ranks([0.3, 0.1, 0.2], 50, 99, 99.9) == [0.2, 0.3, 0.3], "of few, the largest of them"
    assert nearest_ranks([4, 1, 3, 2], 50, 0) == [2, 1], "nothing is interpolated"


def test_of_nothing_there_are_none() -> None:
    with pytest.raises(ValueError, match="no values have no percentiles"):
        nearest_ranks([], 50)
    with pytest.raises(ValueError, match="no operations have no percentiles"):
        percentiles([], [], [], [50])


def test_what_the_end_of_its_load_cut_off_counts_as_one_that_took_longer() -> None:
    """By hand: the one cut off at 2.5 s has a fourth, half of which goes to each of the two that took longer."""
    assert percentiles([1, 2, 3, 4], [2.5], [], [20, 40, 70, 70.1]) == [Percentile(value_s) for value_s in (1, 2, 3, 4)]
    assert percentiles([1, 2], [2.5], [], [66.6, 66.7]) == [
        Percentile(2.0),
        Percentile(2.5, is_known=False),
    ]
    assert percentiles([], [3.0], [], [50]) == [Percentile(3.0, is_known=False)]
    assert percentiles([], [], [0.0], [50]) == [Percentile(0.0, is_known=False)]


def test_an_end_of_the_load_moves_no_percentile() -> None:
    """Times of mean 1 s, each cut off at a random moment: of those alone that completed, the median is 0.46 s."""
    random = np.random.default_rng(1)
    times_s, seen_s = random.exponential(size=100_000), random.uniform(0, 3, size=100_000)
    is_cut = times_s > seen_s
    p50, p90 = percentiles(times_s[~is_cut], seen_s[is_cut], [], [50, 90])
    assert (p50.value_s, p90.value_s) == pytest.approx((np.log(2), np.log(10)), rel=0.02)
    assert nearest_ranks(times_s[~is_cut], 50)[0] < 0.6


@pytest.mark.parametrize("count", [1, 2, 3, 10, 99, 100, 999, 1000, 1001, 12_345])
def test_percentiles_of_what_all_completed_are_of_the_nearest_rank(count: int) -> None:
    times_s = np.random.default_rng(count).exponential(size=count)
    found = percentiles(times_s, [], [], [50, 99, 99.9])
    assert found == [Percentile(value_s) for value_s in nearest_ranks(times_s, 50, 99, 99.9)]


ROOT = Path(__file__).parents[2]
SECOND_DEFINITIONS = {
    *("quantile", "quantiles", "percentile", "nanquantile", "nanpercentile", "scoreatpercentile", "mquantiles")
}
EXCEPTIONS = {
    "fabric/measure/machine_checks.py": "the verdict is strict: of ten seconds the busiest, where the nearest rank is "
    "the next",
    "experiments/link_flap/summary.py": "medians over cuts, which are repeats; the names of metrics are older",
    "experiments/goodput_year/summary.py": "the ends of a bootstrap interval, of draws, not of what was observed",
}


def calls_in(tree: ast.AST) -> Iterator[str]:
    """Yield the name of each function and method that is called; not of those that the module has itself."""
    own = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            yield node.func.attr
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id not in own:
            yield node.func.id


def named_p50(tree: ast.AST) -> Iterator[str]:
    """Yield the keys of dicts that are named as percentiles, and have a median as value."""
    for node in ast.walk(tree):
        for key, value in zip(node.keys, node.values, strict=True) if isinstance(node, ast.Dict) else ():
            words = ast.unparse(key) if key is not None else ""
            if "p50" in words and "median" in set(calls_in(value)):
                yield words


def test_nobody_else_defines_a_percentile() -> None:
    found = {}
    for path in (path for package in PACKAGES for path in (ROOT / package).rglob("*.py")):
        text = path.read_text()
        if not any(word in text for word in (*SECOND_DEFINITIONS, "p50")):
            continue  # Nothing that is looked for is without one of these words; to parse all takes seconds.
        tree = ast.parse(text)
        if faults := [*SECOND_DEFINITIONS.intersection(calls_in(tree)), *named_p50(tree)]:
            found[str(path.relative_to(ROOT))] = faults
    assert set(found) == set(EXCEPTIONS), f"use fabric.percentiles: {found}"
