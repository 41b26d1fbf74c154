"""Counts packets of each service level at interfaces."""

from __future__ import annotations

import contextlib
import socket
import struct
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack

from fabric.errors import EmulationError
from fabric.measure.packet_filter import see_only
from fabric.model.lanes import ServiceLevel
from fabric.model.network import Port
from fabric.world.agents import Agent, AgentHandle, AgentPool
from fabric.world.netlink import ETH_P_ALL, ETH_P_IP

_ANSWER_TIMEOUT_S = 10.0
_TOS_OFFSET = 15
_HEADERS_BYTES = 64
_WHOLE_BYTES = 1 << 18
"""A frame of which a filter lets less be seen is as short as that for whoever asks for its size."""
_SO_RCVBUFFORCE = 33  # asm-generic/socket.h
_SOL_PACKET, _PACKET_STATISTICS = 263, 6  # linux/if_packet.h
_STATISTICS = struct.Struct("=II")
_TAP_BUFFER_BYTES = 32 * 1024 * 1024
_HELD_PER_BYTE = 12
"""Of a buffer, for each byte on the wire: the smallest frame, of 66 B, takes 768 B."""
_LONGEST_LOOK_S = 1.0
_SHORTEST_ORDER_S = 0.05
"""Orders are waited for in whole milliseconds; shorter times are slept."""


class LevelCounter:
    """Counts the bytes of each service level that leave ports of switches, by looking at every frame's DSCP.

    Queues count lanes; in one shared queue only the packets themselves say what they are. For a few ports: every frame
    costs some microseconds. ``rates_bps``: of each port's link.
    """

    def __init__(self, pool: AgentPool, rates_bps: Mapping[Port, int]) -> None:
        self._ports = {port.interface: port for port in rates_bps}
        look_s = look_period_s(max(rates_bps.values()))
        self._agent: AgentHandle = pool.start(
            "level counter", "this world", count_levels, (tuple(self._ports), look_s), None
        )
        self._agent.receive(_ANSWER_TIMEOUT_S, "report that it is ready")

    def read(self) -> dict[Port, dict[ServiceLevel, int]]:
        """Return the bytes since the last reading, by port and service level. Raises TrafficError if frames came faster
        than they could be counted."""
        self._agent.send("read")
        counts: dict[tuple[str, int], int] = self._agent.receive(_ANSWER_TIMEOUT_S, "counts")
        found = {port: dict.fromkeys(ServiceLevel, 0) for port in self._ports.values()}
        for (interface, dscp), size in counts.items():
            found[self._ports[interface]][ServiceLevel.of_dscp(dscp)] += size
        return found


def look_period_s(rate_bps: float) -> float:
    """Return how often frames must be taken in, so that they fill at most half of a socket's buffer meanwhile."""
    return min(_LONGEST_LOOK_S, _TAP_BUFFER_BYTES / 2 / (_HELD_PER_BYTE * rate_bps / 8))


def count_levels(agent: Agent, arguments: tuple[Sequence[str], float]) -> None:
    """Be the counting process: it takes in what has left each interface from time to time, and on an order, which it
    answers. To wake for each frame would cost more than all that it counts."""
    interfaces, look_s = arguments
    counts: Counter[tuple[str, int]] = Counter()
    with ExitStack() as stack:
        taps = {interface: stack.enter_context(_tap(interface)) for interface in interfaces}
        agent.report("ready")
        while True:
            is_asked = _is_asked(agent, look_s)
            for interface, tap in taps.items():
                _count(tap, interface, counts)
            if is_asked:
                agent.receive(_ANSWER_TIMEOUT_S)
                agent.report(dict(counts))
                counts.clear()


def _is_asked(agent: Agent, within_s: float) -> bool:
    if within_s >= _SHORTEST_ORDER_S:
        return agent.pipe.poll(within_s)
    time.sleep(within_s)
    return agent.pipe.poll()


def _tap(interface: str) -> socket.socket:
    """Return a socket that sees what of IPv4 leaves an interface from now on."""
    sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    sock.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _TAP_BUFFER_BYTES)
    see_only(sock, ETH_P_IP, leaving=True, seen_bytes=_WHOLE_BYTES)
    sock.setblocking(False)
    sock.bind((interface, ETH_P_ALL))
    return sock


def _count(sock: socket.socket, interface: str, counts: Counter[tuple[str, int]]) -> None:
    """Take in all that has come. Raises EmulationError if some found no room."""
    headers = bytearray(_HEADERS_BYTES)
    with contextlib.suppress(BlockingIOError):
        while True:
            size = sock.recv_into(headers, 0, socket.MSG_TRUNC)
            counts[interface, headers[_TOS_OFFSET] >> 2] += size
    _, lost = _STATISTICS.unpack(sock.getsockopt(_SOL_PACKET, _PACKET_STATISTICS, _STATISTICS.size))
    if lost:
        raise EmulationError(f"{interface}: {lost} frames came faster than they could be counted by service level")
