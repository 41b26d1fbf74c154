"""Programs and disks of real jobs that fail, over loopback: what the protocol of a job survives, and what it says where
it does not."""

from __future__ import annotations

import importlib
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from fabric.config import checked
from fabric.errors import TrafficError
from fabric.failures.injection import NotThereError
from fabric.failures.kinds.disk import DiskEffects, DiskState, DiskTarget, HasDisks
from fabric.failures.kinds.process import KILLED, STOPPED, HasPrograms, ProgramEffects, ProgramState, ProgramTarget
from fabric.model.identity import NodeId
from fabric.model.lanes import ServiceLevel
from fabric.world import inside
from fabric.world.programs.agents import AgentPool
from tests.failing import Applied
from tests.rows import columns_of_programs
from tests.waiting import have_ended, played_until, stand_still, until
from topologies.load import load_fabric
from traffic.collectives.nccl import NcclConfig, NcclJob
from traffic.flows.background import BackgroundConfig, BackgroundJob
from traffic.job import Records, Stage
from traffic.programs.job import ProgramConfig, ProgramJob
from traffic.storage.config import StorageConfig
from traffic.storage.job import PRELOAD, StorageJob

FABRIC = load_fabric("fire_flyer_2_small")
ST = [node.name for node in FABRIC.storages]
MIXED: dict[str, Any] = {
    "failure_detection": 0.05,
    "chunk_size": "64 KiB",
    "stripe": 8,
    "dataloader": {"share": 1.0, "files": 2, "file_size": "1 MiB", "sample_min": "4 KiB", "sample_max": "64 KiB"},
    "checkpoint": {"share": 0.5, "size": "256 KiB", "period": "100 ms"},
    "client": {"call_timeout": 2.0, "operation_timeout": 1.0},
}
IMPATIENT = {"call_timeout": 0.3, "operation_timeout": 1.0}
"""Of clients that go elsewhere while a service is silent, or a busy machine lets it wait."""


def loopback(node: NodeId, zone: int = 0) -> str:
    return f"127.{zone + 1}.{node.role.value}.{node.index + 1}"


@pytest.fixture(scope="module")
def pool() -> Iterator[AgentPool]:
    found = AgentPool(PRELOAD)
    yield found
    found.stop()


@pytest.fixture
def run_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where jobs of users' programs keep what they tell them."""
    monkeypatch.setattr(inside, "RUN_DIR", tmp_path)


@pytest.fixture
def storage(pool: AgentPool, request: pytest.FixtureRequest) -> Iterator[StorageJob]:
    """A storage job under load, of whose disks and programs all may fail. A test may give it other clients."""
    stage = Stage(FABRIC, pool, lambda _: None, 7, failing_hosts=frozenset(ST), rotten_hosts=frozenset(ST))
    settings = {**MIXED, "client": getattr(request, "param", MIXED["client"])}
    job = StorageJob(stage, checked(StorageConfig, settings, "test"), FABRIC.computes[:4], loopback)
    try:
        job.start()
        job.play("failures")
        yield job
    finally:
        job.close()


def operations(records: Records) -> pd.DataFrame:
    return pd.DataFrame(records.rows("operations"), columns=columns_of_programs("operations"))


def has_written(records: Records) -> bool:
    return any(row["operation"] == "write" for row in records.rows("operations"))


def from_others(records: Records) -> bool:
    """Whether all services but the one that is hit have been read or written."""
    return {row["peer"] for row in records.rows("operations")} >= set(ST) - {ST[1]}


def test_a_killed_service_leaves_its_chains_and_nothing_acknowledged_is_lost(storage: StorageJob) -> None:
    storage.halt()
    played_until(storage, "whole", has_written, "a chunk that is written")
    storage.play("killed")
    hit = Applied(ProgramEffects([storage])).apply(ProgramTarget(ST[1], storage.name), KILLED)
    assert hit == [("storage", "")]
    until(lambda: storage.table.version == 2, "a chain table without the service that was killed")
    storage.halt()
    assert storage.disks_on(ST[1]) > 0, "its disks are there"
    with pytest.raises(NotThereError, match=f"its service on {ST[1]} was killed"):
        storage.set_disk(ST[1], 0, DiskState(fails=True))
    found = operations(played_until(storage, "left out", from_others, "operations of all other services"))
    assert storage.table.version == 2
    assert set(found.peer) == set(ST) - {ST[1]}
    verification = storage.verify_acknowledged()
    assert verification.checked > 0
    assert verification.lost == ()


