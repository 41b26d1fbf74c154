"""Connections whose data a library in C moves, beside a TCP connection over which their ends met.

The ends describe themselves to each other over TCP, as NCCL's do, and keep that connection to hear of each other's end;
no data goes over it. A listener answers in a thread of its own, so a caller is connected before the server accepts it,
as with the kernel's TCP. Libraries wait and copy without Python's lock, and have functions of the same names and
meanings: ``verbs_streams.c``, ``messages_port.c``.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import queue
import select
import socket
import threading
from collections.abc import Callable, Sequence

import numpy as np

from fabric.errors import TrafficError
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

RING_BYTES = 2**20
"""What a sender may have ahead of its receiver, unless a receive window says otherwise."""
_MEETING_S = 10.0
"""How long an end waits for the other's description."""
_FLUSH_MS = 1000
_READY = b"+"


class _Piece(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("size", ctypes.c_size_t))


HANDLE, NUMBER, SIZE = ctypes.c_void_p, ctypes.c_int, ctypes.c_uint32
_PIECES = ctypes.POINTER(_Piece)


def library(path: str, own: Sequence[tuple[str, object, Sequence[object]]]) -> ctypes.CDLL:
    """Return a library with the functions that all have, and its ``own``: names, without ``fabric_``, answers and
    arguments."""
    found = ctypes.CDLL(path, use_errno=True)
    for name, answer, arguments in (
        *own,
        ("send", ctypes.c_int64, [HANDLE, _PIECES, NUMBER, NUMBER]),
        ("unacknowledged", ctypes.c_int64, [HANDLE, ctypes.POINTER(ctypes.c_int64)]),
        ("limit", None, [HANDLE, SIZE]),
        ("poll_room", NUMBER, [HANDLE]),
        ("receive", NUMBER, [HANDLE, _PIECES, NUMBER, NUMBER]),
        ("receive_now", ctypes.c_int64, [HANDLE, HANDLE, ctypes.c_uint64]),
        ("arrived", ctypes.c_int64, [HANDLE]),
        ("poll_arrivals", NUMBER, [HANDLE]),
        ("flush", None, [HANDLE, NUMBER]),
        ("close", None, [HANDLE]),
        ("free", None, [HANDLE]),
    ):
        function = getattr(found, f"fabric_{name}")
        function.restype, function.argtypes = answer, arguments
    return found


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


class StreamConnection:
    """A :class:`traffic.transport.connection.Connection` over a library. One that is made of it says what its ends
    describe (``_DESCRIPTION_BYTES``), makes its handle (``_begun``), and joins it to the other end's (:meth:`join`)."""

    _DESCRIPTION_BYTES: int

    def __init__(self, found: ctypes.CDLL, sock: socket.socket, options: SocketOptions) -> None:
        self._library = found
        self._sock = sock
        self._options = options
        self._send_s: float | None = None
        self._silent_s: float | None = None
        self._has_ended = False
        self.local: Endpoint = sock.getsockname()
        self.peer: Endpoint = sock.getpeername()
        self.description = ctypes.create_string_buffer(self._DESCRIPTION_BYTES)
        self._handle = self._begun(options.receive_window_bytes or RING_BYTES)

    def _begun(self, ring_bytes: int) -> int:
        """Return the handle of an end, which is described by then. Raises TrafficError."""
        raise NotImplementedError

    def join(self, description: bytes) -> None:
        """Connect to the end that is described. Raises TrafficError."""
        raise NotImplementedError

    def met(self) -> None:
        """Both ends have joined: nothing comes over TCP any more but the end."""

    @property
    def data_ports(self) -> DataPorts:
        """What ECMP tells this end's data by."""
        raise NotImplementedError

    def sample(self) -> ConnectionSample:
        """Return what the connection says now. Raises ConnectionEndedError once it is closed."""
        raise NotImplementedError

    @property
    def description_bytes(self) -> int:
        """How long a description is."""
        return self._DESCRIPTION_BYTES

    def set_timeouts(self, send_s: float, silent_s: float) -> None:
        """Limit what :meth:`send` and :meth:`receive` wait."""
        self._send_s, self._silent_s = send_s, silent_s

    def limit_send_buffer(self, size_bytes: int) -> None:
        """Have less under way."""
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
        """How much the peer has not acknowledged or, while its ring is full, has not taken out."""
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
        """How many bytes have come into this end's ring."""
        return int(self._library.fabric_arrived(self._handle))

    @property
    def reorderings(self) -> None:
        """Nobody counts them."""
        self._acknowledged()

    def abort(self) -> None:
        """End the connection over which the ends met: both wait for that, too."""
        self._has_ended = True
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Wait until all that was sent has arrived, abort, and free this end."""
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
        raise ConnectionEndedError(f"{self._name()}{self._which()}: {os.strerror(-answer)}")

    def _which(self) -> str:
        """Return what else an error says of this end."""
        return ""

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


Make = Callable[[socket.socket], StreamConnection]
"""Makes the end of a connection whose ends meet over a socket."""


def _introduced(sock: socket.socket, make: Make) -> StreamConnection:
    """Return an end that has told the listener of itself."""
    found = make(sock)
    sock.sendall(found.description.raw)
    return found


def _answered(found: StreamConnection, sock: socket.socket) -> StreamConnection:
    """Return an end once it has heard of the listener's."""
    found.join(_heard(sock, found.description_bytes))
    sock.sendall(_READY)
    found.met()
    return found


