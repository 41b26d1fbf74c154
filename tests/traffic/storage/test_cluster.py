"""The cluster manager as a program: a service that stops answering leaves its chains, and is brought up to date."""

from __future__ import annotations

import shutil
import time
from dataclasses import replace
from typing import Any
from unittest import mock

import pytest

from fabric.errors import ConfigError, TrafficError
from tests.waiting import until
from traffic.storage.chain_states import PublicState
from traffic.storage.client.verification import Verification
from traffic.storage.config import StorageConfig
from traffic.storage.managers.cluster import ManagedCluster
from traffic.storage.managers.one_writer import writer_faults

from .conftest import JobOf, client_of, config_of, run

QUICK = {
    "heartbeat": 0.1,
    "failed_after": 2.0,  # A machine under load may let a service wait for half a second.
    "checked_every": 0.1,
    "chains_every": 0.05,
    "polled_every": 0.1,
    "restart": 0.1,
    "resync": {"every": 0.05, "pause": 0.3},
}
SMALL = {"connections": "when_needed", "chunk_size": "64 KiB", "disks_per_node": 1, "stripe": 8}
ONE_WRITES = {
    "dataloader": {"share": 0, "files": 2, "file_size": "1 MiB"},
    "checkpoint": {"share": 1, "size": "64 KiB", "period": 3600},
}
PATIENT = {"call_timeout": 1.0, "operation_timeout": 10.0}


def test_a_service_that_stops_is_left_out_comes_back_and_is_sent_what_it_missed(job_of: JobOf) -> None:
    job = job_of(cluster_manager=QUICK, client=PATIENT, **SMALL, **ONE_WRITES)
    assert job.cluster is not None
    victim = job._servers[1]
    layout = job.striping.layout(1 << 21, 24 * (64 << 10))
    extents = list(layout.extents())

    async def write(number: int) -> None:
        async with client_of(job, number) as client:
            for extent in extents:
                await client.write_chunk(extent)

    job.play("one service is away")
    run(write(901))
    job._services.stop_on(victim.name)
    stopped_s = time.monotonic()
    assert job.cluster.wait_without(victim, 60)
    print(f"left out {time.monotonic() - stopped_s:.2f} s after it stopped")
    run(write(902))
    job._services.resume_on(victim.name)
    assert job.cluster.wait_whole(job.config.replicas, 60)
    history = job.cluster.history()
    assert history.faults == []
    twice = replace(history, transitions=(*history.transitions, history.transitions[-1]))
    assert "the version before is" in twice.faults[0]
    job.halt()
    cluster = job.cluster

    def is_quiet() -> bool:
        counts = cluster.history().counts
        time.sleep(0.5)
        return cluster.history().counts == counts

    until(is_quiet, "the last message of the phase; between phases nothing moves")
    found = job.counts
    missed = sum(victim in history.transitions[extent.chain].chain.routed.nodes for extent in extents)
    assert found["resync_chunks"] == missed
    assert found["resync_bytes"] == missed * (64 << 10)
    assert history.counts["heartbeats"] > 10

    async def read_back() -> Verification:
        async with client_of(job, 903) as client:
            for extent in extents:
                await client.write_chunk(extent)
            return await client.read_back()

    assert run(read_back()) == Verification(len(extents) * job.config.replicas)
    states = {state for one in history.transitions for _, state in one.chain.targets}
    assert states >= {PublicState.SERVING, PublicState.OFFLINE, PublicState.SYNCING}


def test_a_host_that_is_none_is_named(job_of: JobOf) -> None:
    with pytest.raises(ConfigError, match=r"cluster_manager.host z9h999 is not a host of fire_flyer_2_small; name one"):
        job_of(cluster_manager={"host": "z9h999"})


@pytest.mark.parametrize(
    ("keys", "fault"),
    [
        ({"failed_after": 15}, "less than two heartbeats of 10 s"),
        ({"fence": "third"}, "fence"),
        ({"resync": {"batch": 0}}, "batch"),
    ],
)
def test_faults_of_the_config_are_named(keys: dict[str, object], fault: str) -> None:
    with pytest.raises(ConfigError, match=fault):
        config_of({"cluster_manager": keys})


def test_yaml_reads_off_as_false() -> None:
    config: StorageConfig = config_of({"cluster_manager": {"fence": False}})
    assert config.cluster_manager is not None
    assert config.cluster_manager.fence.value == "off"


