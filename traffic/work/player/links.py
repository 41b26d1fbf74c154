"""Messages between two ranks: sent as soon as they may be, taken by whoever receives, and matched there.

A message is a header (which part of the work, step, tag, number, size) and then its bytes in pieces. The receiver takes
everything that comes, piece by piece, checks it, and keeps only that it came: a receive may start long after.
"""

from __future__ import annotations

import struct
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from queue import SimpleQueue
from typing import NamedTuple

import numpy as np

from fabric.errors import TrafficError
from traffic.program_group import PeerGoneError, StalledError
from traffic.transport.connection import Connection, ConnectionEndedError, after
from traffic.work.mailbox import Mailbox, Message
from traffic.work.operations import Operation
from traffic.work.player.payload import Origin, Payload
from traffic.work.words import size_of

_HEADER = struct.Struct("!IIQIQ")
_AT_ONCE_BYTES = 64 * 1024
"""Messages up to this size are sent by whoever asks for it, if the connection takes them: that spares another thread's
wake-up."""
_LOOKS_PER_TIMEOUT = 4
_LOOK_S = 1.0
"""How often who waits for a receive to start looks whether it is all over."""
_NEVER_S = 1e6
"""How long a receiver waits for the next message: others compute meanwhile. Who waits for it has a timeout."""


_rooms: dict[int, list[bytearray]] = {}
"""Memory to receive pieces into, by size, that no receiver of this process has now: only as much as is in flight at a
time is ever touched, however many peers ranks have."""


def _taken_room(size_bytes: int) -> bytearray:
    free = _rooms.setdefault(size_bytes, [])
    try:
        return free.pop()
    except IndexError:
        return bytearray(size_bytes)


class Event(NamedTuple):
    """That an operation has ended, when, or what went wrong."""

    place: int
    at: float
    error: BaseException | None = None


Events = SimpleQueue[Event]


class Mail:
    """What came for one part of a rank's work, for several threads: an event tells of a receive that waited for it.
    ``holds_back``: whether nothing of a message is taken before its receive has started, so that TCP holds its sender
    back."""

    def __init__(self, operations: Sequence[Operation], events: Events, holds_back: bool = False) -> None:
        self.holds_back = holds_back
        self._operations = operations
        self._mailbox = Mailbox(operations)
        self._lock = threading.Lock()
        self._started = threading.Condition(self._lock)
        self._events = events

    def come(self, message: Message) -> None:
        """Take a message. Raises TrafficError if it is not of the size that its receive says."""
        with self._lock:
            place = self._mailbox.come(message)
        if place is not None:
            self._verify_size(place, message)
            self._events.put(Event(place, time.monotonic()))

    def has_come(self, place: int) -> bool:
        """Start a receive; return whether its message has come. Raises TrafficError as :meth:`come`."""
        with self._lock:
            message = self._mailbox.start(place)
            self._started.notify_all()
        if message is None:
            return False
        self._verify_size(place, message)
        return True

    def await_started(self, source: int, tag: int, number: int, timeout_s: float) -> bool:
        """Wait until the receive of a message has started, but no longer than so long; return whether it has."""
        with self._lock:
            return self._started.wait_for(lambda: self._mailbox.is_awaited(source, tag, number), timeout_s)

    def _verify_size(self, place: int, message: Message) -> None:
        wanted = size_of(self._operations[place])
        if wanted != message.size_bytes:
            raise TrafficError(
                f"operation {place} receives {wanted} B, and message {message.number} of tag {message.tag} from rank "
                f"{message.source} has {message.size_bytes} B"
            )