@pytest.mark.parametrize("storage", [IMPATIENT], indirect=True, ids=["impatient"])
def test_a_stopped_service_stays_in_its_chains_and_comes_back(storage: StorageJob) -> None:
    effects = Applied(ProgramEffects([storage]))
    storage.halt()
    played_until(storage, "whole", from_others, "operations of all services")
    storage.play("stopped")
    effects.apply(ProgramTarget(ST[1]), STOPPED)
    stopped = time.monotonic()
    time.sleep(3.5)  # So long it lasts; nobody can be asked meanwhile.
    effects.apply(ProgramTarget(ST[1]), ProgramState())
    found = operations(storage.halt())
    print(found.groupby("operation").retries.agg(["size", "sum"]))
    # A read of later might have its answer of the service that comes back, from a client that is late.
    meanwhile = found[found.started_s.between(stopped + 0.5, stopped + 2)]
    assert storage.table.version == 1, "nobody was told"
    assert set(meanwhile[meanwhile.operation == "read"].peer) == set(ST) - {ST[1]}
    assert (found[found.started_s > stopped - 0.3].operation == "write_failed").sum() > 0
    played_until(storage, "back", lambda seen: ST[1] in set(operations(seen).peer), "the service that was stopped")
    assert storage.verify_acknowledged(30).lost == ()


def test_what_is_on_a_failing_disk_is_read_elsewhere_and_cannot_be_written(storage: StorageJob) -> None:
    def is_enough(seen: Records) -> bool:
        found = operations(seen)
        reads = found[found.operation == "read"]
        return len(reads) > 10 and set(reads.peer) >= set(ST) - {ST[1]} and "write_failed" in set(found.operation)

    def reads_it(seen: Records) -> bool:
        found = operations(seen)
        return ST[1] in set(found[found.operation == "read"].peer)

    effects = Applied(DiskEffects([storage], seed=1))
    storage.halt()
    effects.apply(DiskTarget(ST[1]), DiskState(fails=True))
    found = operations(played_until(storage, "fails", is_enough, "reads of all others, and a write that fails"))
    assert ST[1] not in set(found[found.operation.isin(["read", "write"])].peer)
    assert storage.counts["refused_disk_error"] > 0
    effects.apply(DiskTarget(ST[1]), DiskState())
    played_until(storage, "mended", reads_it, "a read of the disk that failed")
    assert storage.verify_acknowledged(30).lost == ()


def test_reads_of_a_slow_disk_take_longer_and_those_of_others_do_not(storage: StorageJob) -> None:
    def reads_of(seen: Records) -> pd.DataFrame:
        found = operations(seen)
        return found[found.operation == "read"]

    def fastest(seen: Records) -> dict[str, float]:
        reads = reads_of(seen)
        return dict((reads.ended_s - reads.started_s).groupby(reads.peer).min())

    def is_enough(seen: Records) -> bool:
        """Whether all were read, and no other as slowly in each read: of those a busy machine delays some."""
        found = fastest(seen)
        return set(found) == set(ST) and all(found[one] < 0.1 for one in ST if one != ST[1])

    storage.halt()
    Applied(DiskEffects([storage], seed=1)).apply(DiskTarget(ST[1]), DiskState(added_s=0.1))
    found = fastest(played_until(storage, "slow", is_enough, "reads of all, of which one is slow"))
    print(found)
    assert found[ST[1]] >= 0.1


def test_rotten_chunks_are_found_counted_and_read_elsewhere(storage: StorageJob) -> None:
    hit = Applied(DiskEffects([storage], seed=1)).apply(DiskTarget(ST[1]), DiskState(rotten=3))
    assert len(hit) == storage.config.disks_per_node
    assert all(words.count("chunk ") == 3 for _, words in hit)
    storage.halt()
    found = operations(
        played_until(storage, "rotten", lambda _: storage.counts.get("wrong_copies"), "a rotten chunk that is found")
    )
    assert (found.operation == "read_failed").sum() == 0
    assert (found.operation == "read").sum() > 10


def test_a_disk_without_so_many_chunks_rots_as_far_as_it_has_some(storage: StorageJob) -> None:
    rotten = storage.rot(ST[1], 0, 10**6, "seed")
    assert 0 < len(rotten) == len(set(rotten)) < 10**6
    assert storage.rot(ST[1], 0, 1, "seed") == []
    storage.halt()


def test_rot_that_nobody_asked_for_fails_the_run(pool: AgentPool) -> None:
    job = StorageJob(
        Stage(FABRIC, pool, lambda _: None, 7), checked(StorageConfig, MIXED, "test"), FABRIC.computes[:4], loopback
    )
    try:
        job.start()
        for host in ST:
            job.rot(host, 0, 10**6, "seed")
        with pytest.raises(TrafficError, match=r"chunk \d+ of file \d+ .*(bytes are not those|checksum)"):
            played_until(job, "accident", lambda _: False, "a rotten chunk that is read")
    finally:
        job.close()


