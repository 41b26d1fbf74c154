"""Balls that are thrown into bins, each into any alike: how many the fullest has. Pure.

ECMP throws flows over links so. The probability that no bin has more than m of n balls is n! / b^n times the
coefficient of x^n in the b-th power of the sum of x^i / i! for i up to m.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import comb

from fabric.model.identity import Role
from fabric.model.network import Fabric


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


def used_of_uplinks(fabric: Fabric, flows_per_nic: int) -> float:
    """Return the mean fraction of their rate that NICs get if all send to other leaves and each flow picks an uplink at
    random: a NIC's flows over those of the fullest uplink, at most 1."""
    leaves = [leaf for leaf in fabric.with_role(Role.LEAF) if fabric.uplinks_of(leaf)]
    bins, hosts = len(fabric.uplinks_of(leaves[0])), len(fabric.nics_on_leaf(leaves[0]))
    return sum(
        share * min(1.0, flows_per_nic / most) for most, share in fullest(flows_per_nic * hosts, bins, len(leaves))
    )
