"""Chunks between ranks and between a rank's threads: frames with a verified header on connections, and handoffs.

A frame is 16 bytes of header (step, channel, chunk, bytes) and the chunk. The receiver knows which frame must come
next, so one that is lost, duplicated, late or of another connection is detected at once.
"""

from __future__ import annotations

import queue
import select
import struct
import time
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from fabric.errors import TrafficError
from traffic.collectives.elements import Elements, ElementType, raw_bytes
from traffic.program_group import PeerGoneError, StalledError
from traffic.transport.connection import (
    Connection,
    ConnectionEndedError,
    ConnectionSample,
    PollFor,
    SilentPeerError,
    after,
)


@dataclass(frozen=True, order=True)
class Edge:
    """A connection that ``dialer`` opens to ``listener``; ``channel`` tells parallel ones apart."""

    channel: int
    dialer: int
    listener: int

    def peer(self, rank: int) -> int:
        """Return the other end."""
        return self.listener if rank == self.dialer else self.dialer


_HEADER = struct.Struct("!IIII")
_HEADER_BYTES = _HEADER.size
_pack = _HEADER.pack
_LOOKS_PER_TIMEOUT = 4
"""How often a send that makes no progress looks whether the peer has acknowledged anything meanwhile."""


class ChunkConnection:
    """A rank's end of a connection, on which chunks travel under a verified header: step, channel, chunk, length.

    One thread may send while another receives. Both raise StalledError once nothing has been received in order
    or acknowledged for ``timeout_s`` (any progress restarts the wait), and PeerGoneError if the connection ends.
    """

    def __init__(self, connection: Connection, channel: int, name: str, timeout_s: float) -> None:
        self._connection = connection
        self._channel = channel
        self._name = name
        self._timeout_s = timeout_s
        self._received_header = bytearray(_HEADER.size)
        connection.set_timeouts(send_s=timeout_s / _LOOKS_PER_TIMEOUT, silent_s=timeout_s)

    def send(self, step: int, chunk: int, payload: Elements) -> None:
        """Send one chunk."""
        size_bytes, data = payload.nbytes, raw_bytes(payload)
        header = _pack(step, self._channel, chunk, size_bytes)
        try:
            sent = self._connection.send((header, data))
        except ConnectionEndedError as error:
            raise self._gone(step, chunk) from error
        if sent != _HEADER_BYTES + size_bytes:
            _finish([UnsentFrame(self, after([memoryview(header), data], sent), step, chunk)])

    def begin_sending(self, step: int, chunk: int, payload: Elements) -> UnsentFrame | None:
        """Send as much of one chunk as the connection takes at once. Returns what is left, if anything is."""
        frame = self.frame(step, chunk, payload)
        return None if frame.go_on() else frame

    def frame(self, step: int, chunk: int, payload: Elements) -> UnsentFrame:
        """Return one chunk as a frame of which nothing was sent yet."""
        header = _pack(step, self._channel, chunk, payload.nbytes)
        return UnsentFrame(self, [memoryview(header), raw_bytes(payload)], step, chunk)

    def send_at_once(self, views: list[memoryview], step: int, chunk: int) -> int:
        """Send what the connection takes without waiting; return how many bytes that was."""
        try:
            return self._connection.send_at_once(views)
        except ConnectionEndedError as error:
            raise self._gone(step, chunk) from error

    def receive(self, step: int, chunk: int, into: Elements) -> None:
        """Receive one chunk of exactly the size of ``into``. Raises TrafficError if another frame arrives."""
        header = self._received_header
        try:
            self._connection.receive((header, raw_bytes(into)))
        except ConnectionEndedError as error:
            raise self._gone(step, chunk) from error
        except SilentPeerError as error:
            raise self._stuck("sent no data", step, chunk) from error
        if header != _pack(step, self._channel, chunk, into.nbytes):
            raise self._wrong_frame((step, self._channel, chunk, into.nbytes))

    def _wrong_frame(self, expected: tuple[int, int, int, int]) -> TrafficError:
        found = _HEADER.unpack(self._received_header)
        words = "(step, channel, chunk, bytes)"
        return TrafficError(f"{self._name}: received frame {found}, expected {expected} {words}")

    @property
    def undelivered_bytes(self) -> int:
        """How much of what was sent the peer has not acknowledged."""
        return self._connection.undelivered_bytes

    @property
    def timeout_s(self) -> float:
        """How long the peer may be silent."""
        return self._timeout_s

    @property
    def poll_for_room(self) -> PollFor:
        """What to wait for before more can be sent."""
        return self._connection.poll_for_room

    def sample(self) -> ConnectionSample:
        """Return what the connection says of what was sent on it."""
        return self._connection.sample()

    def stuck_sending(self, step: int, chunk: int) -> StalledError:
        """Return the error that the peer takes nothing."""
        return self._stuck("took no data", step, chunk)

    def _stuck(self, what: str, step: int, chunk: int) -> StalledError:
        return StalledError(
            f"{self._name}: peer {what} for {self._timeout_s:g} s at step {step}, chunk {chunk}; "
            "look for a dead route or raise stall_timeout or step_timeout"
        )

    def _gone(self, step: int, chunk: int) -> PeerGoneError:
        return PeerGoneError(f"{self._name}: connection ended at step {step}, chunk {chunk}")

    def close(self) -> None:
        """End the connection; both directions' threads see PeerGoneError."""
        self._connection.close()

    def abort(self) -> None:
        """Wake the threads that wait on this connection, with PeerGoneError."""
        self._connection.abort()


