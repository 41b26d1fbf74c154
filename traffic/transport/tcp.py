"""The kernel's TCP: sockets with a Service Level and a congestion control of its own, and TCP_INFO.

:class:`TcpTransport` is what programs of any transport take; others hold sockets themselves. Every socket is made by
:func:`listen`, :func:`accept`, :func:`connect` or :func:`unconnected`, or is given its options by :func:`configure`, so
that no connection can carry the wrong DSCP or the kernel's default congestion control by mistake.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import socket
import struct
import termios
import time
from collections.abc import Sequence
from dataclasses import dataclass

from fabric.errors import TrafficError
from fabric.world.kernel_api.timeval import timeval
from traffic.congestion_control import STEERED_BY_ECN
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
    after,
)

_CONNECT_TRY_S = 2.5
"""Long enough for a SYN and, after 1 s, another."""
_WITHOUT_END = bytes(16)
"""A struct timeval: no timeout."""
_SO_SNDBUFFORCE, _SO_RCVBUFFORCE = 32, 33  # asm-generic/socket.h
_LOW_WATER_BYTES = 256 * 1024
"""At most so much is waited for before it is received."""
_MOST_PIECES = 1024  # linux/uio.h: UIO_MAXIOV
_PEER_ENDED = "the peer has ended the connection"
_TCP_INFO_BYTES = 224
_OPTIONS, _HAS_ECN = 5, 8
"""Of a struct tcp_info: where tcpi_options is, and TCPI_OPT_ECN in it."""
_U32_START = 8  # struct tcp_info (linux/tcp.h): eight bytes of flags, then 32-bit fields, then 64-bit ones.
_LAST_DATA_RECEIVED = _U32_START + 4 * 11
_BYTES_ACKED = _U32_START + 4 * 24 + 8 * 2
_BYTES_RECEIVED = _BYTES_ACKED + 8
_SAMPLED = struct.Struct("=68xI28xI16xQ")
"""Of a struct tcp_info: rtt (32-bit field 15), total_retrans (23), bytes_acked (the third of the 64-bit ones)."""
_REORDERINGS = _U32_START + 4 * 24 + 8 * 4 + 4 * 6 + 8 * 4 + 4 * 2 + 8 * 2 + 4  # Linux 4.19


def configure(sock: socket.socket, options: SocketOptions) -> None:
    """Give a socket its options. Raises TrafficError if the kernel lacks the congestion control."""
    sock.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, options.level.tos)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    try:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, options.congestion_control.encode())
    except OSError as error:
        with open("/proc/sys/net/ipv4/tcp_available_congestion_control") as file:  # noqa: PTH123 - one short read
            available = file.read().split()
        raise TrafficError(
            f"congestion control {options.congestion_control!r} of {options.level.label}: {error.strerror}; "
            f"this kernel has {', '.join(available)}"
        ) from error
    if options.user_timeout_s is not None:
        timeout_ms = max(1, round(options.user_timeout_s * 1000))
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, timeout_ms)
    if options.receive_window_bytes is not None:
        fix_receive_window(sock, options.receive_window_bytes)


def fix_receive_window(sock: socket.socket, size_bytes: int) -> None:
    """Hold the window that a socket offers at a size, before it is connected, instead of letting it grow.

    How fast and how far it grows differs by kernel, and so would queues and drops. The kernel doubles a buffer's size
    and offers about half of that: 6.1 exactly, 6.18 by what its packets' memory comes to (0.46 for frames of 4,214 B,
    nearly all for loopback's). Forced, which takes CAP_NET_ADMIN, since the machine's limit (net.core.rmem_max) is
    below what fast links need.
    """
    try:
        sock.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, size_bytes)
    except PermissionError:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, size_bytes)
        got = sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) // 2
        if got < size_bytes:
            raise TrafficError(
                f"receive_window: {size_bytes} B exceeds the {got} B that this account may have "
                "(net.core.rmem_max); be root or lower it"
            ) from None
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_WINDOW_CLAMP, size_bytes)


def listen(address: str, port: int, options: SocketOptions) -> socket.socket:
    """Return a socket listening on ``address``; port 0 takes a free one."""
    sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    configure(sock, options)
    sock.bind((address, port))
    sock.listen(1024)
    return sock


def accept(listener: socket.socket, options: SocketOptions, timeout_s: float) -> tuple[socket.socket, str]:
    """Return the next connection and its peer's address. Raises UnreachableError after ``timeout_s``."""
    listener.settimeout(timeout_s)
    try:
        sock, (address, _) = listener.accept()
    except TimeoutError as error:
        name = "{}:{}".format(*listener.getsockname())
        raise UnreachableError(f"{name}: nobody connected within {timeout_s:g} s") from error
    sock.settimeout(None)
    configure(sock, options)
    _require_ecn(sock, options)
    return sock, address


