"""Calls between two programs: frames, and a link of two connections on which either end may call the other.

Small messages and payloads have a connection each. On one connection, leave to send or the next pull would wait behind
megabytes already queued, and 3FS's messages do not.

A call bears the time until which its caller waits. What comes later is dropped: a call before it is handled, a reply
before it is sent. A corrupt stream ends the program: to continue without that peer would be another
experiment.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import math
import secrets
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

from fabric.errors import TrafficError
from traffic.storage.wire.arriving import ArrivingFrame, ArrivingPayloads, WakeMark
from traffic.storage.wire.causes import count_sent
from traffic.storage.wire.event_loop import dialled, unwatch, watch
from traffic.storage.wire.leaving import Backlog
from traffic.storage.wire.messages import (
    MAX_PAYLOAD_BYTES,
    CallKind,
    Frame,
    ReplyStatus,
    header_of,
    pack_number,
    parse_number,
)
from traffic.storage.wire.permits import Permits
from traffic.transport.connection import (
    Connection,
    ConnectionEndedError,
    Endpoint,
    Listener,
    Readable,
    Transport,
    UnreachableError,
)

T = TypeVar("T")
_SCRATCH_BYTES = 32 << 10
"""Less than this is received to be copied, with what comes behind it: small messages would else take a call for each
of their parts. Copying so much takes microseconds."""
_GREETING_TIMEOUT_S = 30.0
"""How long the first of a link's two connections waits for the second."""
_DIAL_PAUSE_S = 0.02
_DIAL_PAUSE_LONGEST_S = 0.5


class ConnectionLost(TrafficError):  # noqa: N818 - what happened, as its callers name it
    """The other end of a link has gone."""


class CallTimeout(TrafficError):  # noqa: N818
    """A call was not answered in time."""


