"""Counts packets of each service level at interfaces."""

from __future__ import annotations

import selectors
import socket
from collections import Counter
from collections.abc import Sequence

from fabric.model.lanes import ServiceLevel
from fabric.model.network import Port
from fabric.world.agents import Agent, AgentHandle, AgentPool
from fabric.world.netlink import ETH_P_ALL, ETH_P_IP

_ANSWER_TIMEOUT_S = 10.0
_PACKET_OUTGOING = 4
_TOS_OFFSET = 15
_HEADERS_BYTES = 64
_SO_RCVBUFFORCE = 33  # asm-generic/socket.h
_TAP_BUFFER_BYTES = 32 * 1024 * 1024


class LevelCounter:
    """Counts the bytes of each service level that leave ports of switches, by looking at every frame's DSCP.

    Queues count lanes; in one shared queue only the packets themselves say what they are. For a few ports: every frame
    costs some microseconds.
    """

    def __init__(self, pool: AgentPool, ports: Sequence[Port]) -> None:
        self._ports = {port.interface: port for port in ports}
        self._agent: AgentHandle = pool.start("level counter", "this world", count_levels, tuple(self._ports), None)
        self._agent.receive(_ANSWER_TIMEOUT_S, "report that it is ready")

    def read(self) -> dict[Port, dict[ServiceLevel, int]]:
        """Return the bytes since the last reading, by port and service level."""
        self._agent.send("read")
        counts: dict[tuple[str, int], int] = self._agent.receive(_ANSWER_TIMEOUT_S, "counts")
        found = {port: dict.fromkeys(ServiceLevel, 0) for port in self._ports.values()}
        for (interface, dscp), size in counts.items():
            found[self._ports[interface]][ServiceLevel.of_dscp(dscp)] += size
        return found


def count_levels(agent: Agent, interfaces: tuple[str, ...]) -> None:
    """Be the counting process: a socket a port, read as frames come, an answer to each order."""
    selector = selectors.DefaultSelector()
    for interface in interfaces:
        selector.register(_tap(interface), selectors.EVENT_READ, interface)
    selector.register(agent.pipe, selectors.EVENT_READ, None)
    counts: Counter[tuple[str, int]] = Counter()
    agent.report("ready")
    while True:
        for key, _ in selector.select():
            if key.data is None:
                agent.receive(_ANSWER_TIMEOUT_S)
                agent.report(dict(counts))
                counts.clear()
            else:
                _count(key.fileobj, key.data, counts)  # type: ignore[arg-type]


def _tap(interface: str) -> socket.socket:
    sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
    sock.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _TAP_BUFFER_BYTES)
    sock.bind((interface, ETH_P_ALL))
    sock.setblocking(False)
    return sock


def _count(sock: socket.socket, interface: str, counts: Counter[tuple[str, int]]) -> None:
    headers = bytearray(_HEADERS_BYTES)
    while True:
        try:
            size, (_, protocol, direction, *_) = sock.recvfrom_into(headers, 0, socket.MSG_TRUNC)
        except BlockingIOError:
            return
        if direction == _PACKET_OUTGOING and protocol == ETH_P_IP:
            counts[interface, headers[_TOS_OFFSET] >> 2] += size
