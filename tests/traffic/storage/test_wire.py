from __future__ import annotations

import asyncio
import math
import socket
import time
from collections.abc import Awaitable, Callable

import pytest

from fabric.errors import TrafficError
from fabric.model.lanes import ServiceLevel
from traffic.storage.messages import CallKind, Frame, ReplyStatus, header_of
from traffic.storage.wire import (
    CallTimeout,
    ConnectionLost,
    Listener,
    Party,
    StorageConnection,
    Tasks,
    _dial_wire,
    _hello,
    dial,
)
from traffic.transport import SocketOptions, listen

OPTIONS = SocketOptions(ServiceLevel.STORAGE)
Scene = Callable[[StorageConnection, StorageConnection], Awaitable[None]]


async def echo(link: StorageConnection, frame: Frame) -> None:
    if frame.kind is CallKind.WRITE:
        pulled = await link.pull(frame, 5)
        await link.reply(frame, pulled.status, bytes(pulled.payload[:10]))
    elif frame.kind is CallKind.READ:
        await link.reply(frame, ReplyStatus.OK, frame.meta, [b"a" * 1_000_000, memoryview(b"b" * 10)])


def play(scene: Scene) -> None:
    """Run a scene with both ends of a link."""

    async def run() -> None:
        tasks = Tasks()
        sock = listen("127.0.0.1", 0, OPTIONS)
        accepted: asyncio.Future[StorageConnection] = asyncio.get_running_loop().create_future()
        Listener(Party("server", echo, OPTIONS, tasks), sock, accepted.set_result)
        link = await dial(Party("client", echo, OPTIONS, tasks), "server", sock.getsockname(), "127.0.0.1", 5)
        await asyncio.wait_for(scene(link, await accepted), 10)
        assert not tasks.failed.done()
        link.close()
        sock.close()

    asyncio.run(run())


def test_a_reply_bears_records_and_payload() -> None:
    async def scene(client: StorageConnection, server: StorageConnection) -> None:
        replies = await asyncio.gather(*(client.call(CallKind.READ, bytes([n]) * n, 5) for n in range(1, 9)))
        assert [reply.meta for reply in replies] == [bytes([n]) * n for n in range(1, 9)]
        assert all(reply.payload == b"a" * 1_000_000 + b"b" * 10 for reply in replies)

    play(scene)


def test_either_end_may_call_the_other() -> None:
    async def scene(client: StorageConnection, server: StorageConnection) -> None:
        assert server.peer == "client"
        one, other = await asyncio.gather(server.call(CallKind.READ, b"s", 5), client.call(CallKind.READ, b"c", 5))
        assert (one.meta, other.meta) == (b"s", b"c")

    play(scene)


def test_the_receiver_pulls_what_a_call_offers() -> None:
    async def scene(client: StorageConnection, server: StorageConnection) -> None:
        reply = await client.call(CallKind.WRITE, b"", 5, offer=[b"0123", b"456789abc"])
        assert reply.meta == b"0123456789"

    play(scene)


def test_data_that_is_no_longer_offered_is_said_to_be_withdrawn() -> None:
    async def scene(client: StorageConnection, server: StorageConnection) -> None:
        assert (await client.call(CallKind.WRITE, b"", 5)).status is ReplyStatus.WITHDRAWN

    play(scene)


def test_a_call_without_an_answer_times_out_and_says_who_did_not_answer() -> None:
    async def scene(client: StorageConnection, server: StorageConnection) -> None:
        with pytest.raises(CallTimeout, match=r"client: server did not answer apply within 0\.05 s"):
            await client.call(CallKind.APPLY, b"", 0.05)

    play(scene)


@pytest.mark.parametrize("side", ["messages", "data"])
def test_calls_fail_when_either_connection_goes(side: str) -> None:
    async def scene(client: StorageConnection, server: StorageConnection) -> None:
        call = asyncio.get_running_loop().create_task(client.call(CallKind.APPLY, b"", 5))
        await asyncio.sleep(0.01)
        (server._messages if side == "messages" else server._data).close()
        with pytest.raises(ConnectionLost, match="server has gone"):
            await call
        with pytest.raises(ConnectionLost):
            await client.call(CallKind.READ, b"", 5)
        assert server.lost

    play(scene)


def test_sockets_carry_the_storage_service_level() -> None:
    async def scene(client: StorageConnection, server: StorageConnection) -> None:
        for link in (client, server):
            for wire in (link._messages, link._data):
                assert wire.sock.getsockopt(socket.IPPROTO_IP, socket.IP_TOS) == ServiceLevel.STORAGE.tos

    play(scene)