def accept_alike(listener: socket.socket, options: SocketOptions) -> socket.socket:
    """Return the next connection, whenever it comes, of a listener with these options that waits without a timeout.
    Raises OSError once that is shut down.

    For those who take thousands: a connection has its listener's options from the kernel, but for the window's limit,
    and takes three system calls instead of a dozen.
    """
    sock, _ = listener.accept()
    if options.receive_window_bytes is not None:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_WINDOW_CLAMP, options.receive_window_bytes)
    return sock


def unconnected(options: SocketOptions, source: str = "") -> socket.socket:
    """Return a socket that is to be connected from the address ``source`` (empty: any)."""
    sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        configure(sock, options)
        if source:
            sock.bind((source, 0))
    except BaseException:
        sock.close()
        raise
    return sock


def connect(address: str, port: int, options: SocketOptions, timeout_s: float, source: str = "") -> socket.socket:
    """Return a connection to ``address:port``, tried again until ``timeout_s`` is over; then raises UnreachableError.

    Each try is short: left alone, the kernel would ask after 1, 3, 7, 15, 31 s, and so find a route late that is back.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        sock: socket.socket | None = None
        try:
            sock = unconnected(options, source)
            _connect_within(sock, (address, port), min(_CONNECT_TRY_S, max(0.01, deadline - time.monotonic())))
        except OSError as error:
            if sock is not None:
                sock.close()
            if time.monotonic() >= deadline:
                raise UnreachableError(f"{address}:{port}: cannot connect within {timeout_s:g} s: {error}") from error
            time.sleep(0.02)
        else:
            _require_ecn(sock, options)
            return sock


def _connect_within(sock: socket.socket, endpoint: Endpoint, timeout_s: float) -> None:
    """Connect a socket. Raises OSError. The kernel keeps the time: Python would make five calls of one."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, timeval(timeout_s))
    try:
        sock.connect(endpoint)
    except BlockingIOError as error:
        raise TimeoutError("timed out") from error
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, _WITHOUT_END)


def _require_ecn(sock: socket.socket, options: SocketOptions) -> None:
    """Raise TrafficError if a connection steers by marks and cannot have any: its two ends must agree on ECN."""
    if options.congestion_control not in STEERED_BY_ECN or agreed_on_ecn(sock):
        return
    peer = "{}:{}".format(*sock.getpeername())
    sock.close()
    raise TrafficError(
        f"{peer}: no ECN on a connection with {options.congestion_control}; its other end, and the socket that listens "
        f"there, must have {options.congestion_control}, too"
    )


def agreed_on_ecn(sock: socket.socket) -> bool:
    """Return whether the two ends of a connection have agreed on ECN."""
    return bool(sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _OPTIONS + 1)[_OPTIONS] & _HAS_ECN)


def sample_of(sock: socket.socket) -> ConnectionSample:
    """Return what TCP says of a connection. Raises OSError once it is closed."""
    raw = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _SAMPLED.size)
    rtt_us, retransmissions, acknowledged = _SAMPLED.unpack(raw)
    return ConnectionSample(rtt_us / 1e6, retransmissions, acknowledged)


def silent_s(sock: socket.socket) -> float:
    """Return for how long no data has arrived in order, in seconds, to the kernel's millisecond or jiffy; long if none
    ever has."""
    raw = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO_BYTES)
    (silent_ms,) = struct.unpack_from("=I", raw, _LAST_DATA_RECEIVED)
    return float(silent_ms) / 1e3


def unacknowledged_bytes(sock: socket.socket) -> int:
    """Return how much of what was sent the peer's kernel has not acknowledged."""
    (size,) = struct.unpack("i", fcntl.ioctl(sock, termios.TIOCOUTQ, bytes(4)))
    return int(size)


def reorderings(sock: socket.socket) -> int:
    """Return how often TCP has found that a packet which it took for late had only been overtaken by others."""
    raw = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO_BYTES)
    (count,) = struct.unpack_from("=I", raw, _REORDERINGS)
    return int(count)


def bytes_received(sock: socket.socket) -> int:
    """Return how many bytes a connection's peer has delivered, read by the program or not; 0 once it is closed."""
    return _count(sock, _BYTES_RECEIVED)


def bytes_acked(sock: socket.socket) -> int:
    """Return how many bytes a connection's peer has acknowledged; 0 once it is closed."""
    return _count(sock, _BYTES_ACKED)


def _count(sock: socket.socket, offset: int) -> int:
    try:
        raw = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO_BYTES)
    except OSError:
        return 0
    (count,) = struct.unpack_from("=Q", raw, offset)
    return int(count)


