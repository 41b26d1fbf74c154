"""The schedule of pairs: every two NICs once, in rounds in which no two pairs share a link."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import combinations

from fabric.model.network import Fabric, Nic, Port

Pair = tuple[Nic, Nic]
"""Who sends, and to whom."""
Path = tuple[Port, ...]


@dataclass
class PairsAtOnce:
    """Pairs that send at once, each with its planned path; ``cost`` is what they cost the machine together."""

    pairs: list[tuple[Pair, Path]] = field(default_factory=list)
    ports: set[Port] = field(default_factory=set)
    cost: float = 0.0

    def add(self, pair: Pair, path: Path, cost: float) -> None:
        """Add a pair."""
        self.pairs.append((pair, path))
        self.ports.update(path)
        self.cost += cost


def nic_pairs(fabric: Fabric) -> list[Pair]:
    """Return every two NICs of different hosts that may reach each other, once; every NIC sends in about half of its
    pairs."""
    pairs = []
    for (one, nic), (two, other) in combinations(enumerate(fabric.nics), 2):
        if fabric.reaches(nic, other):
            pairs.append((nic, other) if (one + two) % 2 else (other, nic))
    return pairs


def sample(pairs: Sequence[Pair], most: int, seed: int) -> list[Pair]:
    """Return all pairs, or ``most`` of them drawn by the seed, in their order."""
    if len(pairs) <= most:
        return list(pairs)
    chosen = random.Random(seed).sample(range(len(pairs)), most)
    return [pairs[place] for place in sorted(chosen)]


def rounds(
    pairs: Sequence[Pair], path_of: Callable[[Pair], Path], cost_of: Callable[[Path], float], budget: float
) -> list[PairsAtOnce]:
    """Return all pairs in rounds: within one, no two paths share a direction of a link, and costs stay in the budget.

    Each pair goes into the first round that has room; those with long paths first, which fit in the fewest. A pair that
    alone exceeds the budget has a round of its own.
    """
    made: list[PairsAtOnce] = []
    for pair, path in sorted(((pair, path_of(pair)) for pair in pairs), key=lambda one: -len(one[1])):
        cost = cost_of(path)
        room = (one for one in made if one.ports.isdisjoint(path) and one.cost + cost <= budget)
        chosen = next(room, None)
        if chosen is None:
            made.append(chosen := PairsAtOnce())
        chosen.add(pair, path, cost)
    return made


def all_to_all_in(fabric: Fabric, nics: Sequence[Nic], most: int) -> tuple[list[Pair], int]:
    """Return :func:`all_to_all` of the NICs of each network, without pairs that do not reach each other."""
    networks: dict[int, list[Nic]] = {}
    for nic in nics:
        networks.setdefault(fabric.network_of(nic), []).append(nic)
    made = [all_to_all(members, most * len(members) // len(nics)) for members in networks.values()]
    pairs = [pair for flows, _ in made for pair in flows if fabric.reaches(*pair)]
    return pairs, max(each for _, each in made)


def all_to_all(nics: Sequence[Nic], most: int) -> tuple[list[Pair], int]:
    """Return flows from every NIC to others, as many to each, and to how many others: all, or what ``most`` allows.

    Where not all, the others are spread evenly over the sequence: every NIC sends and receives equally often.
    """
    others = len(nics) - 1
    each = min(others, max(1, most // max(1, len(nics))))
    shifts = [1 + place * others // each for place in range(each)]
    return [(nic, nics[(at + shift) % len(nics)]) for shift in shifts for at, nic in enumerate(nics)], each
