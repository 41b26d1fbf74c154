"""A traffic pattern over loopback: flows between NICs of one host and of others, counted each by itself."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace

import pytest

from fabric.errors import TrafficError
from fabric.model.lanes import ServiceLevel
from fabric.world.programs.agents import AgentPool
from tests.rows import columns_of_programs
from tests.waiting import until
from topologies.load import load_fabric
from traffic.flows.pair_streams import PRELOAD
from traffic.flows.pattern_job import PatternJob
from traffic.job import Stage

FABRIC = load_fabric("next_generation_32768_small")
NICS = [
    replace(nic, ip=f"127.0.{number}.1")
    for number, nic in enumerate(nic for host in FABRIC.computes[:3] for nic in FABRIC.nics_of[host][:2])
]
"""Two NICs of each of three hosts, at addresses of this machine's loopback."""
MEASURED_S = 1.2
"""Long enough for a flow to send in it, though its program may have to wait for its turn for half a second."""
FIRST, SECOND = (NICS[0], NICS[2]), (NICS[1], NICS[3])


@pytest.fixture
def job(monkeypatch: pytest.MonkeyPatch) -> Iterator[PatternJob]:
    """A job whose hosts are all this machine."""
    hosts = {nic.node: tuple(one for one in NICS if one.node == nic.node) for nic in NICS}
    monkeypatch.setitem(FABRIC.__dict__, "nics_of", hosts)
    monkeypatch.setitem(FABRIC.__dict__, "hosts", tuple(hosts))
    pool = AgentPool(PRELOAD)
    made = PatternJob(Stage(FABRIC, pool, lambda node: None, seed=1), 0.2, MEASURED_S, ServiceLevel.NCCL)
    try:
        with closing(made):
            made.start()
            yield made
    finally:
        pool.stop()


def test_phases_of_other_flows_each_have_their_ports_and_rows(job: PatternJob) -> None:
    for phase, flows in (("one", [FIRST, SECOND]), ("two", [SECOND[::-1]]), ("three", [FIRST, SECOND])):
        ports = job.connect(flows)
        assert list(ports) == flows
        assert len({port for pair in ports.values() for port in pair}) == 2 * len(flows)
        begun = time.monotonic()
        job.play(phase)
        rows = job.halt().rows("operations")
        assert list(job.goodput_bps) == flows
        assert [(row["phase"], row["host"], row["peer"]) for row in rows] == [
            (phase, source.node.name, destination.node.name) for source, destination in flows
        ]
        for row, goodput_bps in zip(rows, job.goodput_bps.values(), strict=True):
            assert set(row) == set(columns_of_programs("operations"))
            assert begun + 0.2 <= row["started_s"] < row["ended_s"] == pytest.approx(row["started_s"] + MEASURED_S)
            assert row["size_bytes"] == pytest.approx(goodput_bps * MEASURED_S / 8, abs=1)
            assert goodput_bps > 1e6


def test_a_flow_that_gets_no_connection_is_missing(job: PatternJob, monkeypatch: pytest.MonkeyPatch) -> None:
    nowhere = replace(NICS[2], ip="127.0.9.9")
    job._streams._ports[nowhere.ip] = 9
    monkeypatch.setattr("traffic.flows.pair_streams.CONNECT_TIMEOUT_S", 0.1)
    with pytest.raises(TrafficError, match=r"no connection; 1 of 2 have none"):
        job.connect([FIRST, (NICS[0], nowhere)])


def test_hosts_begin_and_leave_one_after_the_other_and_what_arrives_after_the_window_does_not_count(
    job: PatternJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second flow goes on for twenty times as long as it counts, alone."""
    monkeypatch.setattr("traffic.flows.pair_streams._LEAVE_APART_S", 4.0)
    monkeypatch.setattr(job, "_times", (0.2, 0.4))

    def is_counted_in_the_window_alone() -> bool:
        job.connect([FIRST, (NICS[5], NICS[3])])
        begun = time.monotonic()
        job.play("one")
        first, last = (row["size_bytes"] for row in job.halt().rows("operations"))
        assert time.monotonic() - begun >= 0.6 + 2 * 4.0
        print(first, last)
        return bool(0 < last < 3 * first)

    until(is_counted_in_the_window_alone, "flows that count alike; a busy machine may hold one of them up")