class TcpConnection:
    """A connected socket as a :class:`traffic.transport.connection.Connection`.

    A receive wakes once all of a message has arrived, or 256 KiB of it: a wake-up for each packet would cost more than
    all that programs do. A peer is silent while nothing arrives in order, however little came before.
    """

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._silent_s: float | None = None
        self._silent_ms: float | None = None
        self._low_water = 1
        readable = select.poll()
        readable.register(sock, select.POLLIN)
        self._poll = readable.poll

    @property
    def local(self) -> Endpoint:
        """This end's address and port."""
        try:
            address, port = self._sock.getsockname()
        except OSError as error:
            raise self._ended(error) from error
        return address, port

    @property
    def peer(self) -> Endpoint:
        """The other end's address and port."""
        try:
            address, port = self._sock.getpeername()
        except OSError as error:
            raise self._ended(error) from error
        return address, port

    @property
    def data_ports(self) -> DataPorts:
        """TCP and both ports."""
        return DataPorts(socket.IPPROTO_TCP, self.local[1], self.peer[1])

    def set_timeouts(self, send_s: float, silent_s: float) -> None:
        """Limit what :meth:`send` and :meth:`receive` wait."""
        self._silent_s, self._silent_ms = silent_s, silent_s * 1000
        self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, timeval(send_s))

    def limit_send_buffer(self, size_bytes: int) -> None:
        """Hold what is sent at a size. The kernel doubles it, for its own overhead; without CAP_NET_ADMIN, it is as
        much as the machine's limit lets one have."""
        try:
            self._sock.setsockopt(socket.SOL_SOCKET, _SO_SNDBUFFORCE, size_bytes)
        except PermissionError:
            self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, size_bytes)

    def send(self, buffers: Sequence[Readable]) -> int:
        """Send as much as goes before the timeout."""
        try:
            return self._sock.sendmsg(buffers)
        except BlockingIOError:
            return 0
        except OSError as error:
            raise self._ended(error) from error

    def send_at_once(self, buffers: Sequence[Readable]) -> int:
        """Send as much as the socket's buffer takes, of no more pieces than a call does."""
        try:
            if len(buffers) == 1:
                return self._sock.send(buffers[0], socket.MSG_DONTWAIT)
            pieces = buffers if len(buffers) <= _MOST_PIECES else buffers[:_MOST_PIECES]
            return self._sock.sendmsg(pieces, (), socket.MSG_DONTWAIT)
        except BlockingIOError:
            return 0
        except OSError as error:
            raise self._ended(error) from error

    @property
    def poll_for_room(self) -> PollFor:
        """The socket, writable."""
        return PollFor(self._sock.fileno(), select.POLLOUT)

    @property
    def undelivered_bytes(self) -> int:
        """How much of what was sent the peer's kernel has not acknowledged."""
        return unacknowledged_bytes(self._sock)

    def receive(self, buffers: Sequence[Writable]) -> None:
        """Fill the buffers: in one piece and few calls, as nearly all messages come."""
        waiting = buffers
        try:
            while waiting:
                wanted_bytes = sum(map(len, waiting))
                if wanted_bytes != self._low_water:
                    self._set_low_water(wanted_bytes)
                if not self._poll(self._silent_ms):
                    self._await_the_slow()
                received = self._received_into(waiting)
                if received == wanted_bytes:
                    return
                waiting = after([memoryview(one) for one in waiting], received)
        except OSError as error:
            raise self._ended(error) from error

    def receive_at_once(self, into: Writable) -> int:
        """Receive what is there."""
        try:
            received = self._sock.recv_into(into, 0, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return 0
        except OSError as error:
            raise self._ended(error) from error
        if received == 0:
            raise ConnectionEndedError(f"{self._name()}: {_PEER_ENDED}")
        return received

    @property
    def poll_for_arrivals(self) -> PollFor:
        """The socket, readable."""
        return PollFor(self._sock.fileno(), select.POLLIN)

    def wake_at(self, size_bytes: int) -> None:
        """Set the low-water mark. The kernel holds it below what the socket's buffer takes."""
        self._low_water = size_bytes
        try:
            self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, size_bytes)
        except OSError as error:
            raise self._ended(error) from error

    @property
    def received_bytes(self) -> int:
        """How many bytes the peer has delivered to the kernel."""
        return bytes_received(self._sock)

    def _set_low_water(self, wanted_bytes: int) -> None:
        """Have the receiver woken once enough has arrived."""
        self._low_water = wanted_bytes
        self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, min(wanted_bytes, _LOW_WATER_BYTES))

    def _await_the_slow(self) -> None:
        """Go on to wait for as long as something comes at all."""
        assert self._silent_s is not None, "without a timeout, poll waits until there is something"
        wait_s = self._silent_s - silent_s(self._sock)
        while wait_s > 0 and not self._poll(wait_s * 1000):
            wait_s = self._silent_s - silent_s(self._sock)
        if wait_s <= 0:
            raise SilentPeerError(f"{self._name()}: nothing came for {self._silent_s:g} s")

    def _received_into(self, waiting: Sequence[Writable]) -> int:
        """Receive what is there. Without MSG_DONTWAIT the kernel would take less than the low-water mark (which it also
        hands out, e.g. short of memory) and then wait for as much again: forever, at the end of a step."""
        try:
            received = self._sock.recvmsg_into(waiting, 0, socket.MSG_DONTWAIT)[0]
        except BlockingIOError:
            return 0
        if received == 0:
            raise ConnectionEndedError(f"{self._name()}: {_PEER_ENDED}")
        return received

    def sample(self) -> ConnectionSample:
        """Return TCP_INFO's smoothed round-trip time, segments sent again and bytes acknowledged."""
        try:
            return sample_of(self._sock)
        except OSError as error:
            # Whoever samples many skips this one. To ask for the ends' names would let another thread run in between.
            raise ConnectionEndedError("the connection is closed") from error

    @property
    def reorderings(self) -> int:
        """What TCP has found."""
        try:
            return reorderings(self._sock)
        except OSError as error:
            raise self._ended(error) from error

    def abort(self) -> None:
        """Shut both directions down."""
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Shut both directions down and close the socket."""
        self.abort()
        self._sock.close()

    def _ended(self, error: OSError) -> ConnectionEndedError:
        return ConnectionEndedError(f"{self._name()}: {error}")

    def _name(self) -> str:
        try:
            return "{}:{} to {}:{}".format(*self._sock.getsockname(), *self._sock.getpeername())
        except OSError:
            return "a connection that has ended"


def begun(endpoint: Endpoint, options: SocketOptions, source: str) -> socket.socket:
    """Return a socket that has begun to connect. Raises UnreachableError."""
    sock: socket.socket | None = None
    try:
        sock = unconnected(options, source)
        sock.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            sock.connect(endpoint)
    except OSError as error:
        if sock is not None:
            sock.close()
        raise _unanswered(endpoint, error) from error
    return sock


def _unanswered(endpoint: Endpoint, error: OSError) -> UnreachableError:
    return UnreachableError("{}:{}: cannot connect: {}".format(*endpoint, error))


class TcpDial:
    """A socket that connects as a :class:`traffic.transport.connection.Dial`."""

    def __init__(self, sock: socket.socket, endpoint: Endpoint, options: SocketOptions) -> None:
        self._sock = sock
        self._endpoint = endpoint
        self._options = options

    @property
    def poll_for_answer(self) -> PollFor:
        """The socket, writable."""
        return PollFor(self._sock.fileno(), select.POLLOUT)

    def answered(self) -> TcpConnection:
        """Return the connection."""
        number = self._sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if number:
            self._sock.close()
            raise _unanswered(self._endpoint, OSError(number, os.strerror(number)))
        self._sock.setblocking(True)
        _require_ecn(self._sock, self._options)
        return TcpConnection(self._sock)

    def close(self) -> None:
        """Close the socket."""
        self._sock.close()


class TcpListener:
    """A listening socket as a :class:`traffic.transport.connection.Listener`."""

    def __init__(self, sock: socket.socket, options: SocketOptions) -> None:
        self._sock = sock
        self._options = options

    @property
    def endpoint(self) -> Endpoint:
        """Where peers can connect."""
        address, port = self._sock.getsockname()
        return address, port

    def accept(self, timeout_s: float) -> TcpConnection:
        """Return the next connection."""
        return TcpConnection(accept(self._sock, self._options, timeout_s)[0])

    def accept_at_once(self) -> TcpConnection | None:
        """Return the next connection, if one has come; a peer that has given it up meanwhile is passed over."""
        while True:
            try:
                return self.accept(0)
            except BlockingIOError:
                return None
            except ConnectionAbortedError:
                continue

    @property
    def poll_for_callers(self) -> PollFor:
        """The socket, readable."""
        return PollFor(self._sock.fileno(), select.POLLIN)

    def close(self) -> None:
        """Take no more connections."""
        self._sock.close()


@dataclass(frozen=True)
class TcpTransport:
    """TCP as a :class:`traffic.transport.connection.Transport`."""

    options: SocketOptions

    def listen(self, address: str, port: int = 0) -> TcpListener:
        """Listen on an address."""
        return TcpListener(listen(address, port, self.options), self.options)

    def connect(self, endpoint: Endpoint, timeout_s: float, source: str = "") -> TcpConnection:
        """Connect to who listens, tried again until it is too late."""
        return TcpConnection(connect(*endpoint, self.options, timeout_s, source))

    def dial(self, endpoint: Endpoint, source: str = "") -> TcpDial:
        """Send a SYN."""
        return TcpDial(begun(endpoint, self.options, source), endpoint, self.options)
