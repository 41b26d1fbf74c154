"""Streams over loopback: what is counted is what arrives in the measured part, and a phase follows a phase."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import closing

import pytest

from fabric.agents import AgentPool
from fabric.errors import TrafficError
from fabric.lanes import ServiceLevel
from fabric.results import TABLES
from topologies.load import load_fabric
from traffic import streams
from traffic.job import Stage
from traffic.streams import Stream, StreamsJob, Timetable

FABRIC = load_fabric("head_of_line")
TIMETABLE = Timetable(warm_up_s=0.2, measured_s=0.4, spread_s=0.05)


@pytest.fixture
def job(monkeypatch: pytest.MonkeyPatch) -> Iterator[StreamsJob]:
    """Two streams, all of whose hosts are this machine's loopback."""
    monkeypatch.setattr(StreamsJob, "_address", lambda self, node: "127.0.0.1")
    pool = AgentPool(["traffic.streams"])
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
        assert [(row["phase"], row["host"], row["peer"]) for row in records.operations] == [
            (phase, "z0h000", "z0h002"),
            (phase, "z0h001", "z0h003"),
        ]
        for row in records.operations:
            assert set(row) == set(TABLES["operations"])
            assert row["started_s"] >= begun + TIMETABLE.warm_up_s
            assert row["started_s"] < row["ended_s"] <= begun + TIMETABLE.duration_s + 0.1
            assert row["size_bytes"] > 1_000_000, row
        acked = {row["host"]: row["bytes_acked"] for row in records.flows}
        assert acked["z0h000"] > records.operations[0]["size_bytes"], "warming up counts there, too"


def test_a_stream_that_ends_too_soon_is_an_error() -> None:
    here, there = socket.socketpair()
    with here, there:
        there.sendall(b"x" * 100_000)
        there.shutdown(socket.SHUT_WR)
        window = streams.Window("p", 0.0, time.monotonic() + 60, time.monotonic() + 70)
        with pytest.raises(TrafficError, match="before the measured part"):
            streams._read_on(here, window)