class Tasks:
    """The background tasks of a program; the first that fails ends the program through :attr:`failed`."""

    def __init__(self) -> None:
        self._running: set[asyncio.Task[None]] = set()
        self.loop = asyncio.get_running_loop()
        """Kept, for Python 3.11 and before ask the kernel for the process's id to find it."""
        self.failed: asyncio.Future[None] = self.loop.create_future()

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run ``work`` beside the caller."""
        task = self.loop.create_task(work)
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


async def unless(failed: asyncio.Future[None], work: Coroutine[Any, Any, T]) -> T:
    """Return what ``work`` returns; raise at once what makes :attr:`Tasks.failed` fail meanwhile. The work is cancelled
    then, and if whoever waits is."""
    task = asyncio.get_running_loop().create_task(work)
    try:
        either: set[asyncio.Future[Any]] = {task, failed}
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if failed.done():
            failed.result()
        return task.result()
    finally:
        task.cancel()


Handler = Callable[["StorageConnection", Frame], Coroutine[Any, Any, None] | None]
"""Answers a call: at once, and returns None, or by the coroutine that it returns."""


@dataclass(frozen=True)
class Party:
    """One end of links: its name, how it answers calls, and what carries them.

    ``counts``: ``expired_calls``, that came when nobody waited for them any more, and ``expired_replies``, not sent.
    ``scratch``: where small messages arrive, on whichever connection; what has come is taken out of it at once.
    """

    name: str
    handler: Handler
    transport: Transport
    tasks: Tasks
    arrivals: ArrivingPayloads = field(default_factory=ArrivingPayloads)
    counts: Counter[str] = field(default_factory=Counter)
    scratch: memoryview = field(default_factory=lambda: memoryview(bytearray(_SCRATCH_BYTES)), repr=False)


class Wire:
    """One connection, cut into frames. Receives large payloads straight into the buffers that are handed on."""

    def __init__(self, connection: Connection, party: Party, on_frame: Callable[[Wire, Frame], None]) -> None:
        self.connection = connection
        self.on_frame = on_frame
        self.on_lost: Callable[[], None] = lambda: None
        self.lost = False
        self._party = party
        self._ends = f"{party.name}: {_ends_of(connection)}"
        self._is_open = True
        self._turn = Permits(1)
        self._backlog = Backlog(connection, party.tasks.loop, self.close)
        self._arriving = ArrivingFrame(party.arrivals, lambda frame: self.on_frame(self, frame), party.scratch)
        self._wake = WakeMark(connection, party.transport.options.receive_window_bytes)
        self._wake_for_next()
        watch(party.tasks.loop, connection.poll_for_arrivals, self._receive)

    def _receive(self) -> None:
        """Take in what has come; hand on the frames that it completes. What makes no sense ends the program."""
        try:
            count = self._received()
            if not count:
                return
            self._arriving.take(count, self._goes_on)
            if count == len(self._party.scratch):
                self._take_more()
            self._wake_for_next()
        except Exception as error:  # The loop would log it and go on.
            damage = TrafficError(f"{self._ends}: {error}")
            damage.__cause__ = error
            self._party.tasks.fail(damage)
            self.close()

    def _received(self) -> int:
        """Receive what is there into where it is to come; return how many bytes that was."""
        try:
            return self.connection.receive_at_once(self._arriving.buffer())
        except ConnectionEndedError:
            self.close()
            return 0

    def _take_more(self) -> None:
        """Receive what is there of a payload whose begin has filled the scratch, before the loop looks for events."""
        if self._arriving.wanted_bytes >= len(self._party.scratch) and self._is_open and (count := self._received()):
            self._arriving.take(count, self._goes_on)

    def _goes_on(self) -> bool:
        """Return whether nobody has closed this connection, as who takes a frame may."""
        return self._is_open

    def expect(self, payload_bytes: int) -> None:
        """Know that the next frame bears at least so much payload, and sleep until that is there, too."""
        self._wake.expected_bytes = payload_bytes
        self._wake_for_next()

    def _wake_for_next(self) -> None:
        if not self.lost:
            self._wake.set_for(self._arriving)

    def post(self, data: bytes) -> None:
        """Send a small message. Raises ConnectionLost if the connection has gone."""
        self._open_backlog().post(data)

    async def send(self, pieces: Sequence[Readable], deadline_s: float, permits: Permits | None = None) -> bool:
        """Send pieces, unmixed with others', as fast as the connection takes them; return once it has all but the last
        few KB.

        The connection's turn comes first, then one of the ``permits``. If either is not there by ``deadline_s``,
        nothing is sent and False returned; what has been begun is sent to its end. Raises ConnectionLost.
        """
        async with self._turn.held(deadline_s) as is_ours:
            if not is_ours:
                return False
            if permits is None:
                return await self._send(pieces, deadline_s)
            async with permits.held(deadline_s, self._delivered_bytes) as granted:
                return granted and await self._send(pieces, deadline_s)

    def _delivered_bytes(self) -> int:
        try:
            return self.connection.sample().delivered_bytes
        except ConnectionEndedError:
            return 0

    async def _send(self, pieces: Sequence[Readable], deadline_s: float) -> bool:
        if time.monotonic() >= deadline_s:
            return False
        has_room = self._backlog.has_room
        await has_room.wait()
        for piece in self._open_backlog().send_at_once(pieces):
            await has_room.wait()
            self._open_backlog().post(piece)
        await has_room.wait()
        return True

    def _open_backlog(self) -> Backlog:
        if self.lost:
            raise ConnectionLost("connection lost")
        return self._backlog

    def close(self) -> None:
        """Close at once; the link is told in the loop's next round."""
        if not self._is_open:
            return
        self._is_open = False
        unwatch(self._party.tasks.loop, self.connection.poll_for_arrivals)
        self._backlog.end()
        self._party.tasks.loop.call_soon(self._end)

    def _end(self) -> None:
        """Tell the link; let senders fail instead of waiting."""
        self._arriving.give_up()
        self.lost = True
        self._backlog.has_room.set()
        self.on_lost()
        self.connection.close()


def _ends_of(connection: Connection) -> str:
    try:
        return "{}:{} from {}:{}".format(*connection.local, *connection.peer)
    except ConnectionEndedError:
        return "a connection that has ended"


_HAVE_PAYLOAD = (CallKind.READ, CallKind.PULL, CallKind.RESYNC_START)
"""What calls are answered by data."""


class _Call(NamedTuple):
    """A call under way. ``payload_bytes``: how much payload its reply bears at least, if it bears any."""

    reply: asyncio.Future[Frame]
    kind: CallKind
    timeout_s: float
    deadline_s: float
    payload_bytes: int


