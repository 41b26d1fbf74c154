"""What programs need of whatever carries their data, and the words that all transports share.

A :class:`Transport` listens and connects; a :class:`Connection` sends, receives, samples and aborts. Data crosses it
reliably, once and in order, in messages of sizes on which both ends agree. A transport may be a stream (TCP), which
takes and delivers parts of messages, or one of messages, which takes all of one or nothing.

Threads wait in :meth:`Connection.send` and :meth:`Connection.receive`. A program with many connections and one event
loop waits for descriptors (:class:`PollFor`), and then does at once what can be done.

Programs take a transport as a value (:meth:`traffic.job.Stage.transport`), which is pickled on its way to their hosts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from fabric.errors import TrafficError
from fabric.model.lanes import ServiceLevel

DEFAULT_CONGESTION_CONTROL = "cubic"
Endpoint = tuple[str, int]
"""Where a program listens: an address and a port."""
Readable = bytes | bytearray | memoryview
"""Bytes to send. A memoryview has one dimension, and elements of a byte."""
Writable = bytearray | memoryview
"""Memory to receive into; likewise."""


class UnreachableError(TrafficError):
    """Nobody answered, or nobody came, within a time: a dead route or program somewhere."""


class ConnectionEndedError(TrafficError):
    """A connection has ended, at whichever end."""


class SilentPeerError(TrafficError):
    """Nothing came from a connection's peer for longer than its receiver waits."""


@dataclass(frozen=True)
class SocketOptions:
    """What every socket of one kind of traffic carries."""

    level: ServiceLevel
    congestion_control: str = DEFAULT_CONGESTION_CONTROL
    receive_window_bytes: int | None = None
    """What a peer may send ahead of what the program has read; None leaves it to the kernel to find out."""
    user_timeout_s: float | None = None
    """How long what was sent may stay unacknowledged before TCP ends the connection (TCP_USER_TIMEOUT); None: the
    kernel's 15 minutes or so."""


class ConnectionSample(NamedTuple):
    """What a connection says of what its end has sent; None is what its transport does not count.

    ``round_trip_s``: smoothed; ``retransmissions``: packets sent again; ``delivered_bytes``: what the peer has
    acknowledged. ``naks``: negative acknowledgements that came, ``timeouts``: of waiting for acknowledgements,
    ``cnps``: notifications of congestion that came. All counts are since the connection began.
    """

    round_trip_s: float | None
    retransmissions: int | None
    delivered_bytes: int
    naks: int | None = None
    timeouts: int | None = None
    cnps: int | None = None


class Sampled(Protocol):
    """What a :class:`traffic.transport.sampling.FlowSampler` samples."""

    def sample(self) -> ConnectionSample:
        """Return what the connection says now. Raises ConnectionEndedError once it is closed."""


class DataPorts(NamedTuple):
    """The IP protocol and the ports, the sender's first, by which ECMP tells what one end of a connection sends."""

    protocol: int
    source: int
    destination: int


class PollFor(NamedTuple):
    """What ``select.poll`` is to wait for: POLLIN or POLLOUT of a descriptor. No one else waits for that of it."""

    descriptor: int
    events: int


