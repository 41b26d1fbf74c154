"""RDMA writes as a transport: between hosts with RDMA devices, in place of TCP.

A connection is a stream over two queue pairs, one per direction (``verbs_streams.c``). Its ends meet over TCP, as
NCCL's do, and keep that connection to hear of each other's end; no data goes over it. A listener answers in a thread of
its own, so a caller is connected before the server accepts it, as with the kernel's TCP.

The C part is compiled at run time against libibverbs, whose calls on the data path are inline functions of its header.
It waits and copies without Python's lock.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import functools
import os
import queue
import select
import socket
import struct
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from fabric.errors import EmulationError, TrafficError
from fabric.world.engine import Engine
from fabric.world.programs import verbs
from fabric.world.programs.preload import cached_library
from traffic.transport import tcp
from traffic.transport.connection import (
    ConnectionEndedError,
    ConnectionSample,
    DataPorts,
    Endpoint,
    PollFor,
    Readable,
    SilentPeerError,
    SocketOptions,
    UnreachableError,
    Writable,
)
from traffic.transport.queue_pairs import ROCE_PORT, QueuePairConfig, counts_of, udp_source_port

RING_BYTES = 2**20
"""What a sender may have ahead of its receiver, unless a receive window says otherwise."""
_HEADER = Path("/usr/include/infiniband/verbs.h")
_SOURCE = Path(__file__).with_name("verbs_streams.c")
_DESCRIPTION = struct.Struct("=16sQIIII")
"""As ``struct description`` has it; its last two numbers are of queue pairs, outward and inward."""
_MEETING_S = 10.0
"""How long an end waits for the other's description."""
_FLUSH_MS = 1000
_READY = b"+"


class _Piece(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("size", ctypes.c_size_t))


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
    found = ctypes.CDLL(str(_built()), use_errno=True)
    handle, pieces, text = ctypes.c_void_p, ctypes.POINTER(_Piece), ctypes.c_char_p
    number, size = ctypes.c_int, ctypes.c_uint32
    for name, answer, arguments in (
        ("nic", handle, [text]),
        ("end", handle, [handle, size, number, text]),
        ("join", number, [handle, text, ctypes.c_uint8, size, number, number]),
        ("send", ctypes.c_int64, [handle, pieces, number, number]),
        ("unacknowledged", ctypes.c_int64, [handle, ctypes.POINTER(ctypes.c_int64)]),
        ("limit", None, [handle, size]),
        ("poll_room", number, [handle]),
        ("receive", number, [handle, pieces, number, number]),
        ("receive_now", ctypes.c_int64, [handle, handle, ctypes.c_uint64]),
        ("arrived", ctypes.c_int64, [handle]),
        ("poll_arrivals", number, [handle]),
        ("flush", None, [handle, number]),
        ("close", None, [handle]),
        ("free", None, [handle]),
    ):
        function = getattr(found, f"fabric_{name}")
        function.restype, function.argtypes = answer, arguments
    return found


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


def _pieces(buffers: Sequence[Readable | Writable]) -> tuple[ctypes.Array[_Piece], int]:
    """Return buffers as C has them, and their bytes. They must outlive it."""
    found, all_bytes = (_Piece * len(buffers))(), 0
    for place, one in enumerate(buffers):
        size = len(one)
        if size:
            found[place] = _Piece(np.frombuffer(one, np.uint8).__array_interface__["data"][0], size)
        all_bytes += size
    return found, all_bytes


def _ms(wait_s: float | None) -> int:
    return -1 if wait_s is None else max(1, round(wait_s * 1000))


