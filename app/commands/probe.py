"""The path of a real packet, compared with the plan: the ports it leaves by, and the lane it waits in."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from controllers.planning import ecmp
from controllers.planning.ecmp import FiveTuple
from controllers.planning.paths import planned_path, probe_flow
from controllers.planning.plan import RoutePlan
from fabric.measure.census import lane_counters
from fabric.model.lanes import LanePlan, ServiceLevel
from fabric.model.network import Fabric, Nic, Port
from fabric.world.isolation import netns
from runs.live import LiveFabric

_ETH_P_ALL = 0x0003
_OUTGOING = 4
_WAIT_S = 1.0
_MARK_BYTES = 16
_SO_RCVBUFFORCE = 33
_TAP_BYTES = 16 * 1024 * 1024
"""Room for what else comes by meanwhile: a slow machine's controller alone fills a default buffer."""


@dataclass(frozen=True)
class Packets:
    """What packets are like: the NICs that they leave and reach, their service level, and what tells their flow."""

    nics: tuple[Nic, Nic]
    level: ServiceLevel
    flow: FiveTuple

    @classmethod
    def of_probe(cls, nics: tuple[Nic, Nic], level: ServiceLevel) -> Packets:
        """Return those of a probe, between its own ports."""
        return cls(nics, level, probe_flow(*nics))


@dataclass(frozen=True)
class Hop:
    """A port that a packet leaves by, and the lane in which it waits there."""

    port: Port
    lane: str


@dataclass(frozen=True)
class ProbeResult:
    """What a probe met: the ports it left by, in order, with their lanes; and whether it arrived."""

    hops: tuple[Hop, ...]
    delivered: bool


def planned_hops(plan: RoutePlan, fabric: Fabric, lanes: LanePlan, packets: Packets) -> list[Hop]:
    """Return where a packet should go by the plan."""
    lane = lanes.lane_of(packets.level).name
    return [Hop(port, lane) for port in planned_path(plan, fabric, *packets.nics, packets.flow)]


def probe(live: LiveFabric, packets: Packets) -> ProbeResult:
    """Send one packet over an idle fabric and return where it was seen."""
    source, destination = packets.nics
    mark = os.urandom(_MARK_BYTES)
    namespace_of = live.emulation.namespace_of
    frame = _frame(packets, mark)
    with _tap(None) as wires, _tap(namespace_of(destination.node)) as end:
        before = lane_counters(live.emulation)
        source_namespace = namespace_of(source.node)
        assert source_namespace is not None, "hosts have namespaces"
        with netns.inside(source_namespace):
            _send(source, frame)
        time.sleep(_WAIT_S)
        after = lane_counters(live.emulation)
        crossed = [name for name, direction in _seen(wires, destination, mark) if direction == _OUTGOING]
        arrival = live.emulation.reported_name(destination.port)
        delivered = any(name == arrival for name, _ in _seen(end, destination, mark))
    ports = {port.interface: port for port in live.fabric.link_at}
    left_by = [source.port, *(ports[name] for name in crossed)]
    return ProbeResult(tuple(Hop(port, _lane_used(live, before, after, port)) for port in left_by), delivered)


def _tap(namespace: Path | None) -> socket.socket:
    """Return a socket that sees every frame of a namespace's interfaces; None: the world's own, with the switches'."""
    if namespace is not None:
        with netns.inside(namespace):
            return _tap(None)
    sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_ETH_P_ALL))
    sock.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _TAP_BYTES)
    sock.setblocking(False)
    return sock


def _seen(tap: socket.socket, destination: Nic, mark: bytes) -> Iterator[tuple[str, int]]:
    """Yield interface and direction of each frame to ``destination`` that carries the mark, in order.

    The host's answer, that nobody listens, carries the mark too, and goes the other way.
    """
    address = bytes.fromhex(destination.mac.replace(":", ""))
    while True:
        try:
            frame, (interface, _, direction, *_) = tap.recvfrom(65536)
        except BlockingIOError:
            return
        if frame.startswith(address) and mark in frame:
            yield interface, direction


def _frame(packets: Packets, mark: bytes) -> bytes:
    # Imported here: scapy takes half a second, and only probes need it.
    from scapy.layers.inet import IP, TCP, UDP
    from scapy.layers.l2 import Ether
    from scapy.packet import Raw

    (source, destination), flow = packets.nics, packets.flow
    transport = TCP if flow.protocol == ecmp.TCP else UDP
    return bytes(
        Ether(src=source.mac, dst=destination.mac)
        / IP(src=source.ip, dst=destination.ip, tos=packets.level.tos)
        / transport(sport=flow.source_port, dport=flow.destination_port)
        / Raw(mark)
    )


def _send(source: Nic, frame: bytes) -> None:
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0) as sock:
        sock.bind((source.port.interface, 0x0800))
        sock.send(frame)


def _lane_used(
    live: LiveFabric, before: dict[tuple[Port, str], int], after: dict[tuple[Port, str], int], port: Port
) -> str:
    used = [lane.name for lane in live.emulation.lane_plan.lanes if after[port, lane.name] > before[port, lane.name]]
    return "+".join(used) or "none"
