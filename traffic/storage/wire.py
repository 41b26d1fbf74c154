"""Calls between two programs over TCP: frames, and a link of two connections on which either end may call the other.

Small messages and payloads have a connection each. On one connection, leave to send or the next pull would wait behind
megabytes already queued, and 3FS's messages do not.
"""

from __future__ import annotations

import asyncio
import itertools
import socket
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any

from fabric.errors import TrafficError
from traffic.storage.messages import HEADER, Frame, Kind, Status, header_of, pack_number, parse_header, parse_number
from traffic.transport import SocketOptions, accept, connect

Piece = bytes | bytearray | memoryview
_WAKE_BYTES = 128 << 10
"""A receiver sleeps until this much has come (SO_RCVLOWAT): waking for each packet would cost a core per 20 MB/s."""
_WRITE_BUFFER_BYTES = 64 << 10


class LinkLost(TrafficError):  # noqa: N818 - what happened, as its callers name it
    """The other end of a link has gone."""


class CallTimeout(TrafficError):  # noqa: N818
    """A call was not answered in time."""


class Tasks:
    """The background tasks of a program; the first that fails ends the program through :attr:`failed`."""

    def __init__(self) -> None:
        self._running: set[asyncio.Task[None]] = set()
        self.failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run ``work`` beside the caller."""
        task = asyncio.get_running_loop().create_task(work)
        self._running.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.fail(error)

    def fail(self, error: BaseException) -> None:
        """End the program with ``error``, unless another came first."""
        if not self.failed.done():
            self.failed.set_exception(error)


@dataclass
class Arrivals:
    """How many payloads are arriving at a program at once: those begun and not yet whole."""

    current: int = 0
    peak: int = 0

    def begin(self) -> None:
        """Count one that begins."""
        self.current += 1
        self.peak = max(self.peak, self.current)

    def end(self) -> None:
        """Count one that is whole or given up."""
        self.current -= 1


Handler = Callable[["Link", Frame], Awaitable[None]]


@dataclass(frozen=True)
class Party:
    """One end of links: its name, how it answers calls, and what its sockets carry."""

    name: str
    handler: Handler
    options: SocketOptions
    tasks: Tasks
    arrivals: Arrivals = field(default_factory=Arrivals)


class Wire(asyncio.BufferedProtocol):
    """One TCP connection, cut into frames. Receives straight into the buffers that are handed on."""

    def __init__(self, sock: socket.socket, arrivals: Arrivals, on_frame: Callable[[Wire, Frame], None]) -> None:
        self.sock = sock
        self.on_frame = on_frame
        self.on_lost: Callable[[], None] = lambda: None
        self.lost = False
        self._arrivals = arrivals
        self._transport: asyncio.Transport | None = None
        self._writable = asyncio.Event()
        self._writable.set()
        self._sending = asyncio.Lock()
        self._header = bytearray(HEADER.size)
        self._meta = bytearray()
        self._payload = bytearray()
        self._frame: Frame | None = None
        self._parts: list[bytearray] = []
        self._rest = memoryview(self._header)
        self._wake_bytes = 0
        self._arriving = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.set_write_buffer_limits(high=_WRITE_BUFFER_BYTES)
        self._wake_when(HEADER.size)

    def connection_lost(self, error: Exception | None) -> None:
        """Tell the link; let senders fail instead of waiting."""
        self._end_arrival()
        self.lost = True
        self._writable.set()
        self.on_lost()

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return where the next bytes belong."""
        return self._rest

    def buffer_updated(self, count: int) -> None:
        """Take in ``count`` bytes; hand on the frame if they complete it."""
        self._rest = self._rest[count:]
        while not self._rest:
            self._next_part()
        self._wake_when(len(self._rest))

    def _next_part(self) -> None:
        if self._frame is None:
            self._begin_frame()
        if self._parts:
            self._rest = memoryview(self._parts.pop())
            if self._payload and not self._parts:
                self._arriving = True
                self._arrivals.begin()
            return
        self._end_frame()

    def _begin_frame(self) -> None:
        try:
            self._frame, meta_bytes, payload_bytes = parse_header(self._header)
        except (TrafficError, ValueError) as error:
            raise TrafficError(f"{self.sock.getpeername()}: {error}") from error
        self._meta = bytearray(meta_bytes)
        self._payload = bytearray(payload_bytes)
        self._parts = [part for part in (self._payload, self._meta) if part]

    def _end_frame(self) -> None:
        head, self._frame = self._frame, None
        assert head is not None, "a frame was begun"
        self._end_arrival()
        meta, payload = bytes(self._meta), self._payload
        self._meta, self._payload = bytearray(), bytearray()
        self._rest = memoryview(self._header)
        self.on_frame(
            self, Frame(head.kind, head.is_reply, head.status, head.number, head.table_version, meta, payload)
        )

    def _end_arrival(self) -> None:
        if self._arriving:
            self._arriving = False
            self._arrivals.end()

    def _wake_when(self, wanted: int) -> None:
        wake_bytes = min(wanted, _WAKE_BYTES)
        if wake_bytes != self._wake_bytes and not self.lost:
            self._wake_bytes = wake_bytes
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, wake_bytes)

    def post(self, data: bytes) -> None:
        """Send a small message. Raises LinkLost if the connection has gone."""
        if self.lost or self._transport is None:
            raise LinkLost("connection lost")
        self._transport.write(data)

    async def send(self, pieces: Sequence[Piece]) -> None:
        """Send pieces, unmixed with others', as fast as TCP takes them; return once all but the last few KB are with
        the kernel. Raises LinkLost."""
        async with self._sending:
            for piece in pieces:
                await self._writable.wait()
                if self.lost or self._transport is None:
                    raise LinkLost("connection lost")
                self._transport.write(piece)
            await self._writable.wait()

    def pause_writing(self) -> None:
        """Hold senders back."""
        self._writable.clear()

    def resume_writing(self) -> None:
        """Let senders go on."""
        self._writable.set()

    def close(self) -> None:
        """Close at once."""
        if self._transport is not None:
            self._transport.abort()


