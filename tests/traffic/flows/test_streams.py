"""Streams over loopback: what is counted is what arrives in the measured part, and a phase follows a phase."""

from __future__ import annotations

import select
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import closing

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
TIMETABLE = Timetable(warm_up_s=0.2, measured_s=0.4, spread_s=0.05)


@pytest.fixture
def job(monkeypatch: pytest.MonkeyPatch) -> Iterator[StreamsJob]:
    """Two streams, all of whose hosts are this machine's loopback."""
    monkeypatch.setattr(StreamsJob, "_address", lambda self, node, peer: "127.0.0.1")
    pool = AgentPool(["traffic.flows.streams"])
    stage = Stage(FABRIC, pool, lambda node: None, seed=3, receive_window_bytes=256 * 1024)
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


LEAD_S = 0.5
"""So long a busy machine may take to read what is sent before a window."""


def received_of(sends: dict[float, int], measured_s: float) -> Received:
    """Return what a sink counts in a window, of bytes sent at some moments from its beginning on or before."""
    here, there = connected()
    now = time.monotonic()
    begins = now + LEAD_S

    def send() -> None:
        for at_s, size in sends.items():
            time.sleep(max(0.0, begins + at_s - time.monotonic()))
            there.sendall(bytes(size))
        time.sleep(max(0.0, begins + 0.1 + measured_s - time.monotonic()))
        there.close()

    with here:
        here.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1000)
        sender = threading.Thread(target=send)
        sender.start()
        received = streams._read_on(TcpConnection(here), streams.StreamWindow("p", now, begins, begins + measured_s))
        sender.join(60)
    assert begins <= received.started_s < begins + measured_s / 2, "a part that is starved counts"
    assert received.ended_s >= begins + measured_s
    return received


@pytest.mark.parametrize(
    ("sends", "counted"),
    [
        pytest.param({-LEAD_S: 5000, 0.05: 20_000}, 20_000, id="starved after a while"),
        pytest.param({-LEAD_S: 5000}, 0, id="starved from the start"),
        pytest.param({}, 0, id="never had a byte"),
        pytest.param({-LEAD_S: 5000, 0.1: 700}, 700, id="too little to wake for"),
        pytest.param({-LEAD_S: 5300, 0.1: 900}, 900, id="some before, too little to wake for after"),
    ],
)
def test_a_starved_stream_is_counted_over_the_whole_window(sends: dict[float, int], counted: int) -> None:
    assert received_of(sends, measured_s=0.5).size_bytes == counted


def test_a_stream_may_be_over_a_transport_that_is_not_tcp() -> None:
    transport = MemoryTransport(SocketOptions(ServiceLevel.STORAGE))
    with closing(transport.listen("127.0.0.1")) as listener:
        there, here = transport.connect(listener.endpoint, 5), listener.accept(5)
    now = time.monotonic()

    def send() -> None:
        for at_s, size in ((0.0, 1000), (LEAD_S + 0.1, 20_000)):
            time.sleep(max(0.0, now + at_s - time.monotonic()))
            there.send((bytes(size),))
        time.sleep(max(0.0, now + 2 * LEAD_S + 0.2 - time.monotonic()))
        there.close()

    sender = threading.Thread(target=send)
    sender.start()
    with closing(here):
        window = streams.StreamWindow("p", now, now + LEAD_S, now + 2 * LEAD_S + 0.1)
        assert streams._read_on(here, window).size_bytes == 20_000
    sender.join(60)