class Connection(Sampled, Protocol):
    """One end of a connection. One thread may send while another receives."""

    @property
    def local(self) -> Endpoint:
        """This end's address and port. Raises ConnectionEndedError once it is closed."""

    @property
    def peer(self) -> Endpoint:
        """The other end's address and port. Raises ConnectionEndedError once the connection has ended."""

    @property
    def data_ports(self) -> DataPorts:
        """What ECMP tells this end's data by. Raises ConnectionEndedError once the connection has ended."""

    def set_timeouts(self, send_s: float, silent_s: float) -> None:
        """Have a send wait ``send_s`` for room at most, and a receive ``silent_s`` for a peer from which nothing comes.
        Without this, both wait forever."""

    def limit_send_buffer(self, size_bytes: int) -> None:
        """Take no more ahead of what the peer has taken than a message or so of this size."""

    def send(self, buffers: Sequence[Readable]) -> int:
        """Send a message, in pieces, and wait for room. Return how many bytes of it were taken: fewer, or none, if
        there was no room in time. Raises ConnectionEndedError."""

    def send_at_once(self, buffers: Sequence[Readable]) -> int:
        """Send what there is room for of a message, or of what is left of one, without waiting. Return how many bytes
        that was. Raises ConnectionEndedError."""

    @property
    def poll_for_room(self) -> PollFor:
        """What to wait for before :meth:`send_at_once` is tried again."""

    @property
    def undelivered_bytes(self) -> int:
        """How much of what was taken the peer has not acknowledged."""

    def receive(self, buffers: Sequence[Writable]) -> None:
        """Fill all of the buffers with the next message. Raises SilentPeerError, ConnectionEndedError."""

    def receive_at_once(self, into: Writable) -> int:
        """Receive what has come, at most what ``into`` holds (a byte or more), without waiting. Return how many bytes
        that was; what is left of a message comes next. Raises ConnectionEndedError, once all that came is received."""

    @property
    def poll_for_arrivals(self) -> PollFor:
        """What to wait for before :meth:`receive_at_once` is tried again."""

    def wake_at(self, size_bytes: int) -> None:
        """Have who waits for arrivals woken once so much has come, if the transport can; it may wake sooner. Raises
        ConnectionEndedError once it is closed."""

    @property
    def received_bytes(self) -> int:
        """How much has come from the peer so far, received by the program or not; 0 once it is closed."""

    @property
    def reorderings(self) -> int | None:
        """How often it was found that a packet, taken for lost, had only been overtaken by others; None if its
        transport does not count that. Raises ConnectionEndedError once it is closed."""

    def abort(self) -> None:
        """Wake the threads that send or receive at either end, with ConnectionEndedError."""

    def close(self) -> None:
        """Abort, and give back what the connection holds. Raises nothing, even if it has ended."""


class Listener(Protocol):
    """Where connections come."""

    @property
    def endpoint(self) -> Endpoint:
        """Where peers can connect."""

    def accept(self, timeout_s: float) -> Connection:
        """Return the next connection. Raises UnreachableError if none comes in time."""

    def accept_at_once(self) -> Connection | None:
        """Return the next connection, or None if none has come. Raises TrafficError if the peer's options do not go
        with one's own, OSError if the machine has no more to give."""

    @property
    def poll_for_callers(self) -> PollFor:
        """What to wait for before :meth:`accept_at_once` is tried again."""

    def close(self) -> None:
        """Take no more connections."""


class Dial(Protocol):
    """A connection that is being made, without waiting."""

    @property
    def poll_for_answer(self) -> PollFor:
        """What to wait for before :meth:`answered` is called."""

    def answered(self) -> Connection | None:
        """Return the connection, or None if there is another answer to wait for. Raises UnreachableError if the answer
        is that there is none, TrafficError if the peer's options do not go with one's own."""

    def close(self) -> None:
        """Give it up; not for one that has been answered."""


class Transport(Protocol):
    """A way to carry data, as a picklable value.

    The line is drawn at ordered bytes of known sizes: collectives, storage and streams ask no more of what carries
    them, so a transport of messages takes TCP's place without a change of theirs.

    Example: TCP whose dials are counted; :mod:`traffic.transport.tcp` makes connections of its own::

        @dataclass(frozen=True)
        class Counted:
            options: SocketOptions
            dials: list[Endpoint] = field(default_factory=list)

            def listen(self, address, port=0):
                return TcpTransport(self.options).listen(address, port)

            def connect(self, endpoint, timeout_s, source=""):
                self.dials.append(endpoint)
                return TcpTransport(self.options).connect(endpoint, timeout_s, source)

            def dial(self, endpoint, source=""):
                self.dials.append(endpoint)
                return TcpTransport(self.options).dial(endpoint, source)
    """

    @property
    def options(self) -> SocketOptions:
        """What all of its connections carry."""

    def listen(self, address: str, port: int = 0) -> Listener:
        """Listen on an address; port 0 takes a free one. Raises TrafficError if an option is not to be had."""

    def connect(self, endpoint: Endpoint, timeout_s: float, source: str = "") -> Connection:
        """Connect to who listens, from the address ``source`` (empty: any). Raises UnreachableError if nobody does in
        time, TrafficError if an option is not to be had."""

    def dial(self, endpoint: Endpoint, source: str = "") -> Dial:
        """Begin to connect, once, to who listens. Raises UnreachableError if that cannot be, else as
        :meth:`connect`."""


def after(pieces: Sequence[memoryview], count: int) -> list[memoryview]:
    """Return what is left of pieces after their first ``count`` bytes."""
    left = list(pieces)
    while left and count >= len(left[0]):
        count -= len(left.pop(0))
    return [left[0][count:], *left[1:]] if left else []
