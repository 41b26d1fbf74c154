from __future__ import annotations

import asyncio
import contextlib
import functools
import gc
import math
import os
import resource
import select
import socket
import struct
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain, repeat
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabric.errors import TrafficError
from fabric.model.lanes import ServiceLevel
from traffic.storage.wire.calls import (
    _SCRATCH_BYTES,
    CallTimeout,
    ConnectionLost,
    LinkListener,
    Party,
    StorageConnection,
    Tasks,
    Wire,
    _dial_wire,
    _hello,
    dial,
)
from traffic.storage.wire.event_loop import unwatch, watch
from traffic.storage.wire.messages import HEADER, CallKind, Frame, ReplyStatus, header_of
from traffic.transport.connection import Connection, PollFor, Readable, SocketOptions
from traffic.transport.tcp import TcpConnection, TcpTransport

TCP = TcpTransport(SocketOptions(ServiceLevel.STORAGE))
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
        listener = TCP.listen("127.0.0.1")
        accepted: asyncio.Future[StorageConnection] = asyncio.get_running_loop().create_future()
        LinkListener(Party("server", echo, TCP, tasks), listener, accepted.set_result)
        link = await dial(Party("client", echo, TCP, tasks), "server", listener.endpoint, "127.0.0.1", 5)
        await asyncio.wait_for(scene(link, await accepted), 10)
        assert not tasks.failed.done()
        link.close()
        listener.close()

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
                assert (
                    socket_of(wire.connection).getsockopt(socket.IPPROTO_IP, socket.IP_TOS) == ServiceLevel.STORAGE.tos
                )

    play(scene)


UNKNOWN_KIND = bytearray(header_of(Frame(CallKind.READ, False, ReplyStatus.OK, 1, 9, b""), 0))
UNKNOWN_KIND[4] = 77


@pytest.mark.parametrize("damage", [b"X" * 80, bytes(UNKNOWN_KIND)])
def test_a_damaged_stream_fails_the_program_and_names_its_ends(damage: bytes) -> None:
    async def run() -> None:
        ours, theirs = Tasks(), Tasks()
        listener = TCP.listen("127.0.0.1")
        accepted: asyncio.Future[StorageConnection] = asyncio.get_running_loop().create_future()
        LinkListener(Party("server", echo, TCP, theirs), listener, accepted.set_result)
        link = await dial(Party("client", echo, TCP, ours), "server", listener.endpoint, "127.0.0.1", 5)
        server = await accepted
        link._messages.post(damage)
        with pytest.raises(TrafficError, match=r"server: 127\.0\.0\.1:\d+ from 127\.0\.0\.1:\d+: .*out of step"):
            await asyncio.wait_for(theirs.failed, 5)
        await asyncio.sleep(0.01)  # The connection's end is told in the event loop's next turn.
        assert server.lost

    asyncio.run(run())


def test_halves_of_two_attempts_of_one_peer_make_no_link() -> None:
    async def run() -> None:
        tasks, links = Tasks(), list[StorageConnection]()
        listener = TCP.listen("127.0.0.1")
        LinkListener(Party("server", echo, TCP, tasks), listener, links.append)
        party = Party("client", echo, TCP, tasks)
        halves = [await _dial_wire(party, listener.endpoint, "127.0.0.1", math.inf, 5) for _ in range(2)]
        for wire, role, attempt in zip(halves, (b"m", b"d"), (b"a" * 8, b"b" * 8), strict=True):
            wire.post(_hello(role, attempt, "client"))
        link = await dial(party, "server", listener.endpoint, "127.0.0.1", 5)
        assert len(links) == 1
        assert (await link.call(CallKind.READ, b"whole", 5)).meta == b"whole"
        assert not tasks.failed.done()

    asyncio.run(run())


def test_what_is_not_a_greeting_fails_the_program() -> None:
    async def run() -> None:
        tasks = Tasks()
        listener = TCP.listen("127.0.0.1")
        LinkListener(Party("server", echo, TCP, tasks), listener, lambda link: None)
        wire = await _dial_wire(Party("x", echo, TCP, Tasks()), listener.endpoint, "127.0.0.1", math.inf, 5)
        wire.post(header_of(Frame(CallKind.READ, False, ReplyStatus.OK, 1, math.inf, b""), 0))
        with pytest.raises(TrafficError, match="the first frame is READ with b'', not a greeting"):
            await asyncio.wait_for(tasks.failed, 5)

    asyncio.run(run())