class StorageConnection:
    """Both connections to one peer, and the calls under way in either direction. All that the data connection carries
    are replies to calls."""

    def __init__(self, party: Party, peer: str, messages: Wire, data: Wire) -> None:
        self.peer = peer
        self.lost = False
        self._party = party
        self._messages = messages
        self._data = data
        self._numbers = itertools.count(1)
        self._calls: dict[int, _Call] = {}
        self._expiry: asyncio.TimerHandle | None = None
        self._late_payload_bytes = MAX_PAYLOAD_BYTES
        """The least payload of replies that nobody waits for any more, and may come; at first, the most of any."""
        self._offers: dict[int, Sequence[Readable]] = {}
        self._pulls: dict[int, CallKind] = {}
        """What the data is for that is pulled next, by the number of the call."""
        for wire in (messages, data):
            wire.on_frame = self._take
            wire.on_lost = self.close
        if messages.lost or data.lost:
            self.close()

    @property
    def data(self) -> Connection:
        """The connection that carries payloads."""
        return self._data.connection

    def received_bytes(self) -> int:
        """Return how many bytes of payloads the peer has delivered so far."""
        return self._data.connection.received_bytes

    def close(self) -> None:
        """Close both connections; calls under way fail with ConnectionLost."""
        if self.lost:
            return
        self.lost = True
        for wire in (self._messages, self._data):
            wire.close()
        if self._expiry is not None:
            self._expiry.cancel()
        for call in self._calls.values():
            if not call.reply.done():
                call.reply.set_exception(ConnectionLost(f"{self._party.name}: {self.peer} has gone"))

    def number(self) -> int:
        """Return the number of the next call; for callers who must know it before they call."""
        return next(self._numbers)

    async def call(
        self,
        kind: CallKind,
        meta: bytes,
        timeout_s: float,
        *,
        offer: Sequence[Readable] = (),
        number: int | None = None,
        payload_bytes: int = 0,
    ) -> Frame:
        """Return the peer's reply. ``offer`` is what the peer may pull meanwhile; ``payload_bytes`` is how much payload
        the reply bears at least, if it bears any: less would not be noticed before more comes.

        Raises ConnectionLost if the peer goes, CallTimeout after ``timeout_s``.
        """
        if self.lost:
            raise ConnectionLost(f"{self._party.name}: {self.peer} has gone")
        number = self.number() if number is None else number
        deadline_s = time.monotonic() + timeout_s
        call = _Call(self._party.tasks.loop.create_future(), kind, timeout_s, deadline_s, payload_bytes)
        self._calls[number] = call
        if offer:
            self._offers[number] = offer
        self._expire_at(deadline_s)
        self._expect_payload()
        try:
            self._post(Frame(kind, False, ReplyStatus.OK, number, deadline_s, meta), self._pulls.pop(number, kind))
            return await call.reply
        finally:
            if self._calls.pop(number, None) is not None and kind in _HAVE_PAYLOAD:
                self._late_payload_bytes = min(self._late_payload_bytes, payload_bytes)
            self._offers.pop(number, None)

    def _expire_at(self, deadline_s: float) -> None:
        """See that calls are ended that have no answer then. One timer does for all of a link's: most are answered."""
        if self._expiry is not None and self._expiry.when() <= deadline_s:
            return
        if self._expiry is not None:
            self._expiry.cancel()
        self._expiry = self._party.tasks.loop.call_at(deadline_s, self._expire)

    def _expire(self) -> None:
        self._expiry = None
        now = time.monotonic()
        waiting = [call for call in self._calls.values() if not call.reply.done()]
        for call in waiting:
            if call.deadline_s <= now:
                did = f"did not answer {call.kind.name.lower()} within {call.timeout_s:g} s"
                call.reply.set_exception(CallTimeout(f"{self._party.name}: {self.peer} {did}"))
        later = [call.deadline_s for call in waiting if call.deadline_s > now]
        if later:
            self._expire_at(min(later))

    def _expect_payload(self) -> None:
        awaited = [call.payload_bytes for call in self._calls.values() if call.kind in _HAVE_PAYLOAD]
        if awaited:  # Else only what is late can come, and that has been expected before.
            self._data.expect(min(self._late_payload_bytes, *awaited))

    def answer(self, to: Frame, status: ReplyStatus, meta: bytes = b"") -> bool:
        """Answer a call, without a payload. Returns and raises as :meth:`reply`."""
        is_awaited = time.monotonic() < to.deadline_s
        if is_awaited:
            self._post(Frame(to.kind, True, status, to.number, 0.0, meta), self._kind_behind(to))
        self._party.counts["expired_replies"] += not is_awaited
        return is_awaited

    def _post(self, frame: Frame, behind: CallKind) -> None:
        """Send a frame without a payload; ``behind``: what it is for."""
        header = header_of(frame, 0)
        self._messages.post(header)
        count_sent(self._party.counts, behind, len(header))

    async def reply(
        self,
        to: Frame,
        status: ReplyStatus,
        meta: bytes = b"",
        pieces: Sequence[Readable] = (),
        permits: Permits | None = None,
    ) -> bool:
        """Answer a call; return once ``pieces``, the payload, are sent, under one of the ``permits``.

        Returns False if it was not sent, since the caller waits no longer. Raises ConnectionLost.
        """
        size = sum(map(len, pieces))
        if not size:
            return self.answer(to, status, meta)
        head = header_of(Frame(to.kind, True, status, to.number, 0.0, meta), size)
        kind = self._kind_behind(to)
        sent = time.monotonic() < to.deadline_s and await self._data.send([head, *pieces], to.deadline_s, permits)
        self._party.counts["expired_replies"] += not sent
        if sent:
            count_sent(self._party.counts, kind, len(head), size)
        return sent

    def _kind_behind(self, to: Frame) -> CallKind:
        """Return what a call is for: a PULL is for the call that it pulls the data of."""
        pulled = self._calls.get(parse_number(to.meta)) if to.kind is CallKind.PULL else None
        return to.kind if pulled is None else pulled.kind

    def _take(self, wire: Wire, frame: Frame) -> None:
        if frame.is_reply:
            self._take_reply(frame)
        elif time.monotonic() >= frame.deadline_s:
            self._party.counts["expired_calls"] += 1
        else:
            self._take_call(frame)

    def _take_reply(self, frame: Frame) -> None:
        call = self._calls.pop(frame.number, None)
        if call is None:
            return
        if not call.reply.done():
            call.reply.set_result(frame)
        self._expect_payload()

    def _take_call(self, frame: Frame) -> None:
        with contextlib.suppress(ConnectionLost):  # Nobody waits for this answer any more.
            work = self._hand_over(frame) if frame.kind is CallKind.PULL else self._party.handler(self, frame)
            if work is not None:
                self._party.tasks.spawn(self._answer(work))

    @staticmethod
    async def _answer(work: Coroutine[Any, Any, None]) -> None:
        with contextlib.suppress(ConnectionLost):
            await work

    async def _hand_over(self, frame: Frame) -> None:
        pieces = self._offers.get(parse_number(frame.meta))
        if pieces is None:
            self.answer(frame, ReplyStatus.WITHDRAWN)
        else:
            await self.reply(frame, ReplyStatus.OK, pieces=pieces)

    async def pull(self, of: Frame, timeout_s: float, payload_bytes: int = 0) -> Frame:
        """Return the data that the peer offers with its call ``of``, of at least ``payload_bytes`` as in :meth:`call`.
        Raises ConnectionLost, CallTimeout."""
        number = self.number()
        self._pulls[number] = of.kind
        meta = pack_number(of.number)
        return await self.call(CallKind.PULL, meta, timeout_s, number=number, payload_bytes=payload_bytes)


