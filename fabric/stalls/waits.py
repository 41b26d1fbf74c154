"""Which lane of which port waits for which in a lossless fabric, from one reading of all ports: congestion, deadlock.

A lane that is stalled waits for room in the input buffer at the other end of its link. The data in that buffer waits in
lanes of that switch's own ports, which may be stalled in turn. A tree of such waits has its roots in ports that are
merely busy. A cycle that nothing can break is a deadlock: InfiniBand's routes must not allow any.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from fabric.model.lanes import PortLane
from fabric.model.network import Link, Port
from fabric.queueing.vl import LaneStats, PortStats


@dataclass(frozen=True)
class ObservedPort:
    """A port by its name (``z0l03:7``), of which node, and the port at the other end of its link."""

    port: str
    node: str
    peer: str

    @classmethod
    def of(cls, port: Port, link: Link) -> ObservedPort:
        """Return a port of a fabric, at an end of ``link``."""
        return cls(str(port), port.node.name, str(link.other(port)))


LaneNames = Mapping[int, str]
"""The names of lanes by the numbers of their virtual lanes; a virtual lane without one is called by its number."""


@dataclass(frozen=True)
class PortView:
    """A port at one moment: of which node, what port is at the other end of its link, and its statistics."""

    node: str
    peer: str
    stats: PortStats
    names: LaneNames = field(default_factory=dict)

    def name_of(self, number: int) -> str:
        """Return the name of a virtual lane."""
        return self.names.get(number, str(number))

    @cached_property
    def lanes(self) -> dict[str, LaneStats]:
        """The statistics of each lane by its name."""
        return {self.name_of(number): stats for number, stats in self.stats.lanes.items()}


Waits = dict[PortLane, dict[PortLane, int]]
"""For each stalled lane, the lanes in which what it waits for waits, with the bytes in each."""


def waits(ports: Mapping[str, PortView]) -> Waits:
    """Return who waits for whom; ``ports`` are those of all nodes by name, seen at one moment.

    A stalled lane whose way is cleared already (all of it is under way) waits for nobody.
    """
    name_of = {(view.node, view.stats.index): name for name, view in ports.items()}
    found: Waits = {lane: {} for lane in _stalled(ports)}
    for name, view in ports.items():
        for wait in view.stats.waits:
            entered = name_of.get((view.node, wait.input_index))
            if entered is None:
                continue  # It came by an interface that is no more.
            waiting = PortLane(ports[entered].peer, view.name_of(wait.input_lane))
            if waiting in found:
                found[waiting][PortLane(name, view.name_of(wait.lane))] = wait.bytes
    return found


def deadlocks(ports: Mapping[str, PortView]) -> list[tuple[PortLane, ...]]:
    """Return the deadlocks: cycles in which each lane waits for the next, and the last for the first, that nothing can
    end.

    That is certain, not guessed from how long it has lasted: all that takes room at the other end of such a lane waits
    in lanes that are deadlocked, too, and no news of room is under way to any of them. A cycle of waits between samples
    (:attr:`fabric.stalls.congestion_trees.RootKind.CYCLE`) is none yet: its lanes may have waited one after the other.
    """
    graph = waits(ports)
    stuck = {lane for lane, holders in graph.items() if holders and sum(holders.values()) == _taken(ports, lane)}
    while free := {lane for lane in stuck if not stuck.issuperset(graph[lane])}:
        stuck -= free
    return _cycles({lane: sorted(graph[lane]) for lane in sorted(stuck)})


def describe(cycle: tuple[PortLane, ...]) -> str:
    """Return a deadlock in words."""
    around = " -> ".join(map(str, (*cycle, cycle[0])))
    return f"deadlock: {around}, each waiting for room that only the next can make; these routes need more lanes"


def _stalled(ports: Mapping[str, PortView]) -> list[PortLane]:
    return [
        PortLane(name, lane)
        for name, view in ports.items()
        for lane, stats in view.lanes.items()
        if stats.stalled_since_ns
    ]


def _taken(ports: Mapping[str, PortView], lane: PortLane) -> int:
    return ports[lane.port].lanes[lane.lane].used_bytes


def _cycles(graph: Mapping[PortLane, list[PortLane]]) -> list[tuple[PortLane, ...]]:
    """Return cycles without a common lane; every lane of ``graph`` has a successor in it."""
    cycles, seen = [], set[PortLane]()
    for start in graph:
        path: list[PortLane] = []
        lane = start
        while lane not in seen:
            seen.add(lane)
            path.append(lane)
            lane = graph[lane][0]
        if lane in path:
            cycles.append(tuple(path[path.index(lane) :]))
    return cycles
