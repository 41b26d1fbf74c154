"""Messages over a connection of any transport: JSON, with its length in front.

Spaces fill a message up, so that its size does not hang on how many digits a time in it has: a nanosecond more would be
microseconds on a slow link.
"""

from __future__ import annotations

import asyncio
import json
import struct
from collections.abc import Callable
from typing import Any

from fabric.errors import TrafficError
from traffic.storage.wire.event_loop import unwatch, watch
from traffic.transport.connection import Connection, ConnectionEndedError, Listener, after

Message = dict[str, Any]
_LENGTH = struct.Struct("!I")
_MOST_BYTES = 1 << 20
_BUFFER_BYTES = 1 << 16
_GRAIN_BYTES = 128
"""Messages have a multiple of this."""


class BadMessageError(TrafficError):
    """What came is not a message: the other end is another program."""


class Channel:
    """One connection. ``on_message`` is called for each message, ``on_lost`` once, when the connection has ended."""

    def __init__(
        self, connection: Connection, on_message: Callable[[Message], None], on_lost: Callable[[str], None]
    ) -> None:
        self._connection, self._on_message, self._on_lost = connection, on_message, on_lost
        self._loop = asyncio.get_running_loop()
        self._come = bytearray()
        self._left: list[memoryview] = []
        self._buffer = bytearray(_BUFFER_BYTES)
        self._waits_for_room = False
        self.is_open = True
        watch(self._loop, connection.poll_for_arrivals, self._receive)

    def send(self, message: Message) -> None:
        """Send a message, as soon as there is room; nothing is sent once the connection has ended."""
        if not self.is_open:
            return
        body = json.dumps(message, separators=(",", ":")).encode()
        body = body.ljust(-(-len(body) // _GRAIN_BYTES) * _GRAIN_BYTES)
        if len(body) > _MOST_BYTES:
            raise BadMessageError(f"a message of {len(body)} bytes; the most is {_MOST_BYTES}")
        self._left += [memoryview(_LENGTH.pack(len(body)) + body)]
        if not self._waits_for_room:
            self._flush()

    def _flush(self) -> None:
        try:
            while self._left:
                taken = self._connection.send_at_once(self._left)
                if not taken:
                    break
                self._left = after(self._left, taken)
        except ConnectionEndedError as error:
            self._lose(str(error))
            return
        if bool(self._left) != self._waits_for_room:
            self._waits_for_room = bool(self._left)
            if self._waits_for_room:
                watch(self._loop, self._connection.poll_for_room, self._flush)
            else:
                unwatch(self._loop, self._connection.poll_for_room)

    def _receive(self) -> None:
        try:
            count = self._connection.receive_at_once(self._buffer)
        except ConnectionEndedError as error:
            self._lose(str(error))
            return
        self._come += self._buffer[:count]
        try:
            for message in self._messages():
                if self.is_open:
                    self._on_message(message)
        except BadMessageError as error:
            self._lose(str(error))

    def _messages(self) -> list[Message]:
        found = []
        while len(self._come) >= _LENGTH.size:
            (size,) = _LENGTH.unpack_from(self._come)
            if size > _MOST_BYTES:
                raise BadMessageError(f"a message of {size} bytes comes; the most is {_MOST_BYTES}")
            if len(self._come) < _LENGTH.size + size:
                break
            body = bytes(self._come[_LENGTH.size : _LENGTH.size + size])
            del self._come[: _LENGTH.size + size]
            try:
                message = json.loads(body)
            except (ValueError, RecursionError):
                raise BadMessageError("what came is not JSON") from None
            if not isinstance(message, dict) or not isinstance(message.get("kind"), str):
                raise BadMessageError("a message came without its kind")
            found.append(message)
        return found

    def close(self) -> None:
        """End the connection, without a word to who waits for its end."""
        if not self.is_open:
            return
        self.is_open = False
        unwatch(self._loop, self._connection.poll_for_arrivals)
        if self._waits_for_room:
            unwatch(self._loop, self._connection.poll_for_room)
        self._connection.close()

    def _lose(self, why: str) -> None:
        if self.is_open:
            self.close()
            self._on_lost(why)


def accept_on(listener: Listener, come: Callable[[Connection], None]) -> Callable[[], None]:
    """Call ``come`` with each connection that comes; return what ends that, and closes the listener."""
    loop = asyncio.get_running_loop()

    def ready() -> None:
        while (connection := listener.accept_at_once()) is not None:
            come(connection)

    watch(loop, listener.poll_for_callers, ready)

    def end() -> None:
        unwatch(loop, listener.poll_for_callers)
        listener.close()

    return end