class Link:
    """Both connections to one peer, and the calls under way in either direction."""

    def __init__(self, party: Party, peer: str, messages: Wire, data: Wire) -> None:
        self.peer = peer
        self.lost = False
        self._party = party
        self._messages = messages
        self._data = data
        self._numbers = itertools.count(1)
        self._calls: dict[int, asyncio.Future[Frame]] = {}
        self._offers: dict[int, Sequence[Piece]] = {}
        for wire in (messages, data):
            wire.on_frame = self._take
            wire.on_lost = self.close
        if messages.lost or data.lost:
            self.close()

    @property
    def data_socket(self) -> socket.socket:
        """The connection that carries payloads."""
        return self._data.sock

    def close(self) -> None:
        """Close both connections; calls under way fail with LinkLost."""
        if self.lost:
            return
        self.lost = True
        for wire in (self._messages, self._data):
            wire.close()
        for call in self._calls.values():
            if not call.done():
                call.set_exception(LinkLost(f"{self._party.name}: {self.peer} has gone"))

    def number(self) -> int:
        """Return the number of the next call; for callers who must know it before they call."""
        return next(self._numbers)

    async def call(
        self,
        kind: Kind,
        meta: bytes,
        timeout_s: float,
        *,
        table_version: int = 0,
        offer: Sequence[Piece] = (),
        number: int | None = None,
    ) -> Frame:
        """Return the peer's reply. ``offer`` is what the peer may pull meanwhile.

        Raises LinkLost if the peer goes, CallTimeout after ``timeout_s``.
        """
        if self.lost:
            raise LinkLost(f"{self._party.name}: {self.peer} has gone")
        number = self.number() if number is None else number
        loop = asyncio.get_running_loop()
        reply: asyncio.Future[Frame] = loop.create_future()
        self._calls[number] = reply
        if offer:
            self._offers[number] = offer
        timer = loop.call_later(timeout_s, self._expire, reply, kind, timeout_s)
        try:
            self._messages.post(header_of(Frame(kind, False, Status.OK, number, table_version, meta), 0))
            return await reply
        finally:
            timer.cancel()
            del self._calls[number]
            self._offers.pop(number, None)

    def _expire(self, reply: asyncio.Future[Frame], kind: Kind, timeout_s: float) -> None:
        if not reply.done():
            name = kind.name.lower()
            reply.set_exception(
                CallTimeout(f"{self._party.name}: {self.peer} did not answer {name} within {timeout_s:g} s")
            )

    async def reply(
        self, to: Frame, status: Status, meta: bytes = b"", pieces: Sequence[Piece] = (), table_version: int = 0
    ) -> None:
        """Answer a call; returns once ``pieces``, the payload, are sent. Raises LinkLost."""
        size = sum(map(len, pieces))
        head = header_of(Frame(to.kind, True, status, to.number, table_version, meta), size)
        if size:
            await self._data.send([head, *pieces])
        else:
            self._messages.post(head)

    def _take(self, wire: Wire, frame: Frame) -> None:
        if frame.is_reply:
            call = self._calls.get(frame.number)
            if call is not None and not call.done():
                call.set_result(frame)
        else:
            self._party.tasks.spawn(self._answer(frame))

    async def _answer(self, frame: Frame) -> None:
        try:
            if frame.kind is Kind.PULL:
                await self._hand_over(frame)
            else:
                await self._party.handler(self, frame)
        except LinkLost:
            return  # Nobody waits for this answer any more.

    async def _hand_over(self, frame: Frame) -> None:
        pieces = self._offers.get(parse_number(frame.meta))
        if pieces is None:
            await self.reply(frame, Status.WITHDRAWN)
        else:
            await self.reply(frame, Status.OK, pieces=pieces)

    async def pull(self, of: Frame, timeout_s: float) -> Frame:
        """Return the data that the peer offers with its call ``of``. Raises LinkLost, CallTimeout."""
        return await self.call(Kind.PULL, pack_number(of.number), timeout_s)