class VerbsConnection:
    """Two queue pairs as a :class:`traffic.transport.connection.Connection`.

    It does not measure round trips."""

    def __init__(self, sock: socket.socket, options: SocketOptions, pairs: QueuePairConfig) -> None:
        self._library = _library()
        self._sock = sock
        self._level, self._pairs = options.level, pairs
        self._source_port: int | None = None
        self._send_s: float | None = None
        self._silent_s: float | None = None
        self._has_ended = False
        self.local: Endpoint = sock.getsockname()
        self.peer: Endpoint = sock.getpeername()
        self.description = ctypes.create_string_buffer(_DESCRIPTION.size)
        ring = options.receive_window_bytes or RING_BYTES
        self._handle = self._library.fabric_end(_nic_of(self.local[0]), ring, sock.fileno(), self.description)
        if self._handle is None:
            raise TrafficError(f"{self._name()}: no queue pair: {os.strerror(ctypes.get_errno())}")

    def join(self, description: bytes) -> None:
        """Connect to the end that is described. Raises TrafficError."""
        label, pairs = self._pairs.flow_label(self._name()), self._pairs
        waits = (pairs.timeout_exponent, pairs.retries)
        if error := self._library.fabric_join(self._handle, description, self._level.tos, label, *waits):
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

    def set_timeouts(self, send_s: float, silent_s: float) -> None:
        """Limit what :meth:`send` and :meth:`receive` wait."""
        self._send_s, self._silent_s = send_s, silent_s

    def limit_send_buffer(self, size_bytes: int) -> None:
        """Have less under way, but no less than half of the peer's ring."""
        self._library.fabric_limit(self._handle, size_bytes)

    def send(self, buffers: Sequence[Readable]) -> int:
        """Send as much as goes before the timeout."""
        return self._sent(buffers, _ms(self._send_s))

    def send_at_once(self, buffers: Sequence[Readable]) -> int:
        """Send as much as the peer's ring takes."""
        return self._sent(buffers, 0)

    def _sent(self, buffers: Sequence[Readable], wait_ms: int) -> int:
        pieces, _ = _pieces(buffers)
        return self._checked(self._library.fabric_send(self._handle, pieces, len(buffers), wait_ms))

    @property
    def poll_for_room(self) -> PollFor:
        """Room in the peer's ring."""
        return PollFor(self._checked(self._library.fabric_poll_room(self._handle)), select.POLLIN)

    @property
    def undelivered_bytes(self) -> int:
        """How much the peer's NIC has not acknowledged or, while its ring is full, the peer has not taken out."""
        return self._acknowledged()[0]

    def _acknowledged(self) -> tuple[int, int]:
        """Return the unacknowledged and the acknowledged bytes."""
        acknowledged = ctypes.c_int64()
        left = self._checked(self._library.fabric_unacknowledged(self._handle, ctypes.byref(acknowledged)))
        return left, acknowledged.value

    def receive(self, buffers: Sequence[Writable]) -> None:
        """Fill the buffers."""
        pieces, _ = _pieces(buffers)
        self._checked(self._library.fabric_receive(self._handle, pieces, len(buffers), _ms(self._silent_s)))

    def receive_at_once(self, into: Writable) -> int:
        """Receive what is there."""
        pieces, size = _pieces([into])
        return self._checked(self._library.fabric_receive_now(self._handle, pieces[0].base, size))

    @property
    def poll_for_arrivals(self) -> PollFor:
        """Data in this end's ring."""
        return PollFor(self._checked(self._library.fabric_poll_arrivals(self._handle)), select.POLLIN)

    def wake_at(self, size_bytes: int) -> None:
        """Do nothing: a receiver wakes once a message, or a quarter of the ring, has arrived."""

    @property
    def received_bytes(self) -> int:
        """How many bytes have been written into this end's ring."""
        return int(self._library.fabric_arrived(self._handle))

    @property
    def reorderings(self) -> None:
        """A NIC does not count them."""
        self._acknowledged()

    def sample(self) -> ConnectionSample:
        """Return the bytes that the peer's NIC has acknowledged, and what the queue pair that sends has counted."""
        acknowledged, counts = self._acknowledged()[1], counts_of(self._number)
        if counts is None:
            return ConnectionSample(None, None, acknowledged)
        return ConnectionSample(None, counts.resent, acknowledged, counts.naks, counts.timeouts, counts.cnps_received)

    def abort(self) -> None:
        """End the connection over which the ends met: both wait for that, too."""
        self._has_ended = True
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Wait until all that was sent has arrived, abort, and free the queue pairs."""
        if not self._has_ended:
            self._library.fabric_flush(self._handle, _FLUSH_MS)
        self.abort()
        self._library.fabric_close(self._handle)
        self._sock.close()

    def __del__(self) -> None:
        if getattr(self, "_handle", None) is not None:
            self.close()  # Else the end of the socket could overtake, on another path, what was sent last.
            self._library.fabric_free(self._handle)

    def _checked(self, answer: int) -> int:
        if answer >= 0:
            return answer
        if answer == -errno.ETIMEDOUT:
            raise SilentPeerError(f"{self._name()}: nothing came for {self._silent_s:g} s")
        raise ConnectionEndedError(f"{self._name()}, queue pair {self._number}: {os.strerror(-answer)}")

    def _name(self) -> str:
        return "{}:{} to {}:{}".format(*self.local, *self.peer)


# Meeting -------------------------------------------------------------------------------------------------------------


def _heard(sock: socket.socket, size_bytes: int) -> bytes:
    """Return ``size_bytes`` from the other end. Raises OSError if they do not arrive in time."""
    sock.settimeout(_MEETING_S)
    heard = sock.recv(size_bytes, socket.MSG_WAITALL)
    sock.settimeout(None)
    if len(heard) < size_bytes:
        raise ConnectionResetError(errno.ECONNRESET, os.strerror(errno.ECONNRESET))
    return heard


def _introduced(sock: socket.socket, options: SocketOptions, pairs: QueuePairConfig) -> VerbsConnection:
    """Return an end that has told the listener of itself."""
    found = VerbsConnection(sock, options, pairs)
    sock.sendall(found.description.raw)
    return found


def _answered(found: VerbsConnection, sock: socket.socket) -> VerbsConnection:
    """Return an end once it has heard of the listener's."""
    found.join(_heard(sock, _DESCRIPTION.size))
    sock.sendall(_READY)
    return found


