"""Connections over several NICs at once, between hosts that have them: data takes turns, a stretch of it on each NIC.

Who connects to an address that is of :class:`Rails` opens a connection for each NIC of the end that has more, and says
on each which ones belong together. All that programs see is one connection, as NCCL's merged NICs and UCX's multi-rail
have it. Any other address goes to the transport beneath as it is.

A stretch has :data:`STRETCH_BYTES`, and connections of a program begin in turn on each NIC, so that NICs carry evenly
what many small messages make, too. One NIC that is slow holds the others back, as in those.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import select
import socket
import struct
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from fabric.errors import TrafficError
from traffic.transport.connection import (
    Connection,
    ConnectionEndedError,
    ConnectionSample,
    DataPorts,
    Dial,
    Endpoint,
    Listener,
    PollFor,
    Readable,
    SocketOptions,
    Transport,
    UnreachableError,
    Writable,
    after,
)

STRETCH_BYTES = 16 * 1024
"""What goes over a NIC before it is the next one's turn."""
_GREETING = struct.Struct("!4sHBBB")
"""Of each connection: address and port of the first of those that belong together, its place, how many there are, and
whose turn is first."""
_PORT_TRIES = 64
_turns = itertools.count()


class Rails(str):
    """The address that stands for ``nics`` of a host, by theirs: several, or one whose peers have several. Wherever
    addresses are printed it is these, with a plus between them."""

    nics: tuple[str, ...]

    def __new__(cls, nics: Iterable[str]) -> Rails:
        """Return that of some NICs."""
        own = tuple(nics)
        self = super().__new__(cls, "+".join(own))
        self.nics = own
        return self

    def __reduce__(self) -> tuple[type[Rails], tuple[tuple[str, ...]]]:
        return Rails, (self.nics,)


def address_of(nics: Iterable[str], are_several: bool) -> str:
    """Return the address that stands for NICs. ``are_several``: whether some end of the job has several."""
    own = Rails(dict.fromkeys(nics))
    return own if are_several or len(own.nics) > 1 else own.nics[0]


def nics_of(address: str) -> tuple[str, ...]:
    """Return the addresses of the NICs that an address stands for; none for an empty one, as a source may be."""
    return address.nics if isinstance(address, Rails) else (address,) if address else ()


class _Turn:
    """Whose turn it is in one direction, and for how many bytes still."""

    def __init__(self, first: int, count: int) -> None:
        self.at, self._count = first, count
        self.left_bytes = STRETCH_BYTES

    def go_on(self, size_bytes: int) -> bool:
        """Take in that so much was moved, no more than is left; return whether it is the next one's turn now."""
        self.left_bytes -= size_bytes
        if self.left_bytes:
            return False
        self.at, self.left_bytes = (self.at + 1) % self._count, STRETCH_BYTES
        return True


class _Polled:
    """A descriptor that is readable while what is wanted of the connection whose turn it is, is there."""

    def __init__(self, wanted: PollFor) -> None:
        self._epoll = select.epoll()
        self._wanted = wanted
        self._epoll.register(wanted.descriptor, wanted.events)

    @property
    def poll_for(self) -> PollFor:
        """What to wait for."""
        return PollFor(self._epoll.fileno(), select.POLLIN)

    def turn_to(self, wanted: PollFor) -> None:
        """Wait for something else from now on."""
        with contextlib.suppress(OSError, ValueError):  # It may be closed by now.
            self._epoll.unregister(self._wanted.descriptor)
            self._epoll.register(wanted.descriptor, wanted.events)
        self._wanted = wanted

    def close(self) -> None:
        """Give the descriptor back."""
        self._epoll.close()