def connected(
    endpoint: Endpoint, options: SocketOptions, make: Make, timeout_s: float, source: str
) -> StreamConnection:
    """Return a connection to who listens, tried again until it is too late. Raises UnreachableError."""
    sock = tcp.connect(*endpoint, options, timeout_s, source)
    try:
        return _answered(_introduced(sock, make), sock)
    except OSError as error:
        sock.close()
        raise UnreachableError("{}:{}: cannot connect: {}".format(*endpoint, error)) from error


class StreamDial:
    """A :class:`traffic.transport.connection.Dial`: first the TCP connection is answered, then the other end."""

    def __init__(self, sock: socket.socket, endpoint: Endpoint, options: SocketOptions, make: Make) -> None:
        self._sock = sock
        self._tcp = tcp.TcpDial(sock, endpoint, options)
        self._endpoint, self._make = endpoint, make
        self._begun: StreamConnection | None = None

    @property
    def poll_for_answer(self) -> PollFor:
        """The TCP socket, writable, then readable."""
        return self._tcp.poll_for_answer if self._begun is None else PollFor(self._sock.fileno(), select.POLLIN)

    def answered(self) -> StreamConnection | None:
        """Return the connection once the listener has described its end."""
        try:
            if self._begun is None:
                self._tcp.answered()
                self._begun = _introduced(self._sock, self._make)
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


class StreamListener:
    """A :class:`traffic.transport.connection.Listener` whose thread answers who dials."""

    def __init__(self, sock: socket.socket, options: SocketOptions, make: Make) -> None:
        self._sock = sock
        self._options, self._make = options, make
        self.endpoint: Endpoint = sock.getsockname()
        self._came: queue.SimpleQueue[StreamConnection | Exception] = queue.SimpleQueue()
        self._callers = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_SEMAPHORE | os.EFD_CLOEXEC)
        self._thread = threading.Thread(target=self._answer, daemon=True)
        self._thread.start()

    def _answer(self) -> None:
        while True:
            try:
                sock = tcp.accept_alike(self._sock, self._options)
            except OSError:
                return  # It is shut down.
            found: StreamConnection | None = None
            try:
                found = self._make(sock)
                found.join(_heard(sock, found.description_bytes))
                sock.sendall(found.description.raw)
                _heard(sock, len(_READY))
                found.met()
                self._came.put(found)
            except OSError:  # Who dialled has given it up.
                sock.close()
                continue
            except TrafficError as error:
                sock.close()
                self._came.put(error)
            os.eventfd_write(self._callers, 1)

    def accept(self, timeout_s: float) -> StreamConnection:
        """Return the next connection."""
        try:
            found = self._came.get(timeout=timeout_s)
        except queue.Empty as error:
            name = "{}:{}".format(*self.endpoint)
            raise UnreachableError(f"{name}: nobody connected within {timeout_s:g} s") from error
        return self._counted(found)

    def accept_at_once(self) -> StreamConnection | None:
        """Return the next connection, if one has come."""
        try:
            return self._counted(self._came.get_nowait())
        except queue.Empty:
            return None

    def _counted(self, found: StreamConnection | Exception) -> StreamConnection:
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
                if isinstance(left, StreamConnection):
                    left.close()
        os.close(self._callers)
