"""Messages between two ranks over a transport in memory: what goes wrong on the way is an event, and named."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest

from fabric.model.lanes import ServiceLevel
from traffic.program_group import PeerGoneError, StalledError
from traffic.transport.connection import Connection, SocketOptions
from traffic.work.operations import Operation, Receive
from traffic.work.player.links import Event, Events, Incoming, Mail, Outgoing
from traffic.work.player.payload import Origin, Payload

PIECE = 65_536
WAIT_S = 10.0
Ends = tuple[Connection, Connection]


@pytest.fixture
def ends(monkeypatch: pytest.MonkeyPatch) -> Ends:
    monkeypatch.syspath_prepend(Path(__file__).parent.parent / "transport")
    transport = importlib.import_module("memory_transport").MemoryTransport(SocketOptions(ServiceLevel.NCCL))
    listener = transport.listen("here")
    connection = transport.connect(listener.endpoint, WAIT_S)
    return connection, listener.accept(WAIT_S)


class Spoiling:
    """A connection of which one receive, by its number from 1, flips a bit of the last byte."""

    def __init__(self, connection: Connection, which: int) -> None:
        self._connection, self._left = connection, which

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    def receive(self, buffers: Sequence[memoryview]) -> None:
        self._connection.receive(buffers)
        self._left -= 1
        if not self._left:
            buffers[-1][-1] ^= 16


def outgoing(connection: Connection, events: Events, stall_s: float = WAIT_S) -> Outgoing:
    return Outgoing(connection, "rank 3 with rank 0", Payload(PIECE), events, stall_s)


def incoming(connection: Any, events: Events, *operations: Operation) -> Mail:
    mail = Mail(operations, events)
    Incoming(connection, "rank 0 with rank 3", 3, Payload(PIECE), [mail], events)
    return mail


@pytest.mark.parametrize("size_bytes", [0, 1, PIECE, 5 * PIECE + 7])
def test_a_message_of_any_size_is_right(ends: Ends, size_bytes: int) -> None:
    events: Events = SimpleQueue()
    mail = incoming(ends[1], events, Receive(peer=3, size_bytes=size_bytes, tag=4))
    assert not mail.has_come(0)
    sent: Events = SimpleQueue()
    if not outgoing(ends[0], sent).send(7, 0, Origin(3, 4, 0, 2), size_bytes):
        assert sent.get(timeout=WAIT_S)[::2] == (7, None)
    assert events.get(timeout=WAIT_S)[::2] == (0, None)


def test_one_wrong_byte_on_the_way_is_found_and_named(ends: Ends) -> None:
    events: Events = SimpleQueue()
    incoming(Spoiling(ends[1], 1 + 3), events, Receive(peer=3, size_bytes=5 * PIECE, tag=4))
    outgoing(ends[0], SimpleQueue()).send(0, 0, Origin(3, 4, 0, 2), 5 * PIECE)
    error = events.get(timeout=WAIT_S).error
    assert str(error).startswith(
        f"rank 0 with rank 3: message 0 of tag 4 from rank 3 in step 2: byte {3 * PIECE - 1} is "
    )


def test_a_message_of_another_size_than_its_receive_says_is_an_error(ends: Ends) -> None:
    events: Events = SimpleQueue()
    mail = incoming(ends[1], events, Receive(peer=3, size_bytes=9, tag=4))
    mail.has_come(0)
    outgoing(ends[0], SimpleQueue()).send(0, 0, Origin(3, 4, 0, 2), 8)
    assert "operation 0 receives 9 B, and message 0 of tag 4 from rank 3 has 8 B" in str(
        events.get(timeout=WAIT_S).error
    )


def test_a_peer_that_takes_nothing_is_waited_for_so_long(ends: Ends) -> None:
    events: Events = SimpleQueue()
    assert not outgoing(ends[0], events, stall_s=0.2).send(5, 0, Origin(3, 4, 0, 2), 100 * PIECE)
    found: Event = events.get(timeout=WAIT_S)
    assert found.place == 5
    assert isinstance(found.error, StalledError)
    assert "rank 3 with rank 0: peer took no data for 0.2 s" in str(found.error)


def test_a_connection_that_ends_is_told_at_both_ends(ends: Ends) -> None:
    events: Events = SimpleQueue()
    incoming(ends[1], events)
    ends[0].close()
    assert isinstance(events.get(timeout=WAIT_S).error, PeerGoneError)
    with pytest.raises(PeerGoneError, match="rank 3 with rank 0: connection ended"):
        outgoing(ends[0], SimpleQueue()).send(0, 0, Origin(3, 4, 0, 2), 8)
