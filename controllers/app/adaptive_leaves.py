"""The adaptive policy at work: reads the queues of all uplinks, asks leaves what they carry, and moves destinations."""

from __future__ import annotations

import socket
import time
from collections import Counter
from typing import TYPE_CHECKING

from controllers.app import messages
from controllers.app.openflow import hub
from controllers.planning.adaptive import decide
from controllers.planning.plan import Purpose
from fabric.errors import ControllerError
from fabric.model.identity import NodeId, Role
from fabric.model.network import Port
from fabric.queueing.counters import QueueReader
from fabric.world.kernel_api.netlink import Netlink

if TYPE_CHECKING:
    from controllers.app.route_keeper import RouteKeeper

_STATISTICS_TIMEOUT_S = 5.0


class AdaptiveLeaves:
    """Every leaf's uplinks and the destinations that leave by them. ``keeper`` is the app, which moves them."""

    def __init__(self, keeper: RouteKeeper) -> None:
        self.keeper = keeper
        self.config = keeper.routing.adaptive
        fabric = keeper.fabric
        uplinks = {leaf: list(fabric.uplinks_of(leaf)) for leaf in fabric.with_role(Role.LEAF)}
        self._uplinks = {leaf: ports for leaf, ports in uplinks.items() if len(ports) > 1}
        """Of leaves that have a choice: lone switches have none."""
        self._indices: dict[int, Port] = {}
        self._seen_bytes: dict[tuple[NodeId, str], int] = {}
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
            self.keeper.moves.update(moves)
            self.keeper.note("moved", moves=[[leaf.name, ip, port] for (leaf, ip), port in moves.items()])
            self.keeper.want()

    def _decided(self, leaf: NodeId, depths: dict[int, int]) -> dict[str, int]:
        plan = self.keeper.plan.switches[leaf.dpid]
        routes = ((ip, plan.by_key[key]) for ip, key in plan.routes.items())
        ports = {ip: plan.ways(rule)[0] for ip, rule in routes if rule.purpose == Purpose.UP}
        since_s = time.monotonic() - self.config.hold
        held = [ip for ip in ports if self._moved_s.get((leaf, ip), since_s) > since_s]
        return decide(depths, ports, self._carried(leaf), held, self.config)

    def _carried(self, leaf: NodeId) -> dict[str, int]:
        """Return the bytes that a leaf sent to each destination since last asked; it knows half a second late."""
        switch = self.keeper.switches.get(leaf.dpid)
        if switch is None:
            return {}
        try:
            found = self.keeper.questions.ask(
                [switch.datapath],
                lambda d: messages.rule_statistics_request(d, drops_only=False),
                _STATISTICS_TIMEOUT_S,
            )
        except ControllerError as error:
            self.keeper.logger.warning("%s", error)
            return {}
        carried = {}
        for one in found[leaf.dpid]:
            key = messages.key_of(one)
            if key is not None and key[1] is not None:
                carried[key[1]] = one.byte_count - self._seen_bytes.get((leaf, key[1]), 0)
                self._seen_bytes[leaf, key[1]] = one.byte_count
        return carried


def _interface_indices(ports: list[Port]) -> dict[int, Port]:
    return {socket.if_nametoindex(port.interface): port for port in ports}