# Collectives, flows, users' programs ----------------------------------------------------------------------------------


def stage(pool: AgentPool, *hosts: NodeId) -> Stage:
    return Stage(FABRIC, pool, lambda _: None, 7, failing_hosts=frozenset(host.name for host in hosts))


def steps_of(job: NcclJob) -> list[dict[str, Any]]:
    """Return the rows of the steps that have ended in the phase that plays."""
    return job._phase.records.rows("steps")


def nccl(pool: AgentPool, **config: Any) -> NcclJob:
    ranks = FABRIC.computes[:4]
    settings = {"size": "64 KiB", "slice": "16 KiB", **config}
    return NcclJob(stage(pool, ranks[2]), checked(NcclConfig, settings, "test"), ranks, loopback)


def test_a_killed_rank_ends_its_collective_which_says_which(pool: AgentPool) -> None:
    job = nccl(pool)
    try:
        job.start()
        job.play("kill")
        until(lambda: steps_of(job), "a first step")
        Applied(ProgramEffects([job])).apply(ProgramTarget(job.ranks[2].name), KILLED)
        with pytest.raises(TrafficError, match=r"NCCL"):
            job.halt()
        with pytest.raises(TrafficError, match=f"no samples begun: NCCL rank 2 on {job.ranks[2]} was killed"):
            job.play("again")
    finally:
        job.close()


def test_a_stopped_rank_stalls_its_collective_for_as_long(pool: AgentPool) -> None:
    job = nccl(pool)
    effects = Applied(ProgramEffects([job]))
    try:
        job.start()
        job.play("stop")
        until(lambda: steps_of(job), "a first step")
        effects.apply(ProgramTarget(job.ranks[2].name), STOPPED)
        stopped = time.monotonic()
        time.sleep(1.0)  # So long it lasts.
        goes_on = time.monotonic()
        effects.apply(ProgramTarget(job.ranks[2].name), ProgramState())
        until(lambda: steps_of(job)[-1]["ended_s"] > goes_on, "a step after the rank goes on")
        ended = [row["ended_s"] for row in job.halt().rows("steps")]
    finally:
        job.close()
    meanwhile = [at for at in ended if stopped < at < goes_on]
    assert len(meanwhile) <= 1, "all that it sent before it was stopped is enough for the step that was in flight alone"
    assert max(ended) > goes_on


