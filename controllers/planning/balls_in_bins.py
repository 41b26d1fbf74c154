"""Balls that are thrown into bins, each into any alike: how many the fullest has. Pure.

ECMP throws flows over links so. The probability that no bin has more than m of n balls is n! / b^n times the
coefficient of x^n in the b-th power of the sum of x^i / i! for i up to m.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import comb


def at_most(most: int, balls: int, bins: int) -> float:
    """Return the probability that no bin has more than so many balls."""
    ways = [1] + [0] * balls
    for _ in range(bins):  # In how many ways the balls so far are in the bins so far.
        ways = [
            sum(comb(count, own) * ways[count - own] for own in range(min(most, count) + 1))
            for count in range(balls + 1)
        ]
    return float(ways[balls] / bins**balls)


def fullest(balls: int, bins: int, throws: int = 1) -> Iterator[tuple[int, float]]:
    """Yield how many balls the fullest bin of all throws may have, each number with its probability."""
    before = 0.0
    for most in range(-(-balls // bins), balls + 1):
        reached = at_most(most, balls, bins) ** throws
        yield most, reached - before
        before = reached
        if 1 - before < 1e-12:
            return
