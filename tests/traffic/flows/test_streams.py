"""Streams over loopback: what is counted is what arrives in the measured part, and a phase follows a phase."""

from __future__ import annotations

import select
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest

from fabric.errors import TrafficError
from fabric.model.lanes import ServiceLevel
from fabric.world.programs.agents import AgentPool
from tests.rows import columns_of_programs
from tests.traffic.transport.memory_transport import MemoryTransport
from topologies.load import load_fabric
from traffic.flows import streams
from traffic.flows.streams import Received, Stream, StreamsJob, Timetable
from traffic.job import Stage
from traffic.transport.connection import SocketOptions
from traffic.transport.tcp import TcpConnection

FABRIC = load_fabric("head_of_line")
TIMETABLE = Timetable(warm_up_s=0.8, measured_s=1.2, spread_s=0.05)
"""Each part is so long that a program may have to wait for its turn for half a second of it."""


@pytest.fixture
def job() -> Iterator[StreamsJob]:
    """Two streams, all of whose hosts are this machine's loopback."""
    pool = AgentPool(["traffic.flows.streams"])
    stage = Stage(
        FABRIC,
        pool,
        lambda node: None,
        seed=3,
        receive_window_bytes=256 * 1024,
        address_of=lambda address: "127.0.0.1",
    )
    hosts = FABRIC.computes
    made = StreamsJob(
        stage,
        [Stream(hosts[0], hosts[2], ServiceLevel.STORAGE), Stream(hosts[1], hosts[3], ServiceLevel.HFREDUCE)],
        TIMETABLE,
    )
    try:
        with closing(made):
            made.start()
            yield made
    finally:
        pool.stop()


def test_each_stream_has_a_row_of_what_arrived_in_the_measured_part(job: StreamsJob) -> None:
    for phase in ("first", "second"):
        begun = time.monotonic()
        job.play(phase)
        records = job.halt()
        halted = time.monotonic()
        assert [(row["phase"], row["host"], row["peer"]) for row in records.rows("operations")] == [
            (phase, "z0h000", "z0h002"),
            (phase, "z0h001", "z0h003"),
        ]
        for row in records.rows("operations"):
            assert set(row) == set(columns_of_programs("operations"))
            assert row["started_s"] >= begun + TIMETABLE.warm_up_s
            assert row["started_s"] < row["ended_s"] <= halted
            assert row["size_bytes"] > 1_000_000, row
        acked = {row["host"]: row["bytes_acked"] for row in records.rows("flows")}
        assert acked["z0h000"] > records.rows("operations")[0]["size_bytes"], "warming up counts there, too"


def connected() -> tuple[socket.socket, socket.socket]:
    """Two ends of a connection."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        there = socket.create_connection(listener.getsockname())
        return listener.accept()[0], there


def test_a_stream_that_ends_too_soon_is_an_error() -> None:
    here, there = connected()
    with here, there:
        there.sendall(b"x" * 100_000)
        there.shutdown(socket.SHUT_WR)
        window = streams.StreamWindow("p", 0.0, time.monotonic() + 60, time.monotonic() + 70)
        with pytest.raises(TrafficError, match="before the measured part"):
            streams._read_on(TcpConnection(here), window)


def test_a_stream_whose_end_is_read_late_has_not_ended_too_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader that waits for its turn on a busy machine sees the end that a stream has after the measured part."""
    here, there = connected()
    with here, there:
        window = streams.StreamWindow("p", 0.0, time.monotonic(), time.monotonic() + 0.5)

        def woken_late(*_: object) -> tuple[list[socket.socket], list[object], list[object]]:
            there.shutdown(socket.SHUT_WR)
            time.sleep(max(0.0, window.ends - time.monotonic()))
            return [here], [], []

        monkeypatch.setattr(select, "select", woken_late)
        assert streams._read_on(TcpConnection(here), window).ended_s >= window.ends


LEAD_S, MEASURED_S = 0.1, 2.0
"""A window is so long that reader and sender may have to wait for their turn for half a second each."""


class Counted:
    """A connection that tells when it is asked how much has come: first where what is counted begins, then where it
    ends."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self.begun, self.ended = threading.Event(), threading.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    @property
    def received_bytes(self) -> int:
        found = int(self._connection.received_bytes)
        (self.ended if self.begun.is_set() else self.begun).set()
        return found


def received_of(here: Any, send: Callable[[int], object], before: int, then: int) -> Received:
    """Return what a sink counts in a window, of bytes sent before it and in it; ``send``: 0 ends the stream."""
    counted, now = Counted(here), time.monotonic()
    begins, ends = now + LEAD_S, now + LEAD_S + MEASURED_S
    if before:
        send(before)

    def send_then() -> None:
        assert counted.begun.wait(60)
        if then:
            send(then)
        assert counted.ended.wait(60)
        send(0)

    sender = threading.Thread(target=send_then)
    sender.start()
    received = streams._read_on(counted, streams.StreamWindow("p", now, begins, ends))
    sender.join(60)
    assert begins <= received.started_s < begins + MEASURED_S / 2, "a part that is starved counts"
    assert received.ended_s >= ends
    return received


@pytest.mark.parametrize(
    ("before", "then"),
    [
        pytest.param(5000, 20_000, id="starved after a while"),
        pytest.param(5000, 0, id="starved from the start"),
        pytest.param(0, 0, id="never had a byte"),
        pytest.param(5000, 700, id="too little to wake for"),
        pytest.param(5300, 900, id="some before, too little to wake for after"),
    ],
)
def test_a_starved_stream_is_counted_over_the_whole_window(before: int, then: int) -> None:
    here, there = connected()
    with here:
        here.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1000)
        received = received_of(
            TcpConnection(here), lambda size: there.sendall(bytes(size)) if size else there.close(), before, then
        )
    assert received.size_bytes == then


def test_a_stream_may_be_over_a_transport_that_is_not_tcp() -> None:
    transport = MemoryTransport(SocketOptions(ServiceLevel.STORAGE))
    with closing(transport.listen("127.0.0.1")) as listener:
        there, here = transport.connect(listener.endpoint, 5), listener.accept(5)
    with closing(here):
        received = received_of(here, lambda size: there.send((bytes(size),)) if size else there.close(), 1000, 20_000)
    assert received.size_bytes == 20_000