class UnsentFrame:
    """What is left of a frame of which its connection did not take all at once."""

    def __init__(self, connection: ChunkConnection, views: list[memoryview], step: int, chunk: int) -> None:
        self.connection = connection
        self._views = views
        self._step, self._chunk = step, chunk
        self._undelivered, self._since = -1, time.monotonic()

    @property
    def is_sent(self) -> bool:
        """Whether nothing is left."""
        return not self._views

    def go_on(self) -> bool:
        """Send what the connection takes now; return whether that was all."""
        self._views = after(self._views, self.connection.send_at_once(self._views, self._step, self._chunk))
        return not self._views

    def verify_progress(self) -> None:
        """Raise StalledError if the peer has acknowledged nothing more for longer than its timeout."""
        before, self._undelivered = self._undelivered, self.connection.undelivered_bytes
        if self._undelivered != before:
            self._since = time.monotonic()
        elif time.monotonic() - self._since >= self.connection.timeout_s:
            raise self.connection.stuck_sending(self._step, self._chunk)


def send_side_by_side(sends: Iterable[tuple[ChunkConnection, Elements]], step: int, chunk: int) -> None:
    """Send a chunk on each connection, so that one which takes its own slowly does not hold up the others.

    Raises like :meth:`ChunkConnection.send`.
    """
    begun = [connection.begin_sending(step, chunk, payload) for connection, payload in sends]
    unsent = [frame for frame in begun if frame is not None]
    if unsent:
        _finish(unsent)


class FramesUnderWay:
    """What a thread sends on several connections, of which none holds up the others: what one does not take at once
    waits for it. ``mark``: a number of the sender's own, which grows from frame to frame."""

    def __init__(self) -> None:
        self._waiting: dict[ChunkConnection, deque[tuple[int, UnsentFrame]]] = {}

    def send(self, connection: ChunkConnection, step: int, chunk: int, payload: Elements, mark: int) -> None:
        """Begin to send a chunk behind those that the connection has not taken yet. Its memory is not to change before
        it was taken. Raises like ChunkConnection.send()."""
        if waiting := self._waiting.get(connection):
            waiting.append((mark, connection.frame(step, chunk, payload)))
        elif (frame := connection.begin_sending(step, chunk, payload)) is not None:
            self._waiting[connection] = deque([(mark, frame)])

    def finish(self, before: int | None = None) -> None:
        """Wait until all frames of smaller marks, or without one all frames, were taken. Raises as :meth:`send`."""
        while any(before is None or waiting[0][0] < before for waiting in self._waiting.values()):
            _finish_one(waiting[0][1] for waiting in self._waiting.values())
            for connection, waiting in list(self._waiting.items()):
                while waiting and (waiting[0][1].is_sent or waiting[0][1].go_on()):
                    waiting.popleft()
                if not waiting:
                    del self._waiting[connection]


