"""The schedule of pairs: every two NICs once, in rounds in which no two pairs share a link."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import combinations

from fabric.model.network import Fabric, Port
from fabric.model.patterns import NicPair

Path = tuple[Port, ...]


@dataclass
class PairsAtOnce:
    """Pairs that send at once, each with its planned path; ``cost`` is what they cost the machine together."""

    pairs: list[tuple[NicPair, Path]] = field(default_factory=list)
    ports: set[Port] = field(default_factory=set)
    cost: float = 0.0

    def add(self, pair: NicPair, path: Path, cost: float) -> None:
        """Add a pair."""
        self.pairs.append((pair, path))
        self.ports.update(path)
        self.cost += cost


def nic_pairs(fabric: Fabric) -> list[NicPair]:
    """Return every two NICs of different hosts that may reach each other, once; every NIC sends in about half of its
    pairs."""
    pairs = []
    for (one, nic), (two, other) in combinations(enumerate(fabric.nics), 2):
        if fabric.reaches(nic, other):
            pairs.append((nic, other) if (one + two) % 2 else (other, nic))
    return pairs


def sample(pairs: Sequence[NicPair], most: int, seed: int) -> list[NicPair]:
    """Return all pairs, or ``most`` of them drawn by the seed, in their order."""
    if len(pairs) <= most:
        return list(pairs)
    chosen = random.Random(seed).sample(range(len(pairs)), most)
    return [pairs[place] for place in sorted(chosen)]


def rounds(
    pairs: Sequence[NicPair], path_of: Callable[[NicPair], Path], cost_of: Callable[[Path], float], budget: float
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
