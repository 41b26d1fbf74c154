"""A transport of whole messages inside one process: without sockets, round trips and retransmissions."""

from __future__ import annotations

import itertools
import os
import select
import socket
import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from traffic.transport.connection import (
    Connection,
    ConnectionEndedError,
    ConnectionSample,
    DataPorts,
    Endpoint,
    Listener,
    PollFor,
    Readable,
    SilentPeerError,
    SocketOptions,
    Transport,
    UnreachableError,
    Writable,
)

_ROOM_BYTES = 256 * 1024


@dataclass
class _Way:
    """What is on its way in one direction: there is room for a message while fewer bytes wait than the limit."""

    changed: threading.Condition = field(default_factory=threading.Condition)
    messages: deque[memoryview] = field(default_factory=deque)
    room_bytes: int = _ROOM_BYTES
    sent_bytes: int = 0
    taken_bytes: int = 0
    has_ended: bool = False
    room: int = field(default_factory=lambda: os.eventfd(1))
    """Readable while there is room, or the end."""
    arrived: int = field(default_factory=lambda: os.eventfd(0))
    """Readable while there is a message, or the end."""

    def has_room(self) -> bool:
        return self.sent_bytes - self.taken_bytes < self.room_bytes

    def put(self, message: bytes, wait_s: float | None) -> int:
        with self.changed:
            self.changed.wait_for(lambda: self.has_room() or self.has_ended, wait_s)
            if self.has_ended:
                raise ConnectionEndedError("the connection has ended")
            if not self.has_room():
                return 0
            if not self.messages:
                os.eventfd_write(self.arrived, 1)
            self.messages.append(memoryview(message))
            self.sent_bytes += len(message)
            if not self.has_room():
                os.eventfd_read(self.room)
            self.changed.notify_all()
        return len(message)

    def take(self, wait_s: float | None) -> memoryview:
        with self.changed:
            self.changed.wait_for(lambda: self.messages or self.has_ended, wait_s)
            if not self.messages:
                if self.has_ended:
                    raise ConnectionEndedError("the connection has ended")
                raise SilentPeerError(f"nothing came for {wait_s} s")
            return self._first(len(self.messages[0]))

    def take_at_once(self, most: int) -> memoryview:
        with self.changed:
            if self.messages:
                return self._first(most)
            if self.has_ended:
                raise ConnectionEndedError("the connection has ended")
            return memoryview(b"")

    def _first(self, most: int) -> memoryview:
        """Take of the first message what is wanted; the rest of it is the first one then."""
        message, had_room = self.messages.popleft(), self.has_room()
        if message[most:]:
            self.messages.appendleft(message[most:])
        taken = message[:most]
        self.taken_bytes += len(taken)
        if not self.has_ended:
            if self.has_room() and not had_room:
                os.eventfd_write(self.room, 1)
            if not self.messages:
                os.eventfd_read(self.arrived)
        self.changed.notify_all()
        return taken

    def end(self) -> None:
        with self.changed:
            if not self.has_ended:
                os.eventfd_write(self.room, 1)
                os.eventfd_write(self.arrived, 1)
            self.has_ended = True
            self.changed.notify_all()


