"""Messages over datagrams as a transport: packets of a connection take any paths and are placed as they come.

``messages.c`` says how what is lost is told from what is late, and who may send when; it knows neither sockets nor
clocks, so tests play it over networks of their own. ``messages_port.c`` has both. Both are compiled at run time.
"""

from __future__ import annotations

import ctypes
import functools
import os
import socket
import struct
import threading
from dataclasses import dataclass, field
from pathlib import Path

from fabric.errors import TrafficError
from fabric.model.lanes import ServiceLevel
from fabric.model.network import Fabric
from fabric.world.programs.preload import cached_library
from traffic.transport import tcp
from traffic.transport.connection import ConnectionEndedError, ConnectionSample, DataPorts, Endpoint, SocketOptions
from traffic.transport.message_config import Control, MessageConfig
from traffic.transport.streams import (
    HANDLE,
    NUMBER,
    SIZE,
    StreamConnection,
    StreamDial,
    StreamListener,
    connected,
    library,
)

_DESCRIPTION = struct.Struct("=IIIII")
"""As ``struct description`` has it; the second is the UDP port that data goes to."""
_SOURCES = [Path(__file__).with_name(name) for name in ("messages.c", "messages_port.c")]
_INCLUDES = [Path(__file__).with_name("messages.h")]
_HEADERS_BYTES = 28 + 56
"""IPv4, UDP and ``struct header``."""
_TARGET_NS = 6000
"""The delay in queues that NSCC aims at (htsim's ``uec.cpp``)."""


class Options(ctypes.Structure):
    """``struct options``."""

    _fields_ = (
        ("rate_bps", ctypes.c_uint64),
        ("delay_ns", ctypes.c_uint64),
        ("mtu_bytes", SIZE),
        ("paths", SIZE),
        ("control", SIZE),
        ("unsolicited", SIZE),
        ("reordering", SIZE),
        ("data_tos", SIZE),
        ("control_tos", SIZE),
        ("timeout_ns", ctypes.c_uint64),
        ("target_ns", ctypes.c_uint64),
        ("trip_ns", ctypes.c_uint64),
    )


class Counts(ctypes.Structure):
    """``struct counts``: packets sent again, trimmed, probes for want of news, packets that came again, the smoothed
    round trip, marks, credits given, and packets that came after they had counted as lost."""

    _fields_ = tuple(
        (name, ctypes.c_uint64)
        for name in ("resent", "trimmed", "timeouts", "duplicates", "round_trip_ns", "marked", "credits_given", "late")
    )


@dataclass(frozen=True)
class Nic:
    """What messages need to know of NICs: their rate, the largest IP packet, the delay of their links."""

    rate_bps: int = 100_000_000_000
    mtu_bytes: int = 4200
    delay_ns: int = 0


def nic_of(fabric: Fabric) -> Nic:
    """Return that of a fabric: its fastest NICs, and the longest of their links."""
    nics = [fabric.link_at[nic.port] for host in fabric.hosts for nic in fabric.nics_of[host]]
    return Nic(fabric.nic_rate_bps, fabric.mtu_bytes, max(link.delay_ns for link in nics))


def built() -> Path:
    """Return the C part, built into the user's cache if it is not yet. Raises EmulationError without a compiler."""
    return cached_library("messages", _SOURCES, "a transport of messages", includes=_INCLUDES)


@functools.cache
def _library() -> ctypes.CDLL:
    text = ctypes.c_char_p
    own = (
        ("port", HANDLE, [text, ctypes.POINTER(Options)]),
        ("end", HANDLE, [HANDLE, SIZE, NUMBER, text]),
        ("join", NUMBER, [HANDLE, text]),
        ("heed", NUMBER, [HANDLE]),
        ("source", NUMBER, [HANDLE]),
        ("counts", NUMBER, [HANDLE, ctypes.POINTER(Counts)]),
    )
    return library(str(built()), own)