def test_a_rank_that_is_started_anew_on_a_stopped_host_is_stopped_there_too(
    pool: AgentPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = nccl(pool, stall_timeout=3.0)  # So long none is silent but the one that is stopped.
    effects = Applied(ProgramEffects([job]))
    tried: list[float] = []
    start_ranks = job._start_ranks

    def start_and_note() -> None:
        tried.append(time.monotonic())
        start_ranks()

    def restarts() -> list[dict[str, Any]]:
        return job._phase.records.rows("restarts")

    try:
        job.start()
        monkeypatch.setattr(job, "_start_ranks", start_and_note)
        job.play("stop")
        until(lambda: steps_of(job), "a first step")
        with monkeypatch.context() as impatient:
            impatient.setattr("traffic.stepped_job.START_TIMEOUT_S", 1.0)
            effects.apply(ProgramTarget(job.ranks[2].name), STOPPED)
            until(lambda: len(tried) > 1 or restarts(), "a second attempt to start ranks, one of which stands still")
        assert not restarts(), "it began again while a host stood still"
        goes_on = time.monotonic()
        effects.apply(ProgramTarget(job.ranks[2].name), ProgramState())
        until(restarts, "ranks that have begun again")
        records = job.halt()
    finally:
        job.close()
    (restart,) = records.rows("restarts")
    print(restart)
    assert restart["resumed_s"] > goes_on, "it began again while a host stood still"


def test_flows_go_on_without_a_host_that_was_killed(pool: AgentPool) -> None:
    def senders(seen: Records) -> set[str]:
        return {row["host"] for row in seen.rows("operations")}

    hosts = FABRIC.computes[:4]
    others = {host.name for host in hosts[1:]}
    config = checked(BackgroundConfig, {"load": 0.5, "cdf": "ali_storage", "size_scale": 1.0}, "test")
    job = BackgroundJob(stage(pool, hosts[0]), config, hosts, loopback)
    try:
        job.start()
        job.play("kill")
        time.sleep(0.3)
        Applied(ProgramEffects([job])).apply(ProgramTarget(hosts[0].name), KILLED)
        assert senders(job.halt()) <= others
        played_until(job, "left", lambda seen: senders(seen) == others, "flows of all that are left")
    finally:
        job.close()


def users(pool: AgentPool, logs: Path, command: str) -> ProgramJob:
    hosts = FABRIC.computes[:2]
    where = Stage(FABRIC, pool, lambda _: None, 7, logs=logs)
    return ProgramJob(where, ProgramConfig(command=command), hosts, ServiceLevel.OTHER, "mine")


@pytest.mark.usefixtures("run_files")
def test_a_users_program_is_killed_and_that_is_no_fault(pool: AgentPool, tmp_path: Path) -> None:
    job = users(pool, tmp_path, "sleep 60")
    first, second = (host.name for host in job.hosts)
    try:
        job.start()
        job.play("one")
        effects = Applied(ProgramEffects([job]))
        assert effects.apply(ProgramTarget(first), KILLED)
        assert not effects.apply(ProgramTarget(first), KILLED)
        until(lambda: have_ended(job, first), "the end of the program that was killed")
        rows = {row["host"]: row["operation"] for row in job.halt().rows("operations")}
        assert rows == {first: "program_killed", second: "program_stopped"}
        job.play("two")
        rows = {row["host"]: row["operation"] for row in job.halt().rows("operations")}
        assert rows == {first: "program_stopped", second: "program_stopped"}
    finally:
        job.close()


@pytest.mark.usefixtures("run_files")
def test_a_users_program_stands_still_with_all_that_it_has_started(pool: AgentPool, tmp_path: Path) -> None:
    counted = tmp_path / "counted"
    job = users(pool, tmp_path, f"sh -c 'while true; do echo x >> {counted}-$FABRIC_RANK; sleep 0.02; done'")

    def size(rank: int) -> int:
        return Path(f"{counted}-{rank}").stat().st_size

    try:
        job.start()
        job.play("one")
        effects = Applied(ProgramEffects([job]))
        until(lambda: all(Path(f"{counted}-{rank}").exists() for rank in range(2)), "both programs to count")
        effects.apply(ProgramTarget(job.hosts[0].name), STOPPED)
        until(lambda: stand_still(job, job.hosts[0].name), "an end of the calls in which its processes were stopped")
        before = [size(0), size(1)]
        until(lambda: size(1) > before[1] + 10, "the program that goes on to count")
        assert size(0) == before[0]
        effects.apply(ProgramTarget(job.hosts[0].name), ProgramState())
        until(lambda: size(0) > before[0], "the program that goes on again to count")
        job.halt()
    finally:
        job.close()


def test_programs_of_hosts_that_fail_have_processes_of_their_own(pool: AgentPool) -> None:
    hosts = FABRIC.computes[:4]
    job = BackgroundJob(stage(pool, hosts[1]), BackgroundConfig(hosts_per_process=4), hosts, loopback)
    (programs,) = job.failing_programs
    try:
        job.start()
        by_host = {handle.host: handle.process.pid for handle in programs.handles.values()}
        assert list(by_host) == [host.name for host in hosts], "not in the order asked for"
        assert len(set(by_host.values())) == 2
        assert [host for host in by_host if by_host[host] == by_host[hosts[1].name]] == [hosts[1].name]
        with pytest.raises(TrafficError, match="2 more share its process and would stop with it"):
            programs.stop_on(hosts[0].name)
    finally:
        job.close()


def every_job() -> Sequence[type]:
    """All classes with the life of a job."""
    modules = [
        "traffic.collectives.job", "traffic.flows.background", "traffic.flows.fan_in", "traffic.flows.pattern_job",
        "traffic.flows.probes", "traffic.flows.random_arrivals", "traffic.flows.sized_flows", "traffic.flows.streams",
        "traffic.programs.job", "traffic.storage.job", "traffic.stepped_job", "traffic.work.job",
        "traffic.work.training_job", "experiments.isolation.playing", "experiments.trace_replay.steps",
    ]  # fmt: skip
    return [
        kind
        for name in modules
        for kind in vars(importlib.import_module(name)).values()
        if isinstance(kind, type) and kind.__module__ == name and hasattr(kind, "halt") and hasattr(kind, "close")
    ]


def test_every_job_offers_its_programs_and_storage_its_disks() -> None:
    found = every_job()
    assert len(found) == 17
    assert [kind.__name__ for kind in found if not hasattr(kind, "failing_programs")] == []
    assert [kind.__name__ for kind in found if hasattr(kind, "set_disk")] == ["StorageJob"]


def test_protocols_know_the_jobs(storage: StorageJob) -> None:
    assert isinstance(storage, HasPrograms)
    assert isinstance(storage, HasDisks)
