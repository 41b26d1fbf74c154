"""Which two nodes measure bandwidth with each other, and which of them a slow pair is due to. Pure.

A pair alone does not say whose NIC is slow. So nodes stand in a ring, and each is measured with both of its neighbours:
one fast pair shows that a node is sound, whoever its other neighbour is. Who has none is suspected, and measured again
with a sound node while nobody else sends: other tests, or jobs that share an uplink, may have been in the way. Noise
only ever makes a test slower, so a slow one is repeated, and most of them count; and two sound nodes are measured just
after it, by which a slow machine, or a slow fabric, is told from a slow NIC.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

LEAST_RING = 3
"""Nodes of a ring in which each has two neighbours."""
MOST_PARTNERS = 4
"""With so many nodes a suspect is measured while none of them is known to be sound."""


class Pair(NamedTuple):
    """Two nodes that measure with each other; ``one`` sends first."""

    one: str
    other: str

    def has(self, node: str) -> bool:
        """Return whether a node is one of them."""
        return node in self

    def partner(self, node: str) -> str:
        """Return the other one."""
        return self.other if node == self.one else self.one


def ring(subjects: Sequence[str], helpers: Sequence[str], leaf_of: Callable[[str], int]) -> list[str]:
    """Return who stands in the ring, in order: the nodes that are tested, leaf by leaf, so that few pairs use uplinks;
    and of the helpers, which are idle, as many as it takes for three, those of the subjects' leaves first."""
    leaves = {leaf_of(node) for node in subjects}
    missing = max(0, LEAST_RING - len(subjects))
    more = sorted(helpers, key=lambda node: leaf_of(node) not in leaves)[:missing]
    return sorted([*subjects, *more], key=leaf_of)


def rounds(standing: Sequence[str]) -> list[list[Pair]]:
    """Return the pairs of neighbours in a ring, in rounds in which no node is twice."""
    count = len(standing)
    if count < 2:
        return []
    edges = [Pair(standing[place], standing[(place + 1) % count]) for place in range(count if count > 2 else 1)]
    if count % 2 == 0 or count == 1:
        return [found for found in (edges[0::2], edges[1::2]) if found]
    return [edges[0:-1:2], edges[1:-1:2], edges[-1:]]


@dataclass
class Suspicion:
    """What pairs measured so far, as fractions of the rate: ``limit`` is the least that is fast. A pair that could not
    be measured has 0."""

    limit: float
    measured: dict[Pair, float] = field(default_factory=dict)
    alone: set[Pair] = field(default_factory=set)
    """Those that were measured while nobody else sent, as often as it took."""
    excused: dict[str, str] = field(default_factory=dict)
    """Nodes that were slow while sound ones were, too, and what these measured, in words."""

    def fast(self) -> set[str]:
        """Return the nodes with a fast pair: they are sound."""
        return {node for pair, fraction in self.measured.items() if fraction >= self.limit for node in pair}

    def suspects(self, subjects: Collection[str]) -> list[str]:
        """Return the nodes that have been measured, and never fast."""
        seen = {node for pair in self.measured for node in pair}
        return [node for node in subjects if node in seen and node not in self.fast()]

    def best(self, node: str) -> float | None:
        """Return the best that a node's pairs measured; None if none has."""
        return max((fraction for pair, fraction in self.measured.items() if pair.has(node)), default=None)

    def partners(self, node: str) -> list[str]:
        """Return the nodes that one was measured with."""
        return [pair.partner(node) for pair in self.measured if pair.has(node)]

    def control(self, pair: Pair) -> Pair | None:
        """Return two sound nodes to measure just after a pair of a suspect and a sound one was slow: were they slow,
        too, it would not be the suspect's NIC. None if no node is known to be sound."""
        limit = self.limit
        fast = [one for one, fraction in self.measured.items() if fraction >= limit]
        return next((one for one in fast if one.has(pair.one) or one.has(pair.other)), None)

    def confirmation(
        self, subjects: Sequence[str], helpers: Sequence[str], leaf_of: Callable[[str], int]
    ) -> Pair | None:
        """Return the pair to measure next, alone, for a suspect that no sound node has been measured with alone; None
        if there is nothing left to be found.

        Its partner is sound, of the same leaf if it can be, and another than before if there is one. While nobody is
        known to be sound, it is a helper, or another suspect, with which it was not measured yet.
        """
        fast, suspects = self.fast(), self.suspects(subjects)
        if suspects and not fast:
            suspects = self.suspects([*subjects, *helpers])  # Two helpers may be the sound ones.
        for suspect in suspects:
            if any(pair.has(suspect) and pair.partner(suspect) in fast for pair in self.alone):
                continue
            before = self.partners(suspect)
            choice = sorted(fast.difference(before))
            if not fast and len(before) < MOST_PARTNERS:
                others = [node for node in (*helpers, *suspects) if node not in before and node != suspect]
                choice = others[:1]
            if choice:
                mine = leaf_of(suspect)
                return Pair(suspect, min(choice, key=lambda node: (leaf_of(node) != mine, node)))
        return None


class Blame(NamedTuple):
    """Whether a node is slow: None if that cannot be told; why, in words; and whether it is rather something else that
    was slow."""

    is_slow: bool | None
    why: str
    is_excused: bool = False


def blame(node: str, suspicion: Suspicion, texts: Mapping[Pair, str]) -> Blame:
    """Return whether a node's NIC is slow once all was measured. ``texts``: what a pair measured, in words."""
    if node in suspicion.fast():
        return Blame(False, "")
    partners = suspicion.partners(node)
    if not partners:
        return Blame(None, "there was no other node to measure with")
    told = ", ".join(f"{texts[pair]} with {pair.partner(node)}" for pair in suspicion.measured if pair.has(node))
    if node in suspicion.excused:
        return Blame(None, f"{told}; just then {suspicion.excused[node]}: all was slow, not this node alone", True)
    sound = [partner for partner in partners if partner in suspicion.fast()]
    if sound:
        return Blame(True, told)
    if len({node for pair in suspicion.measured for node in pair}) >= LEAST_RING:
        return Blame(None, f"{told}; so were all others: the fabric or the machine is slow, not this node alone", True)
    return Blame(None, f"{told}; which of them is slow is unknown: no sound node was measured with it")
