"""What is to leave on a connection that has no room for it yet."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from traffic.storage.wire.event_loop import unwatch, watch
from traffic.transport.connection import Connection, ConnectionEndedError, Readable, after

_MOST_BYTES = 64 << 10
"""More than this waits: who sends payloads waits, too."""
_LITTLE_BYTES = _MOST_BYTES // 4
"""So little is left that they go on."""


class Backlog:
    """What has been posted on a connection, in order: it takes at once what it has room for, and the rest follows.

    ``has_room``: set while little waits. Whoever sends much waits for that; :meth:`post` itself never waits.
    ``on_ended`` is called if the connection turns out to have ended; what is posted after that is lost.
    """

    def __init__(self, connection: Connection, loop: asyncio.AbstractEventLoop, on_ended: Callable[[], None]) -> None:
        self.has_room = asyncio.Event()
        self.has_room.set()
        self._connection = connection
        self._loop = loop
        self._on_ended = on_ended
        self._waiting: list[memoryview] = []
        self._waiting_bytes = 0
        self._has_ended = False

    def post(self, piece: Readable) -> None:
        """Send a piece behind all that waits."""
        sent = 0
        if not self._waiting:
            sent = self._sent_of((piece,))
            if sent == len(piece):
                return
            watch(self._loop, self._connection.poll_for_room, self._go_on)
        self._waiting.append(memoryview(piece)[sent:])
        self._waiting_bytes += len(piece) - sent
        if self._waiting_bytes > _MOST_BYTES:
            self.has_room.clear()

    def send_at_once(self, pieces: Sequence[Readable]) -> Sequence[Readable]:
        """Send of pieces what the connection takes now, and return the rest; all of them if others wait before them.

        A call for each would have TCP send the first, a header, as a packet of its own.
        """
        if self._waiting:
            return pieces
        sent = self._sent_of(pieces)
        return after([memoryview(piece) for piece in pieces], sent) if sent < sum(map(len, pieces)) else ()

    def _go_on(self) -> None:
        sent = self._sent_of(self._waiting)
        if self._has_ended:
            return
        self._waiting = after(self._waiting, sent)
        self._waiting_bytes -= sent
        if self._waiting_bytes <= _LITTLE_BYTES:
            self.has_room.set()
        if not self._waiting:
            unwatch(self._loop, self._connection.poll_for_room)

    def _sent_of(self, pieces: Sequence[Readable]) -> int:
        """Send of pieces what the connection takes now; return how many bytes that was, of an ended one all."""
        if not self._has_ended:
            try:
                return self._connection.send_at_once(pieces)
            except ConnectionEndedError:
                self._on_ended()
        return sum(map(len, pieces))

    def end(self) -> None:
        """Drop what waits, and all that comes."""
        if self._waiting:
            unwatch(self._loop, self._connection.poll_for_room)
        self._waiting, self._waiting_bytes, self._has_ended = [], 0, True
