"""What programs count on, whichever transport it is: the kernel's TCP, and one of messages in memory."""

from __future__ import annotations

import os
import select
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing

import pytest

from fabric.model.lanes import ServiceLevel
from tests.traffic.transport.memory_transport import MemoryTransport
from traffic.transport.connection import (
    Connection,
    ConnectionEndedError,
    Dial,
    Listener,
    PollFor,
    SilentPeerError,
    SocketOptions,
    Transport,
    UnreachableError,
    after,
)
from traffic.transport.messages import MessageTransport
from traffic.transport.rails import Rails, RailsTransport, nics_of
from traffic.transport.tcp import TcpTransport
from traffic.transport.verbs import VerbsTransport

LOOPBACK, *CALLERS = os.environ.get("FABRIC_TEST_NICS", "127.0.0.1 127.0.0.7 127.0.0.8").split()
"""Addresses of this machine; where they are an RDMA device's, RDMA writes are played (tests/virtual/test_verbs.py)."""
OPTIONS = SocketOptions(ServiceLevel.NCCL)
MORE_THAN_ANY_KEEPS = bytes(32 * 2**20)
TIMEOUT_S = 10.0
Ends = tuple[Connection, Connection]


class OverTwoNics(RailsTransport):
    """TCP over two addresses of this machine, whichever a test listens on."""

    def __init__(self, options: SocketOptions) -> None:
        super().__init__(TcpTransport(options))

    def listen(self, address: str, port: int = 0) -> Listener:
        return super().listen(Rails([address, "127.0.0.2"]), port)


TRANSPORTS: list[type[Transport]] = [TcpTransport, MemoryTransport, OverTwoNics, MessageTransport]


@pytest.fixture(params=[VerbsTransport] if "FABRIC_TEST_NICS" in os.environ else TRANSPORTS)
def transport(request: pytest.FixtureRequest) -> Transport:
    made: Transport = request.param(OPTIONS)
    return made


@pytest.fixture
def ends(transport: Transport) -> Iterator[Ends]:
    with closing(transport.listen(LOOPBACK)) as listener:
        near = transport.connect(listener.endpoint, TIMEOUT_S)
        far = listener.accept(TIMEOUT_S)
    for end in (near, far):
        end.set_timeouts(TIMEOUT_S, TIMEOUT_S)
    with closing(near), closing(far):
        yield near, far


def test_each_end_knows_both(transport: Transport) -> None:
    with closing(transport.listen(LOOPBACK)) as listener:
        near = transport.connect(listener.endpoint, TIMEOUT_S, source=CALLERS[0])
        far, came_to = listener.accept(TIMEOUT_S), listener.endpoint
    with closing(near), closing(far):
        assert set(nics_of(near.local[0])) == {CALLERS[0]}
        assert near.peer == far.local == came_to
        assert far.peer == near.local


def test_messages_in_pieces_arrive_once_and_in_order_in_pieces_of_their_receiver(ends: Ends) -> None:
    near, far = ends
    for number in range(3):
        assert near.send((bytes([number]) * 10, memoryview(bytes([number + 100]) * 1000))) == 1010
    for number in range(3):
        first, second = bytearray(1000), bytearray(10)
        far.receive((first, memoryview(second)))
        assert first + second == bytes([number]) * 10 + bytes([number + 100]) * 1000


def test_a_receiver_waits_for_a_message(ends: Ends) -> None:
    near, far = ends
    sender = threading.Timer(0.1, near.send, ((b"late",),))
    sender.start()
    received = bytearray(4)
    far.receive((received,))
    assert received == b"late"
    sender.join(TIMEOUT_S)


def test_a_peer_that_sends_nothing_is_silent(ends: Ends) -> None:
    _, far = ends
    far.set_timeouts(TIMEOUT_S, 0.2)
    started = time.monotonic()
    with pytest.raises(SilentPeerError, match=r"nothing came for 0\.2 s"):
        far.receive((bytearray(1),))
    assert 0.19 < time.monotonic() - started < 5