def _finish(frames: Iterable[UnsentFrame]) -> None:
    """Send what is left of frames on connections of their own, each as its connection takes more."""
    unsent = list(frames)
    while unsent:
        _finish_one(unsent)
        unsent = [frame for frame in unsent if not frame.is_sent]


def _finish_one(frames: Iterable[UnsentFrame]) -> None:
    """Send what connections take of frames, one on each, until at least one of them is sent."""
    unsent = dict[int, UnsentFrame]()
    has_room = select.poll()
    for frame in frames:
        wanted = frame.connection.poll_for_room
        unsent[wanted.descriptor] = frame
        has_room.register(*wanted)
    look_ms = min(frame.connection.timeout_s for frame in unsent.values()) * 1000 / _LOOKS_PER_TIMEOUT
    is_one_sent = False
    while not is_one_sent:
        ready = has_room.poll(look_ms)
        for descriptor, _ in ready:
            is_one_sent = unsent[descriptor].go_on() or is_one_sent
        if not ready:
            for frame in unsent.values():
                frame.verify_progress()


class Handoff:
    """How one thread of a rank hands the next piece to another."""

    def __init__(self, what: str, timeout_s: float) -> None:
        self._what = what
        self._timeout_s = timeout_s
        self._ready: queue.SimpleQueue[Elements | None] = queue.SimpleQueue()

    def put(self, piece: Elements) -> None:
        """Hand over one more piece."""
        self._ready.put(piece)

    def get(self) -> Elements:
        """Wait for one more piece. Raises PeerGoneError if it will not come, StalledError if it takes too long."""
        return _taken(self._ready, self._timeout_s, self._what)

    def abort(self) -> None:
        """Wake the waiting thread with PeerGoneError."""
        self._ready.put(None)


class Slots:
    """Memory for pieces on their way between two threads of a rank: at most ``limit`` of them, made when first needed
    and used again and again. When all are in use, who takes one waits: that is what holds a peer back."""

    def __init__(self, length: int, dtype: ElementType, limit: int, what: str, timeout_s: float) -> None:
        self._length = length
        self._dtype = dtype.numpy
        self._left = limit
        self._what = what
        self._timeout_s = timeout_s
        self._free: queue.SimpleQueue[Elements | None] = queue.SimpleQueue()

    def take(self) -> Elements:
        """Return memory for a piece, of shape (length,). Raises like :meth:`Handoff.get`. For one thread."""
        if self._left and self._free.empty():
            self._left -= 1
            return np.empty(self._length, self._dtype)
        return _taken(self._free, self._timeout_s, self._what)

    def give_back(self, slot: Elements) -> None:
        """Say that a slot is no longer used."""
        self._free.put(slot)

    def abort(self) -> None:
        """Wake the waiting thread with PeerGoneError."""
        self._left = 0
        self._free.put(None)


def _taken(pieces: queue.SimpleQueue[Elements | None], timeout_s: float, what: str) -> Elements:
    try:
        piece = pieces.get(timeout=timeout_s)
    except queue.Empty as error:
        raise StalledError(f"{what}: none within {timeout_s:g} s; raise step_timeout") from error
    if piece is None:
        raise PeerGoneError(f"{what}: its thread failed")
    return piece
