"""The actual wiring of a fabric: which ports have carrier, and where frames sent out of each port arrive.

Probes are frames of an EtherType of their own, put through the port's own queue. Sockets receive them on arrival,
before any switch does; a switch drops them, since no rule matches.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import struct
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from fabric.measure.packet_filter import see_arriving
from fabric.model.network import Port
from fabric.world.isolation import netns
from fabric.world.kernel_api.netlink import ETH_P_ALL, Netlink

if TYPE_CHECKING:
    from fabric.emulation.build import Emulation

ETHERTYPE = 0x88B5  # IEEE 802: for experiments within one's own network.
SMALL_FRAME_BYTES = 60
"""The smallest Ethernet frame, as the kernel counts it: without FCS."""
_SO_RCVBUFFORCE = 33  # asm-generic/socket.h
_SOL_PACKET, _PACKET_STATISTICS = 263, 6  # linux/if_packet.h
_STATISTICS = struct.Struct("=II")
_SEEN_BYTES = 64
_RECEIVE_BUFFER_BYTES = 64 << 20
_NONCE_BYTES = 16
_PROBE = struct.Struct(f">{_NONCE_BYTES}sI")
_ADDRESSES = bytes.fromhex("02ffffffffff02fffffffffe")
_ATTEMPTS = 6
"""Probes a port: on a link that loses one frame in a hundred, all six are lost once in 10^12 times."""
_ATTEMPT_S = 0.25


def _tap(namespace: Path | None, interface: str = "") -> socket.socket:
    """Return a socket that sees our frames arrive at an interface; by default at every one of a namespace."""
    if namespace is not None:
        with netns.inside(namespace):
            return _tap(None, interface)
    # Of no protocol it is deaf until it is bound; to hear all interfaces it cannot be.
    sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0 if interface else socket.htons(ETH_P_ALL))
    see_arriving(sock, ETHERTYPE, seen_bytes=_SEEN_BYTES)
    sock.setblocking(False)
    if interface:
        sock.bind((interface, ETH_P_ALL))
    else:
        _drain(sock)
    return sock


def _drain(sock: socket.socket) -> None:
    """Throw away what came before the filter was in place."""
    with contextlib.suppress(BlockingIOError):
        while True:
            sock.recv(1)


class ArrivalCounter:
    """Counts our frames as they arrive at a port, without reading them: the kernel counts those without room, too."""

    def __init__(self, namespace: Path | None, port: Port) -> None:
        self._sock = _tap(namespace, port.interface)
        self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
        self.total = 0

    def read(self) -> tuple[float, int]:
        """Return the time and how many frames have arrived in all."""
        raw = self._sock.getsockopt(_SOL_PACKET, _PACKET_STATISTICS, _STATISTICS.size)
        now = time.monotonic()
        self.total += _STATISTICS.unpack(raw)[0]  # Reading it sets it to zero.
        return now, self.total

    def close(self) -> None:
        """Count no more."""
        self._sock.close()


def measuring_frame(size_bytes: int, payload: bytes = b"") -> bytes:
    """Return a frame of our EtherType, addressed to nobody."""
    frame = _ADDRESSES + struct.pack(">H", ETHERTYPE) + payload
    return frame + bytes(size_bytes - len(frame))


def carriers(emulation: Emulation) -> dict[Port, bool]:
    """Return whether each port has carrier."""
    found: dict[Port, bool] = {}
    for namespace, ports in _ports_by_namespace(emulation).items():
        with Netlink(namespace) as link:
            counters = link.link_counters()
        found |= {port: counters[port.interface].carrier for port in ports}
    return found


def see_wiring(emulation: Emulation, ports: Iterable[Port]) -> dict[Port, Port | None]:
    """Return the port at which frames sent out of each port arrive, or None where none of six does."""
    probes = dict(enumerate(ports))
    seen: dict[Port, Port | None] = dict.fromkeys(probes.values())
    nonce = os.urandom(_NONCE_BYTES)
    with ExitStack() as stack:
        taps = _Taps(emulation)
        stack.callback(taps.close)
        for _ in range(_ATTEMPTS):
            missing = {number: port for number, port in probes.items() if seen[port] is None}
            if not missing:
                break
            taps.send((port, measuring_frame(SMALL_FRAME_BYTES, _PROBE.pack(nonce, n))) for n, port in missing.items())
            deadline = time.monotonic() + _ATTEMPT_S
            while missing and (left_s := deadline - time.monotonic()) > 0:
                for arrived, payload in taps.receive(left_s):
                    found_nonce, number = _PROBE.unpack_from(payload)
                    if found_nonce == nonce and number in missing:
                        seen[missing.pop(number)] = arrived
    return seen


class _Taps:
    """A socket in every namespace of a fabric, which sends probes and sees them arrive."""

    def __init__(self, emulation: Emulation) -> None:
        self._namespace_of_port = emulation.namespace_of_port
        self._taps: dict[Path | None, socket.socket] = {}
        self._ports: dict[int, dict[str, Port]] = {}
        self._readable = select.poll()
        for namespace, ports in _ports_by_namespace(emulation).items():
            tap = self._taps[namespace] = _tap(namespace)
            tap.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _RECEIVE_BUFFER_BYTES)
            self._ports[tap.fileno()] = {emulation.reported_name(port): port for port in ports}
            self._readable.register(tap, select.POLLIN)
        self._by_number = {tap.fileno(): tap for tap in self._taps.values()}

    def send(self, frames: Iterable[tuple[Port, bytes]]) -> None:
        """Send a frame out of each port."""
        for port, frame in frames:
            self._taps[self._namespace_of_port(port)].sendto(frame, (port.interface, ETHERTYPE))

    def receive(self, timeout_s: float) -> Iterator[tuple[Port, bytes]]:
        """Yield what has arrived, after waiting until something does: the port and what the frame carries."""
        for number, _ in self._readable.poll(timeout_s * 1000):
            try:
                while True:
                    frame, (interface, *_) = self._by_number[number].recvfrom(_SEEN_BYTES)
                    yield self._ports[number][interface], frame[14:]
            except BlockingIOError:
                continue

    def close(self) -> None:
        """Close all sockets."""
        for tap in self._taps.values():
            tap.close()


def _ports_by_namespace(emulation: Emulation) -> Mapping[Path | None, list[Port]]:
    found: dict[Path | None, list[Port]] = {}
    for port in emulation.fabric.link_at:
        found.setdefault(emulation.namespace_of_port(port), []).append(port)
    return found
