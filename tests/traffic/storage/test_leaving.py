"""What waits for room on a connection: it leaves in order, senders of much are held back, and an end drops it."""

from __future__ import annotations

import asyncio
import os
import select
from collections.abc import Awaitable, Callable, Sequence
from itertools import chain, repeat
from typing import cast

from hypothesis import given
from hypothesis import strategies as st

from fabric.model.lanes import ServiceLevel
from traffic.storage.wire.leaving import Backlog
from traffic.transport.connection import Connection, ConnectionEndedError, PollFor, Readable, SocketOptions
from traffic.transport.tcp import TcpTransport

from .conftest import run

KIB = 1 << 10


class Narrow:
    """A connection that takes no more at once than the next of some numbers of bytes; always polled as having room."""

    def __init__(self, rooms: Sequence[int]) -> None:
        self._rooms = chain(rooms, repeat(0))
        self.taken: list[bytes] = []
        self.has_ended = False
        self.poll_for_room = PollFor(os.eventfd(1), select.POLLIN)

    def send_at_once(self, buffers: Sequence[Readable]) -> int:
        if self.has_ended:
            raise ConnectionEndedError("gone")
        self.taken.append(b"".join(buffers)[: next(self._rooms)])
        return len(self.taken[-1])


def backlog_of(connection: Narrow, on_ended: Callable[[], None] = lambda: None) -> Backlog:
    return Backlog(cast(Connection, connection), asyncio.get_running_loop(), on_ended)


@given(
    pieces=st.lists(st.binary(max_size=300), min_size=1, max_size=8),
    rooms=st.lists(st.integers(0, 400), max_size=10),
)
def test_all_that_is_posted_leaves_once_and_in_order(pieces: list[bytes], rooms: list[int]) -> None:
    async def scene() -> None:
        connection = Narrow([*rooms, *repeat(1 << 20, 20)])
        backlog = backlog_of(connection)
        for piece in pieces:
            backlog.post(piece)
            await asyncio.sleep(0)
        while sum(map(len, connection.taken)) < sum(map(len, pieces)):
            await asyncio.sleep(0)
        assert b"".join(connection.taken) == b"".join(pieces)
        os.close(connection.poll_for_room.descriptor)

    asyncio.run(scene())


def play(scene: Callable[[], Awaitable[None]]) -> None:
    run(scene())


def test_whoever_sends_much_waits_until_little_is_left() -> None:
    async def scene() -> None:
        connection = Narrow([0, 40 * KIB, 9 * KIB - 1, 1])
        backlog = backlog_of(connection)
        backlog.post(bytes(64 * KIB))
        assert backlog.has_room.is_set()
        backlog.post(b"x" * KIB)
        assert not backlog.has_room.is_set()
        while sum(map(len, connection.taken)) < 49 * KIB - 1:
            assert not backlog.has_room.is_set()
            await asyncio.sleep(0)
        assert not backlog.has_room.is_set()
        while sum(map(len, connection.taken)) < 49 * KIB:
            await asyncio.sleep(0)
        assert backlog.has_room.is_set()

    play(scene)


def test_nothing_overtakes_what_waits() -> None:
    async def scene() -> None:
        backlog = backlog_of(Narrow([1]))
        assert list(map(bytes, backlog.send_at_once((b"ab", b"c")))) == [b"b", b"c"]
        backlog.post(b"b")
        assert backlog.send_at_once((b"d",)) == (b"d",)

    play(scene)


def test_what_is_posted_on_a_connection_that_has_ended_is_dropped() -> None:
    async def scene() -> None:
        ends: list[int] = []

        def on_ended() -> None:
            ends.append(1)
            backlog.end()

        connection = Narrow([1])
        backlog = backlog_of(connection, on_ended)
        backlog.post(b"waits")
        connection.has_ended = True
        while not ends:
            await asyncio.sleep(0)
        backlog.post(b"lost")
        assert backlog.send_at_once((b"lost, too",)) == ()
        await asyncio.sleep(0.01)
        assert (ends, b"".join(connection.taken)) == ([1], b"w")

    play(scene)


def test_more_small_messages_than_a_system_call_takes_leave_all() -> None:
    async def scene() -> None:
        tcp = TcpTransport(SocketOptions(ServiceLevel.STORAGE))
        listener = tcp.listen("127.0.0.1")
        near, far = tcp.connect(listener.endpoint, 5), listener.accept(5)
        near.limit_send_buffer(4096)
        backlog = Backlog(near, asyncio.get_running_loop(), lambda: None)
        backlog.post(first := bytes(300 << 10))
        pieces = [bytes([number % 256]) * 3 for number in range(3000)]
        for piece in pieces:
            backlog.post(piece)
        expected, received = first + b"".join(pieces), bytearray()
        while len(received) < len(expected):
            into = bytearray(1 << 20)
            received += into[: far.receive_at_once(into)]
            await asyncio.sleep(0)
        assert received == expected
        for end in (near, far, listener):
            end.close()

    play(scene)
