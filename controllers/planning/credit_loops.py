"""Credit loops: circles of ports that lossless routes allow to wait for each other. InfiniBand's tools look for them.

A frame that waits to leave by a port occupies room of an input buffer, which the port before it on the frame's path
waits for. If the dependencies of all paths form no cycle, no deadlock can form (Dally and Seitz, IEEE Transactions on
Computers, 1987), while routes stay as they are: when they change, frames of old paths meet those of new ones.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping

from controllers.planning.plan import RoutePlan
from fabric.model.identity import NodeId, Role
from fabric.model.network import Fabric, Nic, Port

Dependencies = Mapping[Port, frozenset[Port]]
"""For each port of a switch, those that frames it sends leave by next."""


def dependencies(fabric: Fabric, plan: RoutePlan) -> dict[Port, frozenset[Port]]:
    """Return which ports of switches wait for which, over the paths between all NICs that the plan lets talk.

    Of the NICs of one kind at a switch one stands for all: rules know no more of a source.
    """
    sources: dict[Role, dict[NodeId, Nic]] = {}
    for nic in fabric.nics:
        sources.setdefault(nic.node.role, {})[fabric.peer(nic.port).node] = nic
    found: dict[Port, set[Port]] = {}
    for destination in fabric.nics:
        for by_switch in sources.values():
            for sent, sent_next in _steps(fabric, plan, list(by_switch.values()), destination):
                found.setdefault(sent, set()).add(sent_next)
    return {sent: frozenset(others) for sent, others in found.items()}


def _steps(fabric: Fabric, plan: RoutePlan, sources: list[Nic], destination: Nic) -> Iterator[tuple[Port, Port]]:
    """Yield the pairs of ports that packets from some NICs of one kind to another NIC leave by, one after the other."""
    waiting: list[tuple[Port | None, Port]] = [(None, fabric.peer(nic.port)) for nic in sources]
    seen = {arrived for _, arrived in waiting}
    while waiting:
        sent, arrived = waiting.pop()
        rule = plan.lookup(arrived.node.dpid, arrived.number, sources[0].ip, destination.ip)
        for number in () if rule.is_drop else plan.ways(rule):
            sent_next = Port(arrived.node, number)
            if sent is not None:
                yield sent, sent_next
            there = fabric.peer(sent_next)
            if there.node.is_switch and there not in seen:
                seen.add(there)
                waiting.append((sent_next, there))


def in_loops(found: Dependencies) -> dict[Port, frozenset[Port]]:
    """Return the part of the dependencies that lies in cycles or between them; empty if there is no cycle."""
    left = dict(found)
    while left:
        entered = frozenset().union(*left.values())
        kept = {
            port: others
            for port in left
            if port in entered and (others := frozenset(other for other in left[port] if other in left))
        }
        if kept == left:
            break
        left = kept
    return left


def a_loop(found: Dependencies) -> tuple[Port, ...]:
    """Return the ports of a cycle, in order, a shortest one of the first port that is in any; empty: there is none."""
    left = in_loops(found)
    return next((loop for port in sorted(left) if (loop := _loop_through(port, left))), ())


def _loop_through(begin: Port, found: Dependencies) -> tuple[Port, ...]:
    """Return a shortest cycle through a port; none if it is in none."""
    before: dict[Port, Port] = {}
    waiting = deque([begin])
    while waiting:
        port = waiting.popleft()
        for other in sorted(found.get(port, ())):
            if other == begin:
                loop = [port]
                while loop[-1] != begin:
                    loop.append(before[loop[-1]])
                return tuple(reversed(loop))
            if other not in before:
                before[other] = port
                waiting.append(other)
    return ()