_MESSAGES, _DATA = b"m", b"d"


class Listener:
    """Takes links on one address. A link is whole once both connections of a peer have said hello."""

    def __init__(self, party: Party, sock: socket.socket, on_link: Callable[[Link], None]) -> None:
        self._party = party
        self._sock = sock
        self._on_link = on_link
        self._waiting: dict[str, Wire] = {}
        asyncio.get_running_loop().add_reader(sock, self._accept)

    def _accept(self) -> None:
        sock, _ = accept(self._sock, self._party.options, timeout_s=1.0)
        sock.setblocking(False)
        self._party.tasks.spawn(self._adopt(sock))

    async def _adopt(self, sock: socket.socket) -> None:
        wire = Wire(sock, self._party.arrivals, self._greet)
        await asyncio.get_running_loop().connect_accepted_socket(lambda: wire, sock)

    def _greet(self, wire: Wire, frame: Frame) -> None:
        role, peer = frame.meta[:1], frame.meta[1:].decode()
        other = self._waiting.pop(peer, None)
        if other is None:
            self._waiting[peer] = wire
            return
        messages, data = (wire, other) if role == _MESSAGES else (other, wire)
        link = Link(self._party, peer, messages, data)
        self._on_link(link)
        messages.post(header_of(Frame(Kind.HELLO, True, Status.OK, 0, 0, b""), 0))


async def dial(party: Party, peer: str, address: tuple[str, int], source: str, timeout_s: float) -> Link:
    """Return a link to ``peer``, who listens on ``address``, once it has greeted back.

    Raises TrafficError if it does not within ``timeout_s``.
    """
    deadline = time.monotonic() + timeout_s
    greeted: asyncio.Future[Frame] = asyncio.get_running_loop().create_future()
    wires = [await _dial_wire(party, address, source, timeout_s) for _ in range(2)]
    wires[0].on_frame = lambda _, frame: greeted.set_result(frame)
    for wire, role in zip(wires, (_MESSAGES, _DATA), strict=True):
        wire.post(header_of(Frame(Kind.HELLO, False, Status.OK, 0, 0, role + party.name.encode()), 0))
    try:
        await asyncio.wait_for(greeted, max(0.01, deadline - time.monotonic()))
    except asyncio.TimeoutError as error:
        raise TrafficError(
            f"{party.name}: {peer} at {address[0]}:{address[1]} did not greet within {timeout_s:g} s"
        ) from error
    return Link(party, peer, *wires)


async def _dial_wire(party: Party, address: tuple[str, int], source: str, timeout_s: float) -> Wire:
    loop = asyncio.get_running_loop()
    sock = await loop.run_in_executor(None, connect, *address, party.options, timeout_s, source)
    sock.setblocking(False)
    wire = Wire(sock, party.arrivals, lambda *_: None)
    await loop.connect_accepted_socket(lambda: wire, sock)
    return wire