class Outgoing:
    """The way to one peer. ``name``: both ends, for messages."""

    def __init__(self, connection: Connection, name: str, payload: Payload, events: Events, stall_s: float) -> None:
        self.connection = connection
        self.moved_bytes = 0
        """How much has gone so far, of all messages."""
        self._name = name
        self._payload = payload
        self._events = events
        self._stall_s = stall_s
        self._waiting: SimpleQueue[tuple[int, list[memoryview], Iterator[memoryview]] | None] = SimpleQueue()
        self._asked = self._done = 0
        """Messages that were handed to the thread, and that it has sent: each is written by one thread only."""
        self._thread: threading.Thread | None = None
        connection.set_timeouts(send_s=stall_s / _LOOKS_PER_TIMEOUT, silent_s=stall_s)

    def send(self, place: int, part: int, origin: Origin, size_bytes: int) -> bool:
        """Send a message behind those before it. Return whether all is handed over; else an event will tell. Raises
        PeerGoneError."""
        header = memoryview(_HEADER.pack(part, origin.step, origin.tag, origin.number, size_bytes))
        pieces = self._pieces(origin, size_bytes)
        left = [header]
        if size_bytes <= _AT_ONCE_BYTES and self._asked == self._done:
            left = self._left_of(left)
            while not left and (piece := next(pieces, None)) is not None:
                left = self._left_of([piece])
            if not left:
                return True
        if self._thread is None:
            self._thread = threading.Thread(target=self._send_on, daemon=True)
            self._thread.start()
        self._asked += 1
        self._waiting.put((place, left, pieces))
        return False

    def _pieces(self, origin: Origin, size_bytes: int) -> Iterator[memoryview]:
        most = self._payload.piece_bytes
        for offset in range(0, size_bytes, most):
            yield self._payload.piece(origin, offset, min(most, size_bytes - offset))

    def _left_of(self, views: list[memoryview]) -> list[memoryview]:
        """Send what the connection takes at once of a message of it; return the rest."""
        try:
            sent = self.connection.send_at_once(views)
        except ConnectionEndedError as error:
            raise PeerGoneError(f"{self._name}: connection ended") from error
        self.moved_bytes += sent
        return after(views, sent)

    def _send_on(self) -> None:
        place = -1
        try:
            while (asked := self._waiting.get()) is not None:
                place, left, pieces = asked
                self._send_all(left)
                for piece in pieces:
                    self._send_all([piece])
                self._done += 1
                self._events.put(Event(place, time.monotonic()))
        except TrafficError as error:
            self._events.put(Event(place, time.monotonic(), error))

    def _send_all(self, views: list[memoryview]) -> None:
        undelivered, since = -1, time.monotonic()
        while views:
            try:
                sent = self.connection.send(views)
            except ConnectionEndedError as error:
                raise PeerGoneError(f"{self._name}: connection ended") from error
            if sent:
                self.moved_bytes += sent
                views = after(views, sent)
                continue
            before, undelivered = undelivered, self.connection.undelivered_bytes
            if undelivered != before:
                since = time.monotonic()
            elif time.monotonic() - since >= self._stall_s:
                raise StalledError(
                    f"{self._name}: peer took no data for {self._stall_s:g} s; look for a dead route or raise "
                    "stall_timeout or step_timeout"
                )

    def close(self) -> None:
        """End the connection and the thread."""
        self.connection.close()
        self._waiting.put(None)


class Incoming:
    """What comes from one peer, received by a thread of its own. ``mails``: that of each part of the work."""

    def __init__(
        self, connection: Connection, name: str, source: int, payload: Payload, mails: Sequence[Mail], events: Events
    ) -> None:
        self.connection = connection
        self.moved_bytes = 0
        """How much has come so far, of all messages."""
        self._name = name
        self._source = source
        self._payload = payload
        self._mails = mails
        self._events = events
        self._is_closed = False
        connection.set_timeouts(send_s=_NEVER_S, silent_s=_NEVER_S)
        self._thread = threading.Thread(target=self._receive_on, daemon=True)
        self._thread.start()

    def _receive_on(self) -> None:
        header = bytearray(_HEADER.size)
        receive: Callable[[Sequence[bytearray | memoryview]], None] = self.connection.receive
        try:
            while True:
                receive([header])
                part, step, tag, number, size_bytes = _HEADER.unpack(header)
                if self._mails[part].holds_back and not self._is_awaited(part, tag, number):
                    return
                if size_bytes:
                    room = _taken_room(self._payload.piece_bytes)
                    self._receive_pieces(Origin(self._source, tag, number, step), size_bytes, room)
                    _rooms[len(room)].append(room)
                self.moved_bytes += _HEADER.size
                self._mails[part].come(Message(self._source, tag, number, size_bytes))
        except ConnectionEndedError as error:
            gone = PeerGoneError(f"{self._name}: connection ended")
            gone.__cause__ = error
            self._events.put(Event(-1, time.monotonic(), gone))
        except TrafficError as error:
            told = TrafficError(f"{self._name}: {error}")
            self._events.put(Event(-1, time.monotonic(), told))

    def _is_awaited(self, part: int, tag: int, number: int) -> bool:
        """Wait until a message is to be taken; return whether it is: not if the connection was ended meanwhile."""
        while not self._mails[part].await_started(self._source, tag, number, _LOOK_S):
            if self._is_closed:
                return False
        return True

    def _receive_pieces(self, origin: Origin, size_bytes: int, room: bytearray) -> None:
        found = np.frombuffer(room, np.uint8)
        whole = memoryview(room)
        for offset in range(0, size_bytes, len(room)):
            length = min(len(room), size_bytes - offset)
            self.connection.receive([whole[:length]])
            self._payload.verify(origin, offset, found[:length])
            self.moved_bytes += length

    def close(self) -> None:
        """End the connection and, by that, the thread."""
        self._is_closed = True
        self.connection.close()
