"""A policy that moves destinations at work: reads the queues of all uplinks, asks leaves what they carry, and has the
policy decide."""

from __future__ import annotations

import math
import socket
import time
from collections import Counter
from typing import Protocol

from controllers.app.openflow import hub
from controllers.planning.plan import Purpose, RoutePlan
from controllers.planning.planner import Moves
from controllers.planning.policies.policy import Decide
from controllers.routing import Routing
from fabric.model.identity import NodeId, Role
from fabric.model.network import Fabric, Port
from fabric.queueing.counters import QueueReader
from fabric.world.kernel_api.netlink import Netlink

_LATELY_S = 1.0
"""Twice as late as leaves know what they have sent."""


class Keeper(Protocol):
    """What moving destinations needs of whoever keeps switches at their rules."""

    @property
    def fabric(self) -> Fabric:
        """The fabric."""

    @property
    def routing(self) -> Routing:
        """How it routes."""

    @property
    def plan(self) -> RoutePlan:
        """What switches are to do now."""

    @property
    def settled(self) -> bool:
        """Whether they do, and nothing else is wanted."""

    def bytes_by_destination(self, switch: NodeId) -> dict[str, int]:
        """Return the bytes that a switch's rules have counted, by the address they match; none without an answer."""

    def move(self, moves: Moves) -> None:
        """Have leaves send destinations up by other ports from now on."""


class AdaptiveLeaves:
    """Every leaf's uplinks and the destinations that leave by them, which ``decide`` moves and ``keeper`` installs."""

    def __init__(self, keeper: Keeper, decide: Decide) -> None:
        self.keeper, self.decide = keeper, decide
        self.config = keeper.routing.adaptive
        fabric = keeper.fabric
        uplinks = {leaf: list(fabric.uplinks_of(leaf)) for leaf in fabric.with_role(Role.LEAF)}
        self._uplinks = {leaf: ports for leaf, ports in uplinks.items() if len(ports) > 1}
        """Of leaves that have a choice: lone switches have none."""
        self._address_of = {fabric.block_of(nic): nic.ip for nic in fabric.nics}
        """By what rules match, an address or the block of a node with an inside: the NIC that it is of."""
        self._indices: dict[int, Port] = {}
        self._seen_bytes: dict[tuple[NodeId, str], int] = {}
        self._asked_s: dict[NodeId, float] = {}
        self._moved_s: dict[tuple[NodeId, str], float] = {}

    def run(self) -> None:
        """Look at the queues once a period, on an absolute timetable."""
        reader = QueueReader()
        next_s = time.monotonic()
        with Netlink() as link:
            while True:
                next_s = max(next_s + self.config.period, time.monotonic())
                hub.sleep(next_s - time.monotonic())
                if self.keeper.settled:
                    self._look(self._depths(reader, link.dump_qdiscs()))

    def _depths(self, reader: QueueReader, dump: bytes) -> Counter[Port]:
        """Return the bytes that wait at each port of a leaf towards a spine."""
        depths: Counter[Port] = Counter()
        keys, counters = reader.read(dump)
        if len(self._indices) == 0:
            self._indices = _interface_indices([port for ports in self._uplinks.values() for port in ports])
        for (index, _), backlog in zip(keys, counters["backlog_bytes"].tolist(), strict=True):
            if index in self._indices:
                depths[self._indices[index]] += backlog
        return depths

    def _look(self, depths: Counter[Port]) -> None:
        moves: dict[tuple[NodeId, str], int] = {}
        for leaf, uplinks in self._uplinks.items():
            own = {port.number: depths[port] for port in uplinks}
            if max(own.values()) - min(own.values()) >= self.config.threshold:
                moves.update(((leaf, ip), port) for ip, port in self._decided(leaf, own).items())
        if moves:
            now_s = time.monotonic()
            self._moved_s.update(dict.fromkeys(moves, now_s))
            self.keeper.move(moves)

    def _decided(self, leaf: NodeId, depths: dict[int, int]) -> dict[str, int]:
        plan = self.keeper.plan.switches[leaf.dpid]
        known = self._address_of
        routes = ((known[to], plan.by_key[key]) for to, key in plan.routes.items() if to in known)
        ports = {ip: plan.ways(rule)[0] for ip, rule in routes if rule.purpose == Purpose.UP}
        now_s = time.monotonic()
        since_s = now_s - self.config.hold
        held = [ip for ip in ports if self._moved_s.get((leaf, ip), since_s) > since_s]
        lately_s = now_s - max(_LATELY_S, 2 * self.config.period)
        is_known = self._asked_s.get(leaf, -math.inf) >= lately_s
        self._asked_s[leaf] = now_s
        carried = self._carried(leaf)
        # After a time of even queues this is what was sent in all of that, and says nothing of what fills them now.
        return self.decide(depths, ports, carried, held, self.config) if is_known else {}

    def _carried(self, leaf: NodeId) -> dict[str, int]:
        """Return the bytes that a leaf sent to each destination since last asked; it knows half a second late."""
        carried = {}
        for matched, count in self.keeper.bytes_by_destination(leaf).items():
            ip = self._address_of.get(matched, matched)
            carried[ip] = count - self._seen_bytes.get((leaf, ip), 0)
            self._seen_bytes[leaf, ip] = count
        return carried


def _interface_indices(ports: list[Port]) -> dict[int, Port]:
    return {socket.if_nametoindex(port.interface): port for port in ports}