def options_of(transport: MessageTransport) -> Options:
    """Return what C is told of a transport."""
    config, nic = transport.config, transport.nic
    payload = nic.mtu_bytes - _HEADERS_BYTES
    return Options(
        rate_bps=nic.rate_bps,
        delay_ns=nic.delay_ns,
        mtu_bytes=nic.mtu_bytes,
        paths=config.paths,
        control=list(Control).index(config.control),
        unsolicited=-(-config.unsolicited // payload),
        reordering=transport.reordering or 1,
        data_tos=transport.options.level.tos,
        control_tos=ServiceLevel.CONTROL.tos if transport.answers_ahead else transport.options.level.tos,
        timeout_ns=round(config.timeout * 1e9),
        target_ns=_TARGET_NS,
        trip_ns=round(config.round_trip * 1e9),
    )


_ports: dict[tuple[str, bytes], int] = {}
_ports_lock = threading.Lock()


def _port_of(address: str, transport: MessageTransport) -> int:
    """Return the port of an address with a transport's options, made once per process. Raises TrafficError."""
    options = options_of(transport)
    with _ports_lock:
        key = (address, bytes(options))
        if key not in _ports:
            found = _library().fabric_port(address.encode(), ctypes.byref(options))
            if found is None:
                raise TrafficError(f"{address}: no port for messages: {os.strerror(ctypes.get_errno())}")
            _ports[key] = found
        return _ports[key]


class MessageConnection(StreamConnection):
    """Messages as a :class:`traffic.transport.connection.Connection`."""

    _DESCRIPTION_BYTES = _DESCRIPTION.size

    def __init__(self, transport: MessageTransport, sock: socket.socket) -> None:
        self._transport = transport
        self._peer_port: int | None = None
        super().__init__(_library(), sock, transport.options)

    def _begun(self, ring_bytes: int) -> int:
        port = _port_of(self.local[0], self._transport)
        found: int | None = self._library.fabric_end(port, ring_bytes, self._sock.fileno(), self.description)
        if found is None:
            raise TrafficError(f"{self._name()}: no room for a connection: {os.strerror(ctypes.get_errno())}")
        return found

    def join(self, description: bytes) -> None:
        """Connect to the end that is described. Raises TrafficError."""
        if error := self._library.fabric_join(self._handle, description):
            raise TrafficError(f"{self._name()}: both ends need the same receive window: {os.strerror(-error)}")
        self._peer_port = _DESCRIPTION.unpack(description)[1]

    def met(self) -> None:
        """Hear of the other's end from now on."""
        self._checked(self._library.fabric_heed(self._handle))

    @property
    def data_ports(self) -> DataPorts:
        """UDP, from the source port of the first path."""
        if self._peer_port is None:
            raise ConnectionEndedError(f"{self._name()}: it was never connected")
        return DataPorts(socket.IPPROTO_UDP, self._library.fabric_source(self._handle), self._peer_port)

    def counts(self) -> Counts:
        """Return what this end has counted. Raises ConnectionEndedError once it has ended."""
        found = Counts()
        self._checked(self._library.fabric_counts(self._handle, ctypes.byref(found)))
        return found

    def sample(self) -> ConnectionSample:
        """Return what this end has counted of what it sent; answers that name a trimmed packet are its NAKs."""
        acknowledged, counts = self._acknowledged()[1], self.counts()
        round_trip_s = counts.round_trip_ns / 1e9 if counts.round_trip_ns else None
        return ConnectionSample(round_trip_s, counts.resent, acknowledged, counts.trimmed, counts.timeouts)


@dataclass(frozen=True)
class MessageTransport:
    """Messages as a :class:`traffic.transport.connection.Transport`. ``reordering``: how many later packets make a
    missing one count as lost (None: one); ``answers_ahead``: answers and credits travel in the control lane."""

    options: SocketOptions
    config: MessageConfig = field(default_factory=MessageConfig)
    nic: Nic = Nic()
    reordering: int | None = None
    answers_ahead: bool = False

    def _make(self, sock: socket.socket) -> MessageConnection:
        return MessageConnection(self, sock)

    def listen(self, address: str, port: int = 0) -> StreamListener:
        """Listen on an address."""
        return StreamListener(tcp.listen(address, port, self.options), self.options, self._make)

    def connect(self, endpoint: Endpoint, timeout_s: float, source: str = "") -> StreamConnection:
        """Connect to who listens, tried again until it is too late."""
        return connected(endpoint, self.options, self._make, timeout_s, source)

    def dial(self, endpoint: Endpoint, source: str = "") -> StreamDial:
        """Send a SYN."""
        return StreamDial(tcp.begun(endpoint, self.options, source), endpoint, self.options, self._make)
