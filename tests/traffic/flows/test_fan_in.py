"""Reads by request: all servers are asked at once, and a read ends when the last has answered."""

from __future__ import annotations

import socket
import threading
import time
from dataclasses import replace
from typing import Any

import pytest

from fabric.errors import TrafficError
from fabric.model.identity import NodeId
from fabric.model.lanes import ServiceLevel
from fabric.model.network import Fabric, Nic
from fabric.world.programs.agents import AgentPool
from tests.rows import columns_of_programs
from tests.waiting import played_until
from topologies.load import load_fabric
from traffic.flows import fan_in
from traffic.flows.fan_in import FanIn, FanInJob
from traffic.job import Records, Stage
from traffic.transport.tcp import TcpConnection

FABRIC = load_fabric("storage_zone_small")
CLIENT, SERVERS = FABRIC.computes[0], FABRIC.storages[:3]
SIZE = 300_000


class TimedFanIn(FanInJob):
    """One that tells when a phase was last played."""

    played_s = 0.0

    def play(self, phase: str) -> None:
        self.played_s = time.monotonic()
        super().play(phase)


@pytest.fixture
def pool() -> AgentPool:
    return AgentPool()


def on_loopback(address: str) -> str:
    """Return an address of this machine, another one for each of the fabric."""
    return f"127.{address.partition('.')[2]}"


def stage(pool: AgentPool) -> Stage:
    return Stage(FABRIC, pool, lambda _: None, seed=1, address_of=on_loopback)


def incasts(records: Records) -> list[dict[str, Any]]:
    return [row for row in records.rows("operations") if row["operation"] == "incast"]


def is_enough(records: Records) -> bool:
    """One read is due each 100 ms; without a period, reads follow one another."""
    found = len(incasts(records))
    return found >= 2 and len(records.rows("operations")) - found > 10


def test_reads_of_many_servers_end_with_the_last_and_are_rows(pool: AgentPool) -> None:
    incast = FanIn("incast", CLIENT, SERVERS, SIZE, period_s=0.1)
    alone = FanIn("apart", FABRIC.computes[1], (FABRIC.computes[2],), 1000)
    job = TimedFanIn(stage(pool), [incast, alone], ServiceLevel.STORAGE)
    try:
        job.start()
        for phase in ("first", "second"):
            began_s = time.monotonic()
            records = played_until(
                job,
                phase,
                # On a busy machine the kernel may let a thread's packets overtake those that it sent from another core.
                lambda seen: is_enough(seen) and job.reorderings == 0,
                "two reads with a period, eleven without, and nothing that is overtaken on loopback",
                window_s=0.35,
            )
            rows = incasts(records)
            assert len(rows) <= (time.monotonic() - began_s) / 0.1 + 1, rows
            assert {row["size_bytes"] for row in rows} == {3 * SIZE}
            assert {row["phase"] for row in records.rows("operations")} == {phase}
            assert {row["peer"] for row in records.rows("operations")} == {"3 servers", alone.servers[0].name}
            # One may begin late and the next one in time, but none before it is due.
            starts = [row["started_s"] - job.played_s for row in rows]
            assert all(after_s >= 0.1 * place for place, after_s in enumerate(starts)), starts
            assert set(records.rows("operations")[0]) == set(columns_of_programs("operations"))
            assert {(row["host"], row["peer"]) for row in records.rows("flows")} >= {
                (s.name, CLIENT.name) for s in SERVERS
            }
    finally:
        job.close()
    assert pool.handles == []


def test_playing_before_starting_is_refused(pool: AgentPool) -> None:
    job = FanInJob(stage(pool), [FanIn("incast", CLIENT, SERVERS, SIZE)], ServiceLevel.STORAGE)
    with pytest.raises(TrafficError, match="call start"):
        job.play("p")


def test_a_server_without_a_nic_in_the_readers_zone_is_named(pool: AgentPool) -> None:
    fabric = load_fabric("fire_flyer_2_small")
    reader, server = fabric.computes[0], fabric.computes[-1]
    job = FanInJob(replace(stage(pool), fabric=fabric), [FanIn("apart", reader, (server,), 1)], ServiceLevel.STORAGE)
    with pytest.raises(TrafficError, match=f"{server}: has no NIC in zone 0, where {reader} reads"):
        job.start()


def test_a_storage_node_answers_from_its_nic_in_the_readers_zone(pool: AgentPool) -> None:
    fabric = load_fabric("fire_flyer_2_small")
    job = FanInJob(replace(stage(pool), fabric=fabric), [], ServiceLevel.STORAGE)
    reader, storage = fabric.computes[-1], fabric.storages[0]
    nic = _nic(fabric, storage, zone=1)
    assert job._addresses(FanIn("apart", reader, (storage,), 1))(storage) == on_loopback(nic.ip)


def _nic(fabric: Fabric, host: NodeId, zone: int) -> Nic:
    nic = fabric.nic_in_zone(host, zone)
    assert nic is not None
    return nic


def connected() -> tuple[socket.socket, socket.socket]:
    """Two ends of a connection."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        theirs = socket.create_connection(listener.getsockname())
        return listener.accept()[0], theirs


def test_a_read_that_does_not_end_says_what_is_missing() -> None:
    ours, theirs = connected()
    with ours, theirs, pytest.raises(TrafficError, match=r"a read of 10 B of 1 servers did not end within 0\.05 s"):
        fan_in.read([TcpConnection(ours)], 10, 0.05)


def test_a_server_that_closes_in_a_read_is_told() -> None:
    ours, theirs = connected()
    with ours:
        theirs.sendall(b"1234")
        threading.Timer(0.05, theirs.close).start()
        with pytest.raises(TrafficError, match="closed with 6 B of a read of 10 B missing"):
            fan_in.read([TcpConnection(ours)], 10, 5)
