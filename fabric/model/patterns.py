"""Traffic patterns over the NICs of a fabric: who sends to whom. Pure."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence

from fabric.errors import UsageError
from fabric.model.network import Fabric, Nic

NicPair = tuple[Nic, Nic]
"""Who sends, and to whom."""


def compute_nics(fabric: Fabric) -> list[Nic]:
    """Return the NICs of all compute nodes, in order of node and number."""
    return [nic for node in fabric.computes for nic in fabric.nics_of[node]]


def by_network(fabric: Fabric, nics: Sequence[Nic]) -> dict[int, list[Nic]]:
    """Return the NICs of each network, such as a plane: no others reach each other."""
    found: dict[int, list[Nic]] = {}
    for nic in nics:
        found.setdefault(fabric.network_of(nic), []).append(nic)
    return found


def all_to_all_in(fabric: Fabric, nics: Sequence[Nic], most: int) -> tuple[list[NicPair], int]:
    """Return :func:`all_to_all` of the NICs of each network, without pairs that do not reach each other."""
    made = [all_to_all(members, most * len(members) // len(nics)) for members in by_network(fabric, nics).values()]
    pairs = [pair for flows, _ in made for pair in flows if fabric.reaches(*pair)]
    return pairs, max(each for _, each in made)


def all_to_all(nics: Sequence[Nic], most: int) -> tuple[list[NicPair], int]:
    """Return flows from every NIC to others, as many to each, and to how many others: all, or what ``most`` allows.

    Where not all, the others are spread evenly over the sequence: every NIC sends and receives equally often.
    """
    others = len(nics) - 1
    each = min(others, max(1, most // max(1, len(nics))))
    pairs = [(nic, nics[(at + shift) % len(nics)]) for shift in shifts(others, each) for at, nic in enumerate(nics)]
    return pairs, each


def shifts(others: int, each: int) -> list[int]:
    """Return how far apart, in a sequence, a NIC and those it sends to are: ``each`` of ``others``, evenly spread."""
    return [1 + place * others // each for place in range(each)]


def permutation(fabric: Fabric, nics: Sequence[Nic], draw: random.Random) -> list[NicPair]:
    """Return a flow from every NIC to a random one of another host in its network; each receives one.

    Raises UsageError if a host has more than half of a network's NICs: there are not as many others.
    """
    pairs: list[NicPair] = []
    for members in by_network(fabric, nics).values():
        ((host, most),) = Counter(nic.node for nic in members).most_common(1)
        if 2 * most > len(members):
            raise UsageError(
                f"permutation: {host} has {most} of the {len(members)} NICs of its network; others need as many"
            )
        pairs += zip(members, _permuted(fabric, members, draw), strict=True)
    return pairs


def _permuted(fabric: Fabric, members: Sequence[Nic], draw: random.Random) -> list[Nic]:
    others = draw.sample(members, len(members))
    for place, nic in enumerate(members):
        while not fabric.reaches(nic, others[place]):
            swapped = draw.randrange(len(members))
            if fabric.reaches(nic, others[swapped]) and fabric.reaches(members[swapped], others[place]):
                others[place], others[swapped] = others[swapped], others[place]
    return others