def fill(connection: Connection) -> int:
    """Send until there is no room, and none comes with the last acknowledgements, which are delayed by 0.2 s at most;
    return the number of bytes."""
    sent = tries_in_vain = 0
    while tries_in_vain < 2:
        taken = connection.send_at_once((memoryview(MORE_THAN_ANY_KEEPS)[: 1 << 16],))
        sent += taken
        tries_in_vain = 0 if taken else tries_in_vain + 1
        if tries_in_vain == 1:
            time.sleep(0.25)
    return sent


def test_a_sender_waits_for_room_and_no_longer_than_it_may(ends: Ends) -> None:
    near, _ = ends
    fill(near)
    near.set_timeouts(0.2, TIMEOUT_S)
    started = time.monotonic()
    assert near.send((bytes(1 << 16),)) < 1 << 16
    assert 0.15 < time.monotonic() - started < 5


def test_room_and_what_is_not_delivered_can_be_waited_for(ends: Ends) -> None:
    near, far = ends
    before = near.sample().delivered_bytes
    sent = fill(near)
    wanted = near.poll_for_room
    has_room = select.poll()
    has_room.register(*wanted)
    assert has_room.poll(50) == []
    assert 0 < near.undelivered_bytes <= sent
    receiver = threading.Thread(target=receive_all, args=(far, sent))
    receiver.start()
    assert [descriptor for descriptor, _ in has_room.poll(TIMEOUT_S * 1000)] == [wanted.descriptor]
    assert near.send_at_once((b"x",)) == 1
    receiver.join(TIMEOUT_S)
    far.receive((bytearray(1),))
    deadline = time.monotonic() + TIMEOUT_S
    while near.undelivered_bytes:
        assert time.monotonic() < deadline, "waited for the last bytes to be acknowledged"
        time.sleep(0.01)
    assert near.sample().delivered_bytes - before == sent + 1


def poll_of(wanted: PollFor) -> Callable[[float], list[tuple[int, int]]]:
    found = select.poll()
    found.register(*wanted)
    return found.poll


def test_what_has_come_can_be_waited_for_and_received_in_any_parts(ends: Ends) -> None:
    near, far = ends
    has_come, before = poll_of(far.poll_for_arrivals), far.received_bytes
    assert has_come(50) == []
    assert far.receive_at_once(bytearray(10)) == 0
    near.send((b"abc", b"defgh"))
    near.send((b"i",))
    received = bytearray()
    while len(received) < 9:
        assert [descriptor for descriptor, _ in has_come(TIMEOUT_S * 1000)] == [far.poll_for_arrivals.descriptor]
        into = bytearray(3)
        received += into[: far.receive_at_once(memoryview(into))]
    assert received == b"abcdefghi"
    assert far.received_bytes - before == 9
    assert has_come(0) == []
    assert far.receive_at_once(bytearray(10)) == 0


def test_who_waits_for_much_is_woken_once_it_is_there(ends: Ends) -> None:
    near, far = ends
    far.wake_at(1000)
    has_come = poll_of(far.poll_for_arrivals)
    near.send((bytes(500), bytes(500)))
    assert has_come(TIMEOUT_S * 1000)
    assert far.receive_at_once(bytearray(2000)) == 1000


@pytest.mark.parametrize(("place", "how"), [(0, "close"), (1, "abort")])
def test_who_waits_for_arrivals_is_told_of_the_end_behind_all_that_came(ends: Ends, place: int, how: str) -> None:
    near, far = ends
    has_come = poll_of(far.poll_for_arrivals)
    near.send((b"last",))
    assert has_come(TIMEOUT_S * 1000)
    getattr(ends[place], how)()
    into = bytearray(10)
    assert far.receive_at_once(into) == 4 and into[:4] == b"last"
    assert has_come(TIMEOUT_S * 1000)
    with pytest.raises(ConnectionEndedError):
        far.receive_at_once(into)


def test_a_connection_that_is_closed_has_received_nothing(ends: Ends) -> None:
    near, far = ends
    near.send((b"x",))
    far.close()
    assert far.received_bytes == 0


def connected(dial: Dial) -> Connection:
    """Return the connection of a dial, once all of its answers have come."""
    while True:
        assert poll_of(dial.poll_for_answer)(TIMEOUT_S * 1000)
        if (connection := dial.answered()) is not None:
            return connection