SEVERAL: dict[str, Any] = {
    **QUICK,
    "failed_after": 1.5,
    "managers": {
        "count": 2,
        "hosts": ["z0h010", "z0h011"],
        "kv": {"host": "z0h009"},
        "lease": {"length": 1.5, "extended_every": 0.2, "not_trusted_below": 0.5},
        "bootstrapping": 0.5,
    },
}


def test_another_manager_goes_on_where_a_killed_primary_was(job_of: JobOf) -> None:
    """What the store has tells how chains have changed, once a manager is dead; what managers know, once it is."""
    job = job_of(cluster_manager=SEVERAL, client=PATIENT, **SMALL, **ONE_WRITES)
    cluster, victim = job.cluster, job._servers[1]
    assert cluster is not None
    job.play("the primary dies")
    assert {"z0h009", "z0h010", "z0h011"} <= {host for group in job.failing_programs for host in group.hosts}
    cluster.programs.kill_on("z0h010")
    job._services.stop_on(victim.name)
    assert cluster.wait_without(victim, 120)
    job._services.resume_on(victim.name)
    assert cluster.wait_whole(job.config.replicas, 120)
    job.halt()
    history = cluster.history()
    assert (history.faults, writer_faults(history.log), history.is_whole) == ([], [], True)
    assert history.log[0].holder == "z0h010"
    assert {line.holder for line in history.log} == {"z0h010", "z0h011"}
    assert list(history.trusted or {}) == ["z0h011"], "the other one is dead"
    cluster.store.kill_on("z0h009")
    learned = cluster.history()
    assert (learned.is_whole, learned.faults, learned.table) == (False, [], history.table)


def test_hosts_of_managers_that_cannot_be_are_named(job_of: JobOf) -> None:
    for keys, fault in [
        ({"managers": {"count": 5}}, "4 storage nodes are too few for 5 managers and their store"),
        ({"managers": {"hosts": ["z0h010", "x"]}}, "managers.hosts: x is not a host of fire_flyer_2_small"),
        ({"managers": {"kv": {"host": "x"}}}, "managers.kv.host x is not a host"),
        ({"clocks": {"x": 1}}, "clocks: x is not a host"),
        ({"clocks": {"z0h003": 1}}, "clocks: z0h003 has neither a service nor a manager"),
    ]:
        with pytest.raises(ConfigError, match=fault):
            job_of(cluster_manager=keys)


@pytest.mark.skipif(shutil.which("etcd") is None, reason="etcd is not installed (etcd-server)")
def test_etcd_can_be_the_store(job_of: JobOf) -> None:
    # It writes to a disk, which others may keep busy: the lease is to be extended all the same.
    lease = {"length": 20.0, "extended_every": 0.5, "not_trusted_below": 5.0}
    managers = {**SEVERAL["managers"], "kv": {"host": "z0h009", "engine": "etcd"}, "lease": lease}
    job = job_of(cluster_manager={**SEVERAL, "managers": managers}, client=PATIENT, **SMALL, **ONE_WRITES)
    assert job.cluster is not None
    job.play("a service stops")
    job._services.stop_on(job._servers[1].name)
    assert job.cluster.wait_without(job._servers[1], 120)
    job._services.resume_on(job._servers[1].name)
    job.halt()
    history = job.cluster.history()
    assert (history.faults, writer_faults(history.log), history.is_whole) == ([], [], True)
    assert {line.holder for line in history.log} == {"z0h010"}
    assert len(history.log) > 1


def test_two_primaries_are_a_bug_unless_clocks_are_too_far_apart(job_of: JobOf) -> None:
    """The second manager's clock is two seconds ahead: it takes the lease at once, before the first one knows."""
    job = job_of(cluster_manager={**SEVERAL, "clocks": {"z0h011": 2.0}}, client=PATIENT, **SMALL, **ONE_WRITES)
    cluster = job.cluster
    assert cluster is not None
    job.play("two primaries")
    until(lambda: "z0h011" in {line.holder for line in cluster.history().log}, "the second manager to take the lease")
    job.halt()
    assert job.counts["shared_trust"] == 1
    with mock.patch.object(ManagedCluster, "_clocks_are_off", False), pytest.raises(TrafficError, match="it is a bug"):
        cluster.halt()