UNKNOWN_KIND = bytearray(header_of(Frame(CallKind.READ, False, ReplyStatus.OK, 1, 9, b""), 0))
UNKNOWN_KIND[4] = 77


@pytest.mark.parametrize("damage", [b"X" * 80, bytes(UNKNOWN_KIND)])
def test_a_damaged_stream_fails_the_program_and_names_its_ends(damage: bytes) -> None:
    async def run() -> None:
        ours, theirs = Tasks(), Tasks()
        sock = listen("127.0.0.1", 0, OPTIONS)
        accepted: asyncio.Future[StorageConnection] = asyncio.get_running_loop().create_future()
        Listener(Party("server", echo, OPTIONS, theirs), sock, accepted.set_result)
        link = await dial(Party("client", echo, OPTIONS, ours), "server", sock.getsockname(), "127.0.0.1", 5)
        server = await accepted
        link._messages.post(damage)
        with pytest.raises(TrafficError, match=r"server: 127\.0\.0\.1:\d+ from 127\.0\.0\.1:\d+: .*out of step"):
            await asyncio.wait_for(theirs.failed, 5)
        assert server.lost

    asyncio.run(run())


def test_halves_of_two_attempts_of_one_peer_make_no_link() -> None:
    async def run() -> None:
        tasks, links = Tasks(), list[StorageConnection]()
        sock = listen("127.0.0.1", 0, OPTIONS)
        Listener(Party("server", echo, OPTIONS, tasks), sock, links.append)
        party = Party("client", echo, OPTIONS, tasks)
        halves = [await _dial_wire(party, sock.getsockname(), "127.0.0.1", math.inf, 5) for _ in range(2)]
        for wire, role, attempt in zip(halves, (b"m", b"d"), (b"a" * 8, b"b" * 8), strict=True):
            wire.post(_hello(role, attempt, "client"))
        link = await dial(party, "server", sock.getsockname(), "127.0.0.1", 5)
        assert len(links) == 1
        assert (await link.call(CallKind.READ, b"whole", 5)).meta == b"whole"
        assert not tasks.failed.done()

    asyncio.run(run())


def test_what_is_not_a_greeting_fails_the_program() -> None:
    async def run() -> None:
        tasks = Tasks()
        sock = listen("127.0.0.1", 0, OPTIONS)
        Listener(Party("server", echo, OPTIONS, tasks), sock, lambda link: None)
        wire = await _dial_wire(Party("x", echo, OPTIONS, Tasks()), sock.getsockname(), "127.0.0.1", math.inf, 5)
        wire.post(header_of(Frame(CallKind.READ, False, ReplyStatus.OK, 1, math.inf, b""), 0))
        with pytest.raises(TrafficError, match="the first frame is READ with b'', not a greeting"):
            await asyncio.wait_for(tasks.failed, 5)

    asyncio.run(run())


def test_replies_that_nobody_waits_for_are_not_sent() -> None:
    async def scene(client: StorageConnection, server: StorageConnection) -> None:
        client._data._transport.pause_reading()  # type: ignore[union-attr]
        first = asyncio.create_task(client.call(CallKind.READ, b"1", 10))
        for number in range(20):  # They queue behind each other.
            with pytest.raises(CallTimeout):
                await client.call(CallKind.READ, bytes([number]), 0.01)
        client._data._transport.resume_reading()  # type: ignore[union-attr]
        assert (await first).meta == b"1"
        received = client.received_bytes()
        assert (await client.call(CallKind.READ, b"last", 5)).meta == b"last"
        assert client.received_bytes() - received < 3_000_000
        assert server._party.counts["expired_replies"] >= 15

    play(scene)


def test_a_call_that_comes_too_late_is_not_handled() -> None:
    async def scene(client: StorageConnection, server: StorageConnection) -> None:
        client._messages.post(
            header_of(Frame(CallKind.READ, False, ReplyStatus.OK, 99, time.monotonic() - 1, b"late"), 0)
        )
        assert (await client.call(CallKind.READ, b"", 5)).status is ReplyStatus.OK
        assert server._party.counts["expired_calls"] == 1

    play(scene)


def test_nobody_listening_is_named() -> None:
    async def run() -> None:
        with pytest.raises(TrafficError, match=r"127\.0\.0\.1:1: cannot connect within 0\.1 s"):
            await dial(Party("client", echo, OPTIONS, Tasks()), "server", ("127.0.0.1", 1), "", 0.1)

    asyncio.run(run())