def test_connections_are_made_without_waiting(transport: Transport) -> None:
    with closing(transport.listen(LOOPBACK)) as listener:
        assert listener.accept_at_once() is None
        dials = [transport.dial(listener.endpoint, source) for source in CALLERS]
        near = [connected(dial) for dial in dials]
        has_callers, far = poll_of(listener.poll_for_callers), list[Connection | None]()
        for _ in near:
            assert has_callers(TIMEOUT_S * 1000)
            far.append(listener.accept_at_once())
        assert listener.accept_at_once() is None
        assert has_callers(0) == []
    by_caller = {other.peer: other for other in far if other is not None}
    for one in near:
        other = by_caller[one.local]
        with closing(one), closing(other):
            assert one.peer == other.local
            assert one.send((b"ping",)) == 4
            into = bytearray(4)
            other.set_timeouts(TIMEOUT_S, TIMEOUT_S)
            other.receive((into,))
            assert into == b"ping"


def test_a_dial_that_is_given_up_leaves_nothing_open(transport: Transport) -> None:
    with closing(transport.listen(LOOPBACK)) as listener:
        dial = transport.dial(listener.endpoint)
        descriptor = dial.poll_for_answer.descriptor
        dial.close()
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(descriptor)


def test_a_dial_that_nobody_answers_says_so(transport: Transport) -> None:
    with closing(transport.listen(LOOPBACK)) as listener:
        endpoint = listener.endpoint
    with pytest.raises(UnreachableError, match=rf"{LOOPBACK}:\d+: cannot connect"):
        dial = transport.dial(endpoint)
        assert poll_of(dial.poll_for_answer)(TIMEOUT_S * 1000)
        dial.answered()


def receive_all(connection: Connection, size_bytes: int) -> None:
    for _ in range(size_bytes // (1 << 16)):
        connection.receive((bytearray(1 << 16),))
    if rest := size_bytes % (1 << 16):
        connection.receive((bytearray(rest),))


def test_a_smaller_send_buffer_holds_back_a_sender_sooner(ends: Ends) -> None:
    near, _ = ends
    near.limit_send_buffer(1 << 16)
    kept = fill(near)
    assert kept < 16 * 2**20


@pytest.mark.parametrize(("place", "how"), [(0, "abort"), (0, "close"), (1, "abort")])
def test_an_end_that_aborts_or_closes_wakes_who_receives(ends: Ends, place: int, how: str) -> None:
    threading.Timer(0.1, getattr(ends[place], how)).start()
    with pytest.raises(ConnectionEndedError):
        ends[1].receive((bytearray(1),))


def test_who_sends_is_told_that_the_connection_has_ended(ends: Ends) -> None:
    near, far = ends
    far.close()
    deadline = time.monotonic() + TIMEOUT_S
    with pytest.raises(ConnectionEndedError):
        while time.monotonic() < deadline:
            near.send((b"x",))
            time.sleep(0.01)


def test_a_connection_that_is_closed_has_no_sample_and_can_be_closed_again(ends: Ends) -> None:
    near, _ = ends
    near.close()
    near.close()
    near.abort()
    with pytest.raises(ConnectionEndedError):
        near.sample()
    with pytest.raises(ConnectionEndedError):
        near.reorderings  # noqa: B018 - it raises


def test_nobody_who_comes_or_listens_is_told_in_time(transport: Transport) -> None:
    with closing(transport.listen(LOOPBACK)) as listener:
        with pytest.raises(UnreachableError, match=rf"{LOOPBACK}\S*:\d+: nobody connected within 0\.05 s"):
            listener.accept(0.05)
        endpoint = listener.endpoint
    with pytest.raises(UnreachableError, match=rf"{LOOPBACK}\S*:\d+: cannot connect within 0\.05 s"):
        transport.connect(endpoint, 0.05)


def test_transports_know_what_their_connections_carry(transport: Transport) -> None:
    assert transport.options == OPTIONS


def test_what_is_left_of_pieces_begins_in_the_midst_of_one() -> None:
    pieces = [memoryview(b"abc"), memoryview(b"defg"), memoryview(b"h")]
    assert [bytes(piece) for piece in after(pieces, 5)] == [b"fg", b"h"]
    assert [bytes(piece) for piece in after(pieces, 3)] == [b"defg", b"h"]
    assert after(pieces, 8) == []