class VerbsDial:
    """A :class:`traffic.transport.connection.Dial`: first the TCP connection is answered, then the queue pairs."""

    def __init__(self, sock: socket.socket, endpoint: Endpoint, options: SocketOptions, pairs: QueuePairConfig) -> None:
        self._sock = sock
        self._tcp = tcp.TcpDial(sock, endpoint, options)
        self._endpoint, self._options, self._pairs = endpoint, options, pairs
        self._begun: VerbsConnection | None = None

    @property
    def poll_for_answer(self) -> PollFor:
        """The TCP socket, writable, then readable."""
        return self._tcp.poll_for_answer if self._begun is None else PollFor(self._sock.fileno(), select.POLLIN)

    def answered(self) -> VerbsConnection | None:
        """Return the connection once the listener has described its end."""
        try:
            if self._begun is None:
                self._tcp.answered()
                self._begun = _introduced(self._sock, self._options, self._pairs)
                return None
            return _answered(self._begun, self._sock)
        except OSError as error:
            self.close()
            raise UnreachableError("{}:{}: cannot connect: {}".format(*self._endpoint, error)) from error

    def close(self) -> None:
        """Give it up."""
        if self._begun is not None:
            self._begun.close()
        self._sock.close()


class VerbsListener:
    """A :class:`traffic.transport.connection.Listener` whose thread answers who dials."""

    def __init__(self, sock: socket.socket, options: SocketOptions, pairs: QueuePairConfig) -> None:
        self._sock = sock
        self._options, self._pairs = options, pairs
        self.endpoint: Endpoint = sock.getsockname()
        self._came: queue.SimpleQueue[VerbsConnection | Exception] = queue.SimpleQueue()
        self._callers = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_SEMAPHORE | os.EFD_CLOEXEC)
        _nic_of(self.endpoint[0])
        self._thread = threading.Thread(target=self._answer, daemon=True)
        self._thread.start()

    def _answer(self) -> None:
        while True:
            try:
                sock = tcp.accept_alike(self._sock, self._options)
            except OSError:
                return  # It is shut down.
            found: VerbsConnection | None = None
            try:
                found = VerbsConnection(sock, self._options, self._pairs)
                found.join(_heard(sock, _DESCRIPTION.size))
                sock.sendall(found.description.raw)
                _heard(sock, len(_READY))
                self._came.put(found)
            except OSError:  # Who dialled has given it up.
                sock.close()
                continue
            except TrafficError as error:
                sock.close()
                self._came.put(error)
            os.eventfd_write(self._callers, 1)

    def accept(self, timeout_s: float) -> VerbsConnection:
        """Return the next connection."""
        try:
            found = self._came.get(timeout=timeout_s)
        except queue.Empty as error:
            name = "{}:{}".format(*self.endpoint)
            raise UnreachableError(f"{name}: nobody connected within {timeout_s:g} s") from error
        return self._counted(found)

    def accept_at_once(self) -> VerbsConnection | None:
        """Return the next connection, if one has come."""
        try:
            return self._counted(self._came.get_nowait())
        except queue.Empty:
            return None

    def _counted(self, found: VerbsConnection | Exception) -> VerbsConnection:
        with contextlib.suppress(BlockingIOError):  # It came a moment ago.
            os.eventfd_read(self._callers)
        if isinstance(found, Exception):
            raise found
        return found

    @property
    def poll_for_callers(self) -> PollFor:
        """A count of those who came."""
        return PollFor(self._callers, select.POLLIN)

    def close(self) -> None:
        """Take no more connections."""
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)
        self._thread.join(_MEETING_S)
        self._sock.close()
        with contextlib.suppress(queue.Empty):
            while True:
                left = self._came.get_nowait()
                if isinstance(left, VerbsConnection):
                    left.close()
        os.close(self._callers)


@dataclass(frozen=True)
class VerbsTransport:
    """RDMA writes as a :class:`traffic.transport.connection.Transport`."""

    options: SocketOptions
    pairs: QueuePairConfig = field(default_factory=QueuePairConfig)

    def listen(self, address: str, port: int = 0) -> VerbsListener:
        """Listen on an address."""
        return VerbsListener(tcp.listen(address, port, self.options), self.options, self.pairs)

    def connect(self, endpoint: Endpoint, timeout_s: float, source: str = "") -> VerbsConnection:
        """Connect to who listens, tried again until it is too late."""
        sock = tcp.connect(*endpoint, self.options, timeout_s, source)
        try:
            return _answered(_introduced(sock, self.options, self.pairs), sock)
        except OSError as error:
            sock.close()
            raise UnreachableError("{}:{}: cannot connect: {}".format(*endpoint, error)) from error

    def dial(self, endpoint: Endpoint, source: str = "") -> VerbsDial:
        """Send a SYN."""
        return VerbsDial(tcp.begun(endpoint, self.options, source), endpoint, self.options, self.pairs)
