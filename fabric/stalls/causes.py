"""Why lossless lanes are stalled: what each of them waits for, by readings of all ports, and what nothing explains.

A stalled lane waits for the data in the input buffer at the other end of its link. That data waits in lanes of that
switch's ports, which may be stalled in turn, and so on. A stall is explained if this leads to a port that is sending: a
link that is merely busy. Data that is leaving the buffer waits in no lane; for a moment that may be all of it. If
nothing leads to a port that sends, or data that is leaving never arrives, credits have been lost, or lanes wait for
each other in a circle.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from fabric.model.lanes import PortLane
from fabric.stalls.waits import PortView, Waits, waits


class StallCause(Enum):
    """What a lane that stands still waits for, at one look."""

    BUSY = "a busy link"
    LEAVING = "what is on its way out"
    NOTHING = "nothing that sends"


@dataclass(frozen=True)
class Stall:
    """A lane that has stood still since ``since_ns`` and did so at ``seen_ns`` (CLOCK_MONOTONIC); ``root``: a lane of a
    port that sends and that its wait leads to."""

    lane: PortLane
    since_ns: int
    seen_ns: int
    cause: StallCause
    root: PortLane | None = None

    @property
    def lasted_ns(self) -> int:
        """How long it had lasted when it was seen."""
        return self.seen_ns - self.since_ns


def stalls(ports: Mapping[str, PortView], at_least_ns: int) -> list[Stall]:
    """Return why each lane stands still that has done so for ``at_least_ns``.

    ``ports`` are those of all nodes by their names, hosts' included, seen at one moment.
    """
    graph = waits(ports)
    found = []
    for lane in graph:
        stats = ports[lane.port].stats
        since_ns = ports[lane.port].lanes[lane.lane].stalled_since_ns
        if stats.now_ns - since_ns >= at_least_ns:
            found.append(Stall(lane, since_ns, stats.now_ns, *_cause(lane, graph, ports)))
    return found


def _cause(lane: PortLane, graph: Waits, ports: Mapping[str, PortView]) -> tuple[StallCause, PortLane | None]:
    if not graph[lane]:
        return StallCause.LEAVING, None
    seen, ahead = {lane}, [lane]
    is_clearing = False
    while ahead:
        holders = graph[ahead.pop()]
        is_clearing |= not holders
        for holder in sorted(set(holders) - seen):
            if holder in graph:
                ahead.append(holder)
            elif ports[holder.port].stats.link_packets:
                return StallCause.BUSY, holder
            else:
                is_clearing = True  # It can send, and is about to.
            seen.add(holder)
    return (StallCause.LEAVING if is_clearing else StallCause.NOTHING), None


class StallLedger:
    """Stalls over all looks: each is one entry, however often it was seen.

    ``leaving_limit_ns``: how long what is on its way out may take to come, at most.
    """

    def __init__(self, leaving_limit_ns: int) -> None:
        self._leaving_limit_ns = leaving_limit_ns
        self._entries: dict[tuple[PortLane, int], Stall] = {}
        self._leaving_since: dict[tuple[PortLane, int], int] = {}

    def add(self, found: Sequence[Stall]) -> None:
        """Take a look's stalls. What was once unexplained of a stall stays so."""
        leaving = {}
        for stall in found:
            key = (stall.lane, stall.since_ns)
            if stall.cause is StallCause.LEAVING:
                leaving[key] = self._leaving_since.get(key, stall.seen_ns)
                if stall.seen_ns - leaving[key] > self._leaving_limit_ns:
                    stall = replace(stall, cause=StallCause.NOTHING)
            before = self._entries.get(key)
            if before is not None and before.cause is StallCause.NOTHING:
                stall = replace(before, seen_ns=stall.seen_ns)
            self._entries[key] = stall
        self._leaving_since = leaving

    @property
    def is_leaving(self) -> bool:
        """Whether something of the last look was on its way out, so that it is worth to look again soon."""
        return bool(self._leaving_since)

    @property
    def entries(self) -> tuple[Stall, ...]:
        """All stalls in the order in which they began, each as it was last seen."""
        return tuple(sorted(self._entries.values(), key=lambda stall: (stall.since_ns, stall.lane)))
