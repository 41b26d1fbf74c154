"""Medians with intervals."""

from __future__ import annotations

import numpy as np
import pytest

from fabric.estimates import Estimate, estimate, estimate_columns, is_median_known


def test_one_value_has_no_interval() -> None:
    assert estimate([4.0]) == Estimate(4.0, None, None, 1)


def test_values_that_agree_have_an_interval_without_width() -> None:
    assert estimate([2.0] * 5) == Estimate(2.0, 2.0, 2.0, 5)


def test_an_interval_is_around_the_median_and_within_the_values() -> None:
    found = estimate([1, 2, 3, 4, 100, 5, 6])
    assert found.low is not None
    assert found.high is not None
    assert found.median == 4
    assert 1 <= found.low < 4 < found.high <= 100


def test_the_same_values_give_the_same_interval() -> None:
    values = list(np.random.default_rng(3).normal(size=11))
    assert estimate(values) == estimate(values)


def test_columns_are_estimated_as_if_alone() -> None:
    table = np.random.default_rng(5).normal(size=(9, 4))
    assert estimate_columns(table) == [estimate(list(table[:, column])) for column in range(4)]


def test_no_values_have_no_median() -> None:
    with pytest.raises(ValueError, match="no values"):
        estimate([])


def test_95_of_100_intervals_hold_the_true_median() -> None:
    random = np.random.default_rng(7)
    table = random.exponential(size=(25, 400))
    held = np.mean([one.low <= np.log(2) <= one.high for one in estimate_columns(table)])
    assert 0.91 <= held <= 0.99, f"{held:.3f} of the intervals hold it"


@pytest.mark.parametrize(
    ("values", "unknown", "is_known"),
    [
        ([1, 2, 3, 4, 5], [], True),
        ([1, 2, 3, 4, 5], [4, 5], True),  # However large they are, three is in the middle.
        ([1, 2, 3, 4, 5], [3], False),
        ([1, 2, 3, 4, 5], [1], False),  # It may be more than three.
        ([1, 2, 3, 4], [4], True),
        ([1, 2, 3, 4], [3], False),
        ([1], [1], False),
    ],
)
def test_a_median_is_known_if_what_is_unknown_of_values_cannot_change_it(
    values: list[float], unknown: list[float], is_known: bool
) -> None:
    assert is_median_known(values, [value not in unknown for value in values]) is is_known
