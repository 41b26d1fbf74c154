"""Congestion trees of a lossless fabric: which lanes of which ports are stalled because of which full port.

A stalled lane waits for the input buffer at the other end of its link. The data in that buffer waits for lanes of that
switch's own ports; they may be stalled in turn, up to a port that is merely busy: the root. From there stalls spread
backwards, finally to hosts' NICs, the leaves: tree saturation (Pfister and Norton, "Hot
spot" contention and combining in multistage interconnection networks, 1985). A lane that waits for two roots is in both
trees.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cached_property

from fabric.model.lanes import PortLane as PortLane

Waits = Mapping[PortLane, Mapping[PortLane, int]]
"""For each lane that stands still, the lanes that hold what it waits for, with the bytes in each."""


class RootKind(str, Enum):
    """What is at the root of a tree."""

    BUSY = "busy"
    """A port that sends without standing still, and has less room than is wanted of it."""
    CYCLE = "cycle"
    """Lanes that waited for each other between two samples, perhaps one after the other: whether a cycle is a deadlock,
    only :func:`fabric.stalls.waits.deadlocks` says, from one moment."""
    UNSEEN = "unseen"
    """A lane that stood still, though nothing was in the buffer it waits for whenever somebody looked."""


@dataclass(frozen=True)
class CongestionTree:
    """A root with all that waits for it.

    ``depth_of`` has every lane's distance from the root in waits, 0 for the root and all of a cycle; ``waits`` the part
    of all waits that lies within the tree. A cycle's root is the first of its lanes by name.
    """

    root: PortLane
    kind: RootKind
    depth_of: Mapping[PortLane, int]
    waits: Waits

    @property
    def depth(self) -> int:
        """How many waits the farthest lane is away from the root."""
        return max(self.depth_of.values())

    @cached_property
    def ports(self) -> frozenset[str]:
        """The ports with a lane in it, that of the root included."""
        return frozenset(lane.port for lane in self.depth_of)

    @cached_property
    def root_ports(self) -> frozenset[str]:
        """The port of the root, or those of a cycle."""
        return frozenset(lane.port for lane, depth in self.depth_of.items() if depth == 0)

    @property
    def waiting_bytes(self) -> int:
        """What waits in input buffers on the way to the root."""
        return sum(sum(holders.values()) for holders in self.waits.values())


def forest(waits: Waits) -> list[CongestionTree]:
    """Return a tree for each root that a lane waits for, the one with the most ports first.

    A lane of ``waits`` without holders is a root of kind UNSEEN. Lanes that wait for each other with no way out are one
    root of kind CYCLE; those with a way out are in the trees of where it leads.
    """
    waiting = _turned(waits)
    held = {holder for holders in waits.values() for holder in holders}
    ends = {lane: RootKind.BUSY for lane in held if lane not in waits}
    ends |= {lane: RootKind.UNSEEN for lane, holders in waits.items() if not holders}
    trees = [_tree((lane,), kind, waits, waiting) for lane, kind in ends.items()]
    free = {lane for tree in trees for lane in tree.depth_of}
    cycles = _terminal_cycles({lane: holders for lane, holders in waits.items() if lane not in free})
    trees += [_tree(cycle, RootKind.CYCLE, waits, waiting) for cycle in cycles]
    return sorted(trees, key=lambda tree: (-len(tree.ports), tree.root))


def trees_of(trees: Collection[CongestionTree]) -> dict[PortLane, list[CongestionTree]]:
    """Return the trees that each lane is in, in their order."""
    found: dict[PortLane, list[CongestionTree]] = {}
    for tree in trees:
        for lane in tree.depth_of:
            found.setdefault(lane, []).append(tree)
    return found


def _turned(waits: Waits) -> dict[PortLane, list[PortLane]]:
    """Return who waits for each lane."""
    found: dict[PortLane, list[PortLane]] = {}
    for lane, holders in waits.items():
        for holder in holders:
            found.setdefault(holder, []).append(lane)
    return found


def _tree(
    roots: tuple[PortLane, ...], kind: RootKind, waits: Waits, waiting: Mapping[PortLane, list[PortLane]]
) -> CongestionTree:
    depth_of = dict.fromkeys(sorted(roots), 0)
    front = list(depth_of)
    while front:
        behind = dict.fromkeys(lane for holder in front for lane in waiting.get(holder, ()) if lane not in depth_of)
        depth_of.update(dict.fromkeys(behind, depth_of[front[0]] + 1))
        front = list(behind)
    inside = {
        lane: {holder: size for holder, size in waits[lane].items() if holder in depth_of}
        for lane in depth_of
        if lane in waits
    }
    return CongestionTree(min(roots), kind, depth_of, inside)


def _terminal_cycles(waits: Waits) -> Iterator[tuple[PortLane, ...]]:
    """Yield each set of lanes that wait for one another and for nobody else; every holder is in ``waits``."""
    reached = {lane: _reached(lane, waits) for lane in waits}
    told: set[PortLane] = set()
    for lane, others in reached.items():
        if lane in others and lane not in told and all(reached[other] == others for other in others):
            told |= others
            yield tuple(sorted(others))


def _reached(lane: PortLane, waits: Waits) -> set[PortLane]:
    """Return the lanes that a lane waits for, directly or not."""
    found, front = set[PortLane](), [lane]
    while front:
        for holder in waits[front.pop()]:
            if holder not in found:
                found.add(holder)
                front.append(holder)
    return found