class MemoryConnection:
    def __init__(self, local: Endpoint, peer: Endpoint, outward: _Way, inward: _Way) -> None:
        self.local, self.peer = local, peer
        self._outward, self._inward = outward, inward
        self._send_s: float | None = None
        self._silent_s: float | None = None
        self._is_closed = False

    @property
    def data_ports(self) -> DataPorts:
        return DataPorts(socket.IPPROTO_TCP, self.local[1], self.peer[1])

    def set_timeouts(self, send_s: float, silent_s: float) -> None:
        self._send_s, self._silent_s = send_s, silent_s

    def limit_send_buffer(self, size_bytes: int) -> None:
        self._outward.room_bytes = size_bytes

    def send(self, buffers: Sequence[Readable]) -> int:
        return self._outward.put(b"".join(buffers), self._send_s)

    def send_at_once(self, buffers: Sequence[Readable]) -> int:
        return self._outward.put(b"".join(buffers), 0)

    @property
    def poll_for_room(self) -> PollFor:
        return PollFor(self._outward.room, select.POLLIN)

    @property
    def undelivered_bytes(self) -> int:
        return self._outward.sent_bytes - self._outward.taken_bytes

    def receive(self, buffers: Sequence[Writable]) -> None:
        rest = self._inward.take(self._silent_s)
        for buffer in buffers:
            filled = min(len(buffer), len(rest))
            buffer[:filled] = rest[:filled]
            rest = rest[filled:]

    def receive_at_once(self, into: Writable) -> int:
        taken = self._inward.take_at_once(len(into))
        into[: len(taken)] = taken
        return len(taken)

    @property
    def poll_for_arrivals(self) -> PollFor:
        return PollFor(self._inward.arrived, select.POLLIN)

    def wake_at(self, size_bytes: int) -> None:
        """Who waits is woken by each message."""

    @property
    def received_bytes(self) -> int:
        return 0 if self._is_closed else self._inward.sent_bytes

    def sample(self) -> ConnectionSample:
        if self._is_closed:
            raise ConnectionEndedError("the connection is closed")
        return ConnectionSample(None, None, self._outward.taken_bytes)

    @property
    def reorderings(self) -> None:
        if self._is_closed:
            raise ConnectionEndedError("the connection is closed")

    def abort(self) -> None:
        self._outward.end()
        self._inward.end()

    def close(self) -> None:
        self.abort()
        with _changed:  # A thread that was woken by this may close it, too.
            was_closed, self._is_closed = self._is_closed, True
        if not was_closed:
            os.close(self._outward.room)
            os.close(self._inward.arrived)


_changed = threading.Condition()
_listeners: dict[Endpoint, MemoryListener] = {}
_ports = itertools.count(1)


class MemoryListener:
    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self.waiting: deque[MemoryConnection] = deque()
        self._come = os.eventfd(0, os.EFD_SEMAPHORE | os.EFD_NONBLOCK)
        """Counts those that wait."""
        with _changed:
            _listeners[endpoint] = self
            _changed.notify_all()

    def accept(self, timeout_s: float) -> Connection:
        with _changed:
            if not _changed.wait_for(lambda: self.waiting, timeout_s):
                raise UnreachableError("{}:{}: nobody connected within {:g} s".format(*self.endpoint, timeout_s))
            os.eventfd_read(self._come)
            return self.waiting.popleft()

    def accept_at_once(self) -> Connection | None:
        return self.accept(0) if self.waiting else None

    @property
    def poll_for_callers(self) -> PollFor:
        return PollFor(self._come, select.POLLIN)

    def come(self, connection: MemoryConnection) -> None:
        """Let a connection wait to be accepted; the caller holds the lock."""
        self.waiting.append(connection)
        os.eventfd_write(self._come, 1)
        _changed.notify_all()

    def close(self) -> None:
        with _changed:
            del _listeners[self.endpoint]
            os.close(self._come)


class MemoryDial:
    """It is answered at once."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.poll_for_answer = PollFor(os.eventfd(1), select.POLLIN)

    def answered(self) -> Connection:
        os.close(self.poll_for_answer.descriptor)
        return self._connection

    def close(self) -> None:
        self.answered().close()


@dataclass(frozen=True)
class MemoryTransport:
    options: SocketOptions

    def listen(self, address: str, port: int = 0) -> Listener:
        return MemoryListener((address, port or next(_ports)))

    def connect(self, endpoint: Endpoint, timeout_s: float, source: str = "") -> Connection:
        there, back, here = _Way(), _Way(), (source or endpoint[0], next(_ports))
        with _changed:
            if not _changed.wait_for(lambda: endpoint in _listeners, timeout_s):
                raise UnreachableError("{}:{}: cannot connect within {:g} s".format(*endpoint, timeout_s))
            _listeners[endpoint].come(MemoryConnection(endpoint, here, back, there))
        return MemoryConnection(here, endpoint, there, back)

    def dial(self, endpoint: Endpoint, source: str = "") -> MemoryDial:
        return MemoryDial(self.connect(endpoint, 0, source))


_: type[Transport] = MemoryTransport
