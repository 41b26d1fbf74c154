"""Services and clients that play and halt apart, services that begin anew, and clients that record what they see; as
programs on loopback addresses."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from fabric.errors import TrafficError
from fabric.world.programs.agents import AgentPool
from tests.waiting import played_until
from traffic.job import FiniteJob, Stage
from traffic.storage.apart import ClientsJob, ClusterJob, StorageInParts
from traffic.storage.client.history_client import HistoryLoad
from traffic.storage.history import Event, Kind, violations
from traffic.storage.history_job import HistoryJob
from traffic.storage.job import StorageJob

from .conftest import FABRIC, config_of, loopback

TIMERS = {"heartbeat": 0.2, "failed_after": 2, "checked_every": 0.2, "chains_every": 0.05, "polled_every": 0.1}
SETTINGS: dict[str, Any] = {
    "replicas": 3,
    "disks_per_node": 1,
    "chains_per_target": 3,
    "stripe": 4,
    "chunk_size": "4 KiB",
    "cluster_manager": {**TIMERS, "restart": 1.0, "resync": {"every": 0.1, "pause": 0.2}},
    "dataloader": {"files": 1, "file_size": "64 KiB", "sample_min": "4 KiB", "sample_max": "4 KiB", "pause": 0.01},
}


@contextmanager
def started(job: StorageJob) -> Iterator[None]:
    job.start()
    try:
        yield
    finally:
        job.close()


def stage(pool: AgentPool) -> Stage:
    return Stage(FABRIC, pool, lambda _: None, seed=7)


def test_clients_play_in_windows_while_the_cluster_goes_on(pool: AgentPool) -> None:
    job = StorageInParts(stage(pool), config_of(SETTINGS), FABRIC.computes[:2], loopback)
    cluster, clients = ClusterJob(job, patience_s=5), ClientsJob(job)
    assert isinstance(cluster, FiniteJob)
    assert (cluster.name, clients.name) == ("storage", "storage_clients")
    with started(job):
        cluster.play("a")
        reads = []
        for _ in range(2):
            records = played_until(clients, "a", lambda seen: seen.rows("operations"), "a read")
            reads.append(len(records.rows("operations")))
        node = FABRIC.storages[0]
        job.begin_service_anew(node, with_empty_disks=True)
        assert job.cluster is not None
        assert job.cluster.wait_without(node, 60)
        assert job.cluster.wait_whole(3, 60)
        cluster.over.set()
        cluster.finish()
        cluster.halt()
        counts, resyncs = job.counts, job.resyncs
    done = [attempt for attempt in resyncs if attempt.outcome == "done"]
    assert {attempt.target for attempt in done} == {node}
    assert len({attempt.chain for attempt in done}) == 3
    assert sum(attempt.size_bytes for attempt in resyncs) == counts["resync_bytes"] == 12 * 4096
    assert counts["payload_read_bytes"] >= 4096 * sum(reads) / 2, "of both windows, samples across two chunks in parts"


def test_a_cluster_that_is_never_over_says_so(pool: AgentPool) -> None:
    job = StorageInParts(stage(pool), config_of(SETTINGS), FABRIC.computes[:1], loopback)
    with pytest.raises(TrafficError, match=r"waited 0\.01 s for the phase to be over"):
        ClusterJob(job, patience_s=0.01).finish()


def test_nobody_begins_anew_without_a_cluster_manager(pool: AgentPool) -> None:
    job = StorageInParts(stage(pool), config_of({**SETTINGS, "cluster_manager": None}), FABRIC.computes[:1], loopback)
    with pytest.raises(TrafficError, match="begins anew with a cluster manager only"):
        job.begin_service_anew(FABRIC.storages[0])


def test_clients_record_a_history_that_is_linearizable(pool: AgentPool) -> None:
    writer, reader = FABRIC.computes[:2]
    loads = {writer: HistoryLoad(True, 2, 0.01), reader: HistoryLoad(False, 2, 0.01)}
    job = HistoryJob(stage(pool), config_of(SETTINGS), (writer, reader), loopback, loads=loads)

    seen: dict[str, list[Event]] = {}

    def is_enough() -> bool:
        for client, of_client in job.events.items():
            seen.setdefault(client, []).extend(of_client)
        events = [event for of_client in seen.values() for event in of_client]
        return Kind.READ in {event.kind for event in events} and max(event.version or 0 for event in events) > 1

    with started(job):
        played_until(job, "a", lambda _: is_enough(), "a read, and a second version")
    events = [event for of_client in seen.values() for event in of_client]
    assert {len({event.kind for event in of_client}) for of_client in seen.values()} == {1}
    assert {event.kind for event in events} == {Kind.WRITE, Kind.READ}
    assert max(event.version or 0 for event in events) > 1
    assert violations(events) == []