_MESSAGES, _DATA = b"m", b"d"
_ATTEMPT_BYTES = 8


class LinkListener:
    """Takes links where a listener listens. A link is whole once both connections of one attempt of a peer have said
    hello."""

    def __init__(self, party: Party, listener: Listener, on_link: Callable[[StorageConnection], None]) -> None:
        self._party = party
        self._listener = listener
        self._on_link = on_link
        self._waiting: dict[tuple[str, bytes], Wire] = {}
        watch(party.tasks.loop, listener.poll_for_callers, self._accept)

    def _accept(self) -> None:
        try:
            while (connection := self._listener.accept_at_once()) is not None:
                Wire(connection, self._party, self._greet)
        except Exception as error:  # The loop would log it and go on.
            unwatch(self._party.tasks.loop, self._listener.poll_for_callers)
            self._party.tasks.fail(error)

    def _greet(self, wire: Wire, frame: Frame) -> None:
        role, attempt, peer = _parse_hello(frame)
        other = self._waiting.pop((peer, attempt), None)
        if other is None:
            self._wait(wire, (peer, attempt))
            return
        messages, data = (wire, other) if role == _MESSAGES else (other, wire)
        link = StorageConnection(self._party, peer, messages, data)
        if link.lost:
            return
        self._on_link(link)
        header = header_of(Frame(CallKind.HELLO, True, ReplyStatus.OK, 0, 0.0, b""), 0)
        messages.post(header)
        count_sent(self._party.counts, CallKind.HELLO, len(header))

    def _wait(self, wire: Wire, attempt: tuple[str, bytes]) -> None:
        """Keep the first connection of an attempt until the second comes, or it is given up."""
        self._waiting[attempt] = wire
        wire.on_lost = lambda: _forget(self._waiting, attempt, wire)

        def give_up() -> None:
            if self._waiting.get(attempt) is wire:
                wire.close()

        asyncio.get_running_loop().call_later(_GREETING_TIMEOUT_S, give_up)


