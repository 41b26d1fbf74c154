"""RDMA writes as a transport: between hosts with RDMA devices, in place of TCP.

A connection is a stream over two queue pairs, one per direction (``verbs_streams.c``). Its ends meet over TCP
(:mod:`traffic.transport.streams`).

The C part is compiled at run time against libibverbs, whose calls on the data path are inline functions of its header.
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

from fabric.errors import EmulationError, TrafficError
from fabric.world.engine import Engine
from fabric.world.programs import verbs
from fabric.world.programs.preload import cached_library
from traffic.transport import tcp
from traffic.transport.connection import ConnectionEndedError, ConnectionSample, DataPorts, Endpoint, SocketOptions
from traffic.transport.queue_pairs import ROCE_PORT, QueuePairConfig, counts_of, udp_source_port
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

_HEADER = Path("/usr/include/infiniband/verbs.h")
_SOURCE = Path(__file__).with_name("verbs_streams.c")
_DESCRIPTION = struct.Struct("=16sQIIII")
"""As ``struct description`` has it; its last two numbers are of queue pairs, outward and inward."""


def require(engine: Engine) -> None:
    """Raise UsageError if hosts cannot have RDMA devices in an engine on this machine, EmulationError if our part of
    the transport cannot be built."""
    verbs.require(engine, "transport.kind")
    _built()


def _built() -> Path:
    """Return the C part, built into the user's cache if it is not yet."""
    if not _HEADER.exists():
        raise EmulationError("transport.kind: verbs needs libibverbs: apt-get install libibverbs-dev ibverbs-providers")
    return cached_library("verbs_streams", [_SOURCE], "a transport of RDMA writes", ["-libverbs"])


@functools.cache
def _library() -> ctypes.CDLL:
    text = ctypes.c_char_p
    own = (
        ("nic", HANDLE, [text]),
        ("end", HANDLE, [HANDLE, SIZE, NUMBER, text]),
        ("join", NUMBER, [HANDLE, text, ctypes.c_uint8, SIZE, NUMBER, NUMBER]),
    )
    return library(str(_built()), own)


_nics: dict[str, int] = {}
_nics_lock = threading.Lock()


def _nic_of(address: str) -> int:
    """Return the NIC of an address, found once per process. Raises TrafficError if the host has none."""
    with _nics_lock:
        if address not in _nics:
            found = _library().fabric_nic(address.encode())
            if found is None:
                code = ctypes.get_errno()
                raise TrafficError(f"{address}: no RDMA device of this address on the host: {os.strerror(code)}")
            _nics[address] = found
        return _nics[address]


class VerbsConnection(StreamConnection):
    """Two queue pairs as a :class:`traffic.transport.connection.Connection`.

    It does not measure round trips."""

    _DESCRIPTION_BYTES = _DESCRIPTION.size

    def __init__(self, options: SocketOptions, pairs: QueuePairConfig, sock: socket.socket) -> None:
        self._pairs = pairs
        self._source_port: int | None = None
        super().__init__(_library(), sock, options)

    def _begun(self, ring_bytes: int) -> int:
        found: int | None = self._library.fabric_end(
            _nic_of(self.local[0]), ring_bytes, self._sock.fileno(), self.description
        )
        if found is None:
            raise TrafficError(f"{self._name()}: no queue pair: {os.strerror(ctypes.get_errno())}")
        return found

    def join(self, description: bytes) -> None:
        """Connect to the end that is described. Raises TrafficError."""
        label, pairs = self._pairs.flow_label(self._name()), self._pairs
        waits = (pairs.timeout_exponent, pairs.retries)
        if error := self._library.fabric_join(self._handle, description, self._options.level.tos, label, *waits):
            raise TrafficError(f"{self._name()}: queue pairs cannot be connected: {os.strerror(-error)}")
        *_, inward = _DESCRIPTION.unpack(description)
        self._source_port = udp_source_port(label, self._number, inward)

    @property
    def _number(self) -> int:
        """The number of the queue pair that sends."""
        number: int = _DESCRIPTION.unpack(self.description.raw)[-2]
        return number

    @property
    def data_ports(self) -> DataPorts:
        """UDP, from the source port of the queue pair that sends."""
        if self._source_port is None:
            raise ConnectionEndedError(f"{self._name()}: its queue pairs were never connected")
        return DataPorts(socket.IPPROTO_UDP, self._source_port, ROCE_PORT)

    def sample(self) -> ConnectionSample:
        """Return the bytes that the peer's NIC has acknowledged, and what the queue pair that sends has counted."""
        acknowledged, counts = self._acknowledged()[1], counts_of(self._number)
        if counts is None:
            return ConnectionSample(None, None, acknowledged)
        return ConnectionSample(None, counts.resent, acknowledged, counts.naks, counts.timeouts, counts.cnps_received)

    def _which(self) -> str:
        return f", queue pair {self._number}"


@dataclass(frozen=True)
class VerbsTransport:
    """RDMA writes as a :class:`traffic.transport.connection.Transport`."""

    options: SocketOptions
    pairs: QueuePairConfig = field(default_factory=QueuePairConfig)

    def _make(self, sock: socket.socket) -> VerbsConnection:
        return VerbsConnection(self.options, self.pairs, sock)

    def listen(self, address: str, port: int = 0) -> StreamListener:
        """Listen on an address."""
        sock = tcp.listen(address, port, self.options)
        _nic_of(sock.getsockname()[0])
        return StreamListener(sock, self.options, self._make)

    def connect(self, endpoint: Endpoint, timeout_s: float, source: str = "") -> StreamConnection:
        """Connect to who listens, tried again until it is too late."""
        return connected(endpoint, self.options, self._make, timeout_s, source)

    def dial(self, endpoint: Endpoint, source: str = "") -> StreamDial:
        """Send a SYN."""
        return StreamDial(tcp.begun(endpoint, self.options, source), endpoint, self.options, self._make)