def test_a_service_without_descriptors_for_another_connection_fails_and_says_so() -> None:
    """Not accepting would look like a service that has gone."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    gc.collect()  # What other tests have left would give a descriptor back meanwhile.

    async def scene() -> None:
        tasks = Tasks()
        with contextlib.closing(TCP.listen("127.0.0.1")) as listener, contextlib.ExitStack() as ours:
            LinkListener(Party("server", echo, TCP, tasks), listener, lambda link: None)
            caller = ours.enter_context(socket.socket())
            caller.setblocking(False)
            lowest_free = ours.enter_context(socket.socket()).fileno() + 1
            resource.setrlimit(resource.RLIMIT_NOFILE, (lowest_free, before[1]))
            await asyncio.get_running_loop().sock_connect(caller, listener.endpoint)
            with pytest.raises(OSError, match="Too many open files"):
                await asyncio.wait_for(tasks.failed, 5)

    try:
        asyncio.run(scene())
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_replies_that_nobody_waits_for_are_not_sent() -> None:
    async def scene(client: StorageConnection, server: StorageConnection) -> None:
        loop = asyncio.get_running_loop()
        unwatch(loop, client.data.poll_for_arrivals)
        first = asyncio.create_task(client.call(CallKind.READ, b"1", 10))
        for number in range(20):  # They queue behind each other.
            with pytest.raises(CallTimeout):
                await client.call(CallKind.READ, bytes([number]), 0.01)
        watch(loop, client.data.poll_for_arrivals, client._data._receive)
        assert (await first).meta == b"1"
        received = client.received_bytes()
        assert (await client.call(CallKind.READ, b"last", 5)).meta == b"last"
        assert client.received_bytes() - received < 3_000_000
        counts = server._party.counts
        # A call may have come too late already, where this program had to wait for its turn.
        assert counts["expired_replies"] > 0 and counts["expired_replies"] + counts["expired_calls"] >= 15

    play(scene)


def test_a_call_that_comes_too_late_is_not_handled() -> None:
    async def scene(client: StorageConnection, server: StorageConnection) -> None:
        client._messages.post(
            header_of(Frame(CallKind.READ, False, ReplyStatus.OK, 99, time.monotonic() - 1, b"late"), 0)
        )
        assert (await client.call(CallKind.READ, b"", 5)).status is ReplyStatus.OK
        assert server._party.counts["expired_calls"] == 1

    play(scene)


def socket_of(connection: Connection) -> socket.socket:
    assert isinstance(connection, TcpConnection)
    return connection._sock


def wakes_for(wire: Wire) -> int:
    return socket_of(wire.connection).getsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT)


def test_a_receiver_sleeps_until_the_least_payload_that_it_waits_for_is_there() -> None:
    async def scene(client: StorageConnection, server: StorageConnection) -> None:
        calls = [
            asyncio.create_task(client.call(CallKind.READ, b"x", 5, payload_bytes=size)) for size in (90_000, 50_000)
        ]
        calls.append(asyncio.create_task(client.call(CallKind.APPLY, b"", 5)))
        await asyncio.sleep(0)
        assert wakes_for(client._data) == HEADER.size + 50_000
        assert len((await calls[0]).payload) == len((await calls[1]).payload) == 1_000_010
        calls[2].cancel()

    play(scene)


def test_a_late_reply_with_less_payload_than_what_is_waited_for_is_noticed() -> None:
    async def scene(client: StorageConnection, server: StorageConnection) -> None:
        with pytest.raises(CallTimeout):
            await client.call(CallKind.READ, b"late", 0, payload_bytes=40_000)
        waiting = asyncio.create_task(client.call(CallKind.READ, b"next", 5, payload_bytes=100_000))
        await asyncio.sleep(0)
        assert wakes_for(client._data) == HEADER.size + 40_000
        assert (await waiting).meta == b"next"

    play(scene)


def test_calls_of_one_link_end_each_in_its_time() -> None:
    """On a busy machine they may begin too far apart: then they are made again."""

    async def scene(client: StorageConnection, server: StorageConnection) -> None:
        ended: list[float] = []

        async def wait(timeout_s: float) -> None:
            with pytest.raises(CallTimeout, match=f"within {timeout_s:g} s"):
                await client.call(CallKind.APPLY, b"", timeout_s)
            ended.append(timeout_s)

        for _ in range(20):
            ended.clear()
            await asyncio.gather(*map(wait, (0.06, 0.02, 0.1, 0.04)))
            if ended == [0.02, 0.04, 0.06, 0.1]:
                return
        pytest.fail(f"in none of 20 times they end in their order; at last {ended}")

    play(scene)


def test_nobody_listening_is_named() -> None:
    async def run() -> None:
        with pytest.raises(TrafficError, match=r"127\.0\.0\.1:1: cannot connect within 0\.1 s"):
            await dial(Party("client", echo, TCP, Tasks()), "server", ("127.0.0.1", 1), "", 0.1)

    asyncio.run(run())


class Handing:
    """A connection that hands a wire what comes: into the buffer that it names, as much as fits."""

    local = peer = ("127.0.0.1", 1)

    def __init__(self) -> None:
        self.poll_for_arrivals = PollFor(os.eventfd(0), select.POLLIN)
        self._coming = memoryview(b"")

    def wake_at(self, size_bytes: int) -> None:
        pass

    def receive_at_once(self, into: bytearray | memoryview) -> int:
        count = min(len(into), len(self._coming))
        into[:count], self._coming = self._coming[:count], self._coming[count:]
        return count

    def hand(self, wire: Wire, stream: bytes, most: int) -> bytes:
        """Have a wire receive the first bytes of a stream, at most so many; return those that it did not take."""
        self._coming = memoryview(stream)[:most]
        wire._receive()
        return bytes(self._coming) + stream[most:]

    def close(self) -> None:
        os.close(self.poll_for_arrivals.descriptor)


Hand = Callable[[bytes, int], bytes]


@contextmanager
def receiving(on_frame: Callable[[Frame], None]) -> Iterator[tuple[Wire, Hand]]:
    """Yield a wire that hands on frames, and what hands it bytes; nothing of a program fails."""

    async def tasks() -> Tasks:
        return Tasks()

    with contextlib.closing(asyncio.new_event_loop()) as loop, contextlib.closing(Handing()) as connection:
        made = loop.run_until_complete(tasks())
        party = Party("receiver", echo, TCP, made)
        wire = Wire(cast(Connection, connection), party, lambda _, frame: on_frame(frame))
        yield wire, functools.partial(connection.hand, wire)
        assert not made.failed.done()


def frame_bytes(number: int, meta: bytes, payload: bytes) -> bytes:
    return header_of(Frame(CallKind.READ, False, ReplyStatus.OK, number, 9, meta), len(payload)) + payload


SIZES = st.tuples(st.integers(0, 300), st.sampled_from([0, 1, 500, _SCRATCH_BYTES - 1, _SCRATCH_BYTES, 100_000]))


@given(sizes=st.lists(SIZES, min_size=1, max_size=6), pieces=st.lists(st.integers(1, 50_000), max_size=20))
def test_frames_are_whole_however_they_come_in_pieces(sizes: list[tuple[int, int]], pieces: list[int]) -> None:
    sent = [
        (number, bytes([number]) * meta, bytes([100 + number]) * payload)
        for number, (meta, payload) in enumerate(sizes)
    ]
    stream = b"".join(frame_bytes(*one) for one in sent)
    came: list[Frame] = []
    with receiving(came.append) as (_, hand):
        for most in chain(pieces, repeat(1 << 20)):
            if not stream:
                break
            stream = hand(stream, most)
    assert [(frame.number, frame.meta, bytes(frame.payload)) for frame in came] == sent


def test_small_messages_that_came_together_are_received_at_once() -> None:
    came: list[Frame] = []
    with receiving(came.append) as (_, hand):
        assert hand(b"".join(frame_bytes(number, b"meta", b"") for number in range(100)), 1 << 20) == b""
    assert [frame.number for frame in came] == list(range(100))


def test_a_large_payload_comes_into_the_buffer_that_is_handed_on() -> None:
    """Copied is what came with its header; all else is not."""
    came: list[Frame] = []
    with receiving(came.append) as (wire, hand):
        rest = hand(frame_bytes(1, b"", b"p" * 1_000_000), _SCRATCH_BYTES)
        assert len(rest) > 1_000_000 - _SCRATCH_BYTES
        payload = wire._arriving.buffer()
        assert len(payload) == len(rest)
        assert hand(rest, 1 << 20) == b"", "in one piece"
        assert payload.obj is came[0].payload
    assert came[0].payload == b"p" * 1_000_000


def test_what_came_behind_a_frame_that_closed_its_connection_is_not_handed_on() -> None:
    came: list[Frame] = []

    def close(frame: Frame) -> None:
        came.append(frame)
        wire.close()

    with receiving(close) as (wire, hand):
        hand(frame_bytes(1, b"", b"") + frame_bytes(2, b"", b""), 1 << 20)
    assert [frame.number for frame in came] == [1]


def test_a_payload_that_fits_into_the_sockets_buffer_is_sent_in_one_call(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[int] = []

    async def scene(client: StorageConnection, server: StorageConnection) -> None:
        send = client.data.send_at_once

        def counted(buffers: Sequence[Readable]) -> int:
            sent.append(send(buffers))
            return sent[-1]

        monkeypatch.setattr(client.data, "send_at_once", counted)
        reply = await client.call(CallKind.WRITE, b"", 5, offer=[b"p" * 10, b"q" * 30_000])
        assert reply.meta == b"p" * 10
        assert len(sent) == 1 and sent[0] > 30_010

    play(scene)


def test_what_a_sockets_buffer_does_not_take_follows() -> None:
    async def scene(client: StorageConnection, server: StorageConnection) -> None:
        socket_of(client.data).setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)
        reply = await client.call(CallKind.WRITE, b"", 5, offer=[b"p" * 10, b"q" * 3_000_000])
        assert reply.meta == b"p" * 10

    play(scene)


def test_a_payload_and_its_header_leave_in_one_packet_if_they_fit() -> None:
    async def scene(client: StorageConnection, server: StorageConnection) -> None:
        before = packets_received(socket_of(server.data))
        reply = await client.call(CallKind.WRITE, b"", 5, offer=[b"p" * 100])
        assert reply.meta == b"p" * 10
        assert packets_received(socket_of(server.data)) == before + 1

    play(scene)


_DATA_SEGMENTS_IN = 8 + 4 * 24 + 8 * 4 + 4 * 4
"""Where tcpi_data_segs_in is in a struct tcp_info (linux/tcp.h)."""


def packets_received(sock: socket.socket) -> int:
    raw = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 224)
    return int(struct.unpack_from("=I", raw, _DATA_SEGMENTS_IN)[0])