def listen_in_zones(party: Party, addresses: Mapping[int, str]) -> dict[int, Endpoint]:
    """Let a program answer who calls at its address in each zone; return where it listens."""
    found = {}
    for zone, address in addresses.items():
        listener = party.transport.listen(address)
        LinkListener(party, listener, lambda link: None)
        found[zone] = listener.endpoint
    return found


def _forget(waiting: dict[tuple[str, bytes], Wire], attempt: tuple[str, bytes], wire: Wire) -> None:
    if waiting.get(attempt) is wire:
        del waiting[attempt]


def _hello(role: bytes, attempt: bytes, name: str) -> bytes:
    return header_of(Frame(CallKind.HELLO, False, ReplyStatus.OK, 0, math.inf, role + attempt + name.encode()), 0)


def _parse_hello(frame: Frame) -> tuple[bytes, bytes, str]:
    role, attempt, name = frame.meta[:1], frame.meta[1 : 1 + _ATTEMPT_BYTES], frame.meta[1 + _ATTEMPT_BYTES :]
    if frame.kind is not CallKind.HELLO or role not in (_MESSAGES, _DATA) or not name:
        raise TrafficError(f"storage: the first frame is {frame.kind.name} with {frame.meta[:20]!r}, not a greeting")
    return role, attempt, name.decode()


async def dial(party: Party, peer: str, address: Endpoint, source: str, timeout_s: float) -> StorageConnection:
    """Return a link to ``peer``, who listens on ``address``, once it has greeted back.

    Raises TrafficError if it does not within ``timeout_s``.
    """
    deadline_s = time.monotonic() + timeout_s
    greeted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    attempt = secrets.token_bytes(_ATTEMPT_BYTES)
    wires: list[Wire] = []
    try:
        for role in (_MESSAGES, _DATA):
            wire = await _dial_wire(party, address, source, deadline_s, timeout_s)
            wires.append(wire)
            wire.on_frame = lambda *_: _greet_back(greeted)
            wire.on_lost = lambda: _greet_back(greeted, ConnectionLost("connection lost"))
            wire.post(hello := _hello(role, attempt, party.name))
            count_sent(party.counts, CallKind.HELLO, len(hello))
        await asyncio.wait_for(greeted, max(0.01, deadline_s - time.monotonic()))
    except BaseException as error:
        greeted.cancel()
        for wire in wires:
            wire.close()
        if not isinstance(error, asyncio.TimeoutError | ConnectionLost):
            raise
        where = f"{party.name}: {peer} at {address[0]}:{address[1]}"
        raise TrafficError(f"{where} did not greet within {timeout_s:g} s") from error
    return StorageConnection(party, peer, *wires)


def _greet_back(greeted: asyncio.Future[None], error: TrafficError | None = None) -> None:
    if greeted.done():
        return
    if error is None:
        greeted.set_result(None)
    else:
        greeted.set_exception(error)


async def _dial_wire(party: Party, address: Endpoint, source: str, deadline_s: float, timeout_s: float) -> Wire:
    """Return a connection, tried again until the deadline; then raise TrafficError."""
    pause_s = _DIAL_PAUSE_S
    while True:
        try:
            connection = await dialled(party.transport, address, source, max(0.01, deadline_s - time.monotonic()))
        except (UnreachableError, asyncio.TimeoutError) as error:
            if time.monotonic() + pause_s >= deadline_s:
                where = f"{address[0]}:{address[1]}: cannot connect within {timeout_s:g} s"
                raise TrafficError(f"{where}: {str(error) or 'no answer'}") from error
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, _DIAL_PAUSE_LONGEST_S)
            continue
        return Wire(connection, party, lambda *_: None)