class RailsConnection:
    """Several connections as one :class:`traffic.transport.connection.Connection`. ``first``: whose turn it is first;
    ``greeted_bytes``: what of all that came is no data."""

    def __init__(self, parts: Sequence[Connection], first: int, greeted_bytes: int = 0) -> None:
        self._parts = list(parts)
        self._greeted_bytes = greeted_bytes
        self._out, self._in = (_Turn(first, len(self._parts)) for _ in range(2))
        self._room: _Polled | None = None
        self._arrivals: _Polled | None = None
        self._awaited_bytes = self._low_bytes = 1
        """For how much more of what comes the program wants to be woken, and for how much it is."""

    @property
    def local(self) -> Endpoint:
        """This end's addresses, and the port of the first."""
        return _joined_ends([part.local for part in self._parts])

    @property
    def peer(self) -> Endpoint:
        """The other end's addresses, and the port of the first."""
        return _joined_ends([part.peer for part in self._parts])

    @property
    def data_ports(self) -> DataPorts:
        """Those of the first NIC."""
        return self._parts[0].data_ports

    def set_timeouts(self, send_s: float, silent_s: float) -> None:
        """Limit what :meth:`send` and :meth:`receive` wait."""
        for part in self._parts:
            part.set_timeouts(send_s, silent_s)

    def limit_send_buffer(self, size_bytes: int) -> None:
        """Hold what is sent at a size, each NIC its share."""
        for part in self._parts:
            part.limit_send_buffer(max(1, -(-size_bytes // len(self._parts))))

    def send(self, buffers: Sequence[Readable]) -> int:
        """Send as much as goes before the timeout."""
        return self._sent(buffers, at_once=False)

    def send_at_once(self, buffers: Sequence[Readable]) -> int:
        """Send as much as there is room for."""
        return self._sent(buffers, at_once=True)

    def _sent(self, buffers: Sequence[Readable], at_once: bool) -> int:
        left, sent = [memoryview(one) for one in buffers], 0
        while left:
            pieces, wanted = _first_bytes(left, self._out.left_bytes)
            part = self._parts[self._out.at]
            took = part.send_at_once(pieces) if at_once else part.send(pieces)
            sent += took
            if self._out.go_on(took) and self._room is not None:
                self._room.turn_to(self._parts[self._out.at].poll_for_room)
            if took < wanted:
                break
            left = after(left, took)
        return sent

    @property
    def poll_for_room(self) -> PollFor:
        """Room on the NIC whose turn it is."""
        if self._room is None:
            self._room = _Polled(self._parts[self._out.at].poll_for_room)
        return self._room.poll_for

    @property
    def undelivered_bytes(self) -> int:
        """How much of what was taken the peer has not acknowledged, on all NICs."""
        return sum(part.undelivered_bytes for part in self._parts)

    def receive(self, buffers: Sequence[Writable]) -> None:
        """Fill the buffers."""
        left = [memoryview(one) for one in buffers]
        while left:
            pieces, wanted = _first_bytes(left, self._in.left_bytes)
            if wanted:
                self._parts[self._in.at].receive(pieces)
                self._came(wanted)
            left = after(left, wanted)

    def receive_at_once(self, into: Writable) -> int:
        """Receive what is there."""
        view, received = memoryview(into), 0
        while received < len(view):
            wanted = min(len(view) - received, self._in.left_bytes)
            try:
                got = self._parts[self._in.at].receive_at_once(view[received : received + wanted])
            except ConnectionEndedError:
                if received:  # Who asks again hears of it.
                    return received
                raise
            received += got
            self._came(got)
            if got < wanted:
                break
        return received

    def _came(self, size_bytes: int) -> None:
        self._awaited_bytes = max(1, self._awaited_bytes - size_bytes)
        is_next = self._in.go_on(size_bytes)
        if is_next and self._arrivals is not None:
            self._arrivals.turn_to(self._parts[self._in.at].poll_for_arrivals)
        if is_next or self._low_bytes > self._in.left_bytes:
            self._set_low_bytes()

    @property
    def poll_for_arrivals(self) -> PollFor:
        """Data on the NIC whose turn it is."""
        if self._arrivals is None:
            self._arrivals = _Polled(self._parts[self._in.at].poll_for_arrivals)
            self._set_low_bytes()
        return self._arrivals.poll_for

    def wake_at(self, size_bytes: int) -> None:
        """Have the NIC whose turn it is wake who waits."""
        self._awaited_bytes = size_bytes
        self._set_low_bytes()

    def _set_low_bytes(self) -> None:
        self._low_bytes = min(self._awaited_bytes, self._in.left_bytes)
        if self._arrivals is not None:
            self._parts[self._in.at].wake_at(self._low_bytes)

    @property
    def received_bytes(self) -> int:
        """How much has come, on all NICs."""
        return max(0, sum(part.received_bytes for part in self._parts) - self._greeted_bytes)

    @property
    def reorderings(self) -> int | None:
        """What all NICs' connections have found; None if one does not count it."""
        counts = [part.reorderings for part in self._parts]
        return None if None in counts else sum(count or 0 for count in counts)

    def sample(self) -> ConnectionSample:
        """Return the mean of the round trips, and the sums of the rest."""
        said = [part.sample() for part in self._parts]
        trips = [one.round_trip_s for one in said if one.round_trip_s is not None]
        return ConnectionSample(
            sum(trips) / len(trips) if trips else None,
            _sum_of_counted(one.retransmissions for one in said),
            sum(one.delivered_bytes for one in said),
            _sum_of_counted(one.naks for one in said),
            _sum_of_counted(one.timeouts for one in said),
            _sum_of_counted(one.cnps for one in said),
        )

    def abort(self) -> None:
        """Abort all."""
        for part in self._parts:
            part.abort()

    def close(self) -> None:
        """Close all."""
        for part in self._parts:
            part.close()
        for polled in (self._room, self._arrivals):
            if polled is not None:
                polled.close()


def _sum_of_counted(counts: Iterable[int | None]) -> int | None:
    """Return the sum of what was counted; None: nothing was."""
    known = [count for count in counts if count is not None]
    return sum(known) if known else None


def _joined_ends(ends: Sequence[Endpoint]) -> Endpoint:
    return Rails(address for address, _ in ends), ends[0][1]


def _first_bytes(views: Sequence[memoryview], most: int) -> tuple[list[memoryview], int]:
    """Return the first ``most`` bytes of buffers, or all if they are fewer, and how many these are."""
    found, count = [], 0
    for view in views:
        if count == most:
            break
        found.append(view[: most - count])
        count += len(found[-1])
    return found, count


class RailsListener:
    """Listeners on several NICs as a :class:`traffic.transport.connection.Listener`, all of one port."""

    def __init__(self, listeners: Sequence[Listener]) -> None:
        self._listeners = list(listeners)
        self._greeting: dict[int, tuple[Connection, bytearray]] = {}
        self._begun: dict[tuple[bytes, int], dict[int, Connection]] = {}
        self._epoll = select.epoll()
        for listener in self._listeners:
            wanted = listener.poll_for_callers
            self._epoll.register(wanted.descriptor, wanted.events)

    @property
    def endpoint(self) -> Endpoint:
        """Where peers can connect."""
        return _joined_ends([listener.endpoint for listener in self._listeners])

    def accept(self, timeout_s: float) -> RailsConnection:
        """Return the next connection."""
        deadline_s = time.monotonic() + timeout_s
        while (found := self.accept_at_once()) is None:
            if not self._epoll.poll(max(0.0, deadline_s - time.monotonic())) and time.monotonic() >= deadline_s:
                name = "{}:{}".format(*self.endpoint)
                raise UnreachableError(f"{name}: nobody connected within {timeout_s:g} s")
        return found

    def accept_at_once(self) -> RailsConnection | None:
        """Return the next connection whose parts have all come."""
        for listener in self._listeners:
            while (came := listener.accept_at_once()) is not None:
                wanted = came.poll_for_arrivals
                self._greeting[wanted.descriptor] = (came, bytearray())
                self._epoll.register(wanted.descriptor, wanted.events)
        for descriptor in list(self._greeting):
            if (found := self._greeted(descriptor)) is not None:
                return found
        return None

    def _greeted(self, descriptor: int) -> RailsConnection | None:
        """Hear what a connection says of itself; return the whole that it is the last part of, if it is."""
        part, heard = self._greeting[descriptor]
        more = bytearray(_GREETING.size - len(heard))
        try:
            heard += more[: part.receive_at_once(more)]
        except ConnectionEndedError:  # Its dialer has given it up.
            self._forget(descriptor)
            part.close()
            return None
        if len(heard) < _GREETING.size:
            return None
        self._forget(descriptor)
        address, port, place, count, first = _GREETING.unpack(heard)
        parts = self._begun.setdefault((address, port), {})
        parts[place] = part
        if len(parts) < count:
            return None
        del self._begun[address, port]
        return RailsConnection([parts[number] for number in range(count)], first, count * _GREETING.size)

    def _forget(self, descriptor: int) -> None:
        self._epoll.unregister(descriptor)
        del self._greeting[descriptor]

    @property
    def poll_for_callers(self) -> PollFor:
        """Anything from anyone."""
        return PollFor(self._epoll.fileno(), select.POLLIN)

    def close(self) -> None:
        """Take no more connections."""
        waiting = [*(part for part, _ in self._greeting.values())]
        waiting += [part for parts in self._begun.values() for part in parts.values()]
        for part in waiting:
            part.close()
        for listener in self._listeners:
            listener.close()
        self._epoll.close()


def _greet(parts: Sequence[Connection]) -> RailsConnection:
    """Return connections as one, after each has said where it belongs. Raises UnreachableError."""
    first = next(_turns) % len(parts)
    address, port = parts[0].local
    for place, part in enumerate(parts):
        said = _GREETING.pack(socket.inet_aton(address), port, place, len(parts), first)
        if part.send_at_once([said]) != len(said):
            raise UnreachableError("{}:{}: takes no greeting".format(*part.peer))
    return RailsConnection(parts, first)


class RailsDial:
    """Dials on several NICs as a :class:`traffic.transport.connection.Dial`: they are answered one after the other."""

    def __init__(self, dials: Sequence[Dial]) -> None:
        self._dials = list(dials)
        self._parts: list[Connection] = []

    @property
    def poll_for_answer(self) -> PollFor:
        """The next answer."""
        return self._dials[len(self._parts)].poll_for_answer

    def answered(self) -> RailsConnection | None:
        """Return the connection, or None while answers are left."""
        try:
            if (part := self._dials[len(self._parts)].answered()) is not None:
                self._parts.append(part)
            return _greet(self._parts) if len(self._parts) == len(self._dials) else None
        except (TrafficError, OSError):
            self.close()
            raise

    def close(self) -> None:
        """Give all up."""
        for part in self._parts:
            part.close()
        for dial in self._dials[len(self._parts) :]:
            dial.close()


@dataclass(frozen=True)
class RailsTransport:
    """A :class:`traffic.transport.connection.Transport` over the NICs that addresses stand for, by another one over
    each of them."""

    beneath: Transport

    @property
    def options(self) -> SocketOptions:
        """What all connections carry."""
        return self.beneath.options

    def listen(self, address: str, port: int = 0) -> Listener:
        """Listen on each NIC, on one port."""
        if not isinstance(address, Rails):
            return self.beneath.listen(address, port)
        first, *others = address.nics
        for _ in range(_PORT_TRIES):
            with contextlib.ExitStack() as failed:
                one = self.beneath.listen(first, port)
                failed.callback(one.close)
                found = [one]
                try:
                    for other in others:
                        found.append(self.beneath.listen(other, one.endpoint[1]))
                        failed.callback(found[-1].close)
                except OSError as error:
                    if error.errno != errno.EADDRINUSE or port:
                        raise
                    continue
                failed.pop_all()
                return RailsListener(found)
        raise TrafficError(f"{address}: none of {_PORT_TRIES} ports is free on all of these NICs; end other programs")

    def connect(self, endpoint: Endpoint, timeout_s: float, source: str = "") -> Connection:
        """Connect on each NIC."""
        if not isinstance(endpoint[0], Rails):
            return self.beneath.connect(endpoint, timeout_s, _first_of(source))
        deadline_s, left_s = time.monotonic() + timeout_s, timeout_s
        parts: list[Connection] = []
        try:
            for one, here in _ways(endpoint, source):
                parts.append(self.beneath.connect(one, left_s, here))
                left_s = max(0.0, deadline_s - time.monotonic())
            return _greet(parts)
        except BaseException:
            for part in parts:
                part.close()
            raise

    def dial(self, endpoint: Endpoint, source: str = "") -> Dial:
        """Dial on each NIC."""
        if not isinstance(endpoint[0], Rails):
            return self.beneath.dial(endpoint, _first_of(source))
        dials: list[Dial] = []
        try:
            dials += [self.beneath.dial(one, here) for one, here in _ways(endpoint, source)]
        except BaseException:
            for dial in dials:
                dial.close()
            raise
        return RailsDial(dials)


def _first_of(source: str) -> str:
    return next(iter(nics_of(source)), "")


def _ways(endpoint: Endpoint, source: str) -> Iterable[tuple[Endpoint, str]]:
    """Return where each part goes, and from where."""
    address, port = endpoint
    there, here = nics_of(address), nics_of(source) or ("",)
    for place in range(max(len(there), len(here))):
        yield (there[place % len(there)], port), here[place % len(here)]
