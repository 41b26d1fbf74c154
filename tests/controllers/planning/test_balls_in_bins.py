"""The fullest of bins, against counting every throw."""

from __future__ import annotations

from collections import Counter
from itertools import product

import pytest

from controllers.planning.balls_in_bins import at_most, fullest


@pytest.mark.parametrize(("balls", "bins"), [(1, 1), (3, 2), (4, 3), (5, 4), (6, 3)])
def test_the_fullest_bin_is_as_if_every_throw_were_counted(balls: int, bins: int) -> None:
    counted = Counter(max(Counter(throw).values()) for throw in product(range(bins), repeat=balls))
    found = dict(fullest(balls, bins))
    assert {most: share for most, share in found.items() if share} == pytest.approx(
        {most: count / bins**balls for most, count in counted.items()}
    )
    assert at_most(balls, balls, bins) == 1


def test_the_fullest_of_two_throws_is_no_emptier_than_that_of_one() -> None:
    one, two = (sum(most * share for most, share in fullest(16, 8, throws)) for throws in (1, 2))
    assert 16 / 8 < one < two < 16
    assert sum(share for _, share in fullest(16, 8, 2)) == pytest.approx(1)
