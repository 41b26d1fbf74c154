"""The job as an experiment plays it: services and clients in processes of their own."""

from __future__ import annotations

import signal
import time

import pandas as pd
import pytest

from fabric.errors import ConfigError, TrafficError
from fabric.world.programs.agents import AgentPool
from tests.rows import columns_of_programs
from tests.waiting import played_until
from topologies.load import load_fabric
from traffic.job import Job, Records, Stage
from traffic.storage.job import StorageJob

from .conftest import FABRIC, JobOf, config_of, loopback

MIXED = {
    "dataloader": {"share": 0.5, "files": 4, "file_size": "4 MiB"},
    "checkpoint": {"share": 0.5, "size": "1 MiB"},
}

ST = [node.name for node in FABRIC.storages]


def _kinds(records: Records) -> list[str]:
    return [row["operation"] for row in records.rows("operations")]


def _peers(records: Records) -> set[str]:
    return {row["peer"] for row in records.rows("operations")}


def _hosts(records: Records) -> set[str]:
    return {row["host"] for row in records.rows("operations")}


def test_rows_are_those_that_results_promise(job_of: JobOf) -> None:
    job: Job = job_of(clients=4, **MIXED)
    started = time.monotonic()
    records = played_until(
        job,
        "storage alone",
        lambda seen: _peers(seen) >= set(ST) and len(_hosts(seen)) == 4,
        "operations of all clients with all services",
        window_s=0.6,
    )
    ended = time.monotonic()
    for name, rows in (("operations", records.rows("operations")), ("flows", records.rows("flows"))):
        assert list(pd.DataFrame(rows).columns) == columns_of_programs(name)
    operations = pd.DataFrame(records.rows("operations"))
    assert set(operations.operation) == {"read", "write"}
    readers = set(operations[operations.operation == "read"].host)
    writers = set(operations[operations.operation == "write"].host)
    assert readers | writers == {node.name for node in FABRIC.computes[:4]}
    assert len(readers) == len(writers) == 2
    assert set(operations.peer) == {node.name for node in FABRIC.storages}
    assert (operations.size_bytes > 0).all()
    assert started < operations.started_s.min()
    assert operations.ended_s.max() < ended
    assert set(operations.phase) == {"storage alone"}
    flows = pd.DataFrame(records.rows("flows"))
    from_services = flows[flows.host.isin([node.name for node in FABRIC.storages]) & flows.peer.isin(readers)]
    reads = operations[operations.operation == "read"]
    # Acknowledgements are delayed by 0.2 s at most.
    told = reads[reads.ended_s < flows.at_s.max() - 0.25]
    assert from_services.groupby(["host", "peer"]).bytes_acked.max().sum() >= told.size_bytes.sum()


def test_servers_are_those_asked_for(pool: AgentPool) -> None:
    stage = Stage(FABRIC, pool, lambda _: None, seed=7)
    job = StorageJob(stage, config_of({}), FABRIC.computes[:1], loopback, servers=FABRIC.storages[1:3])
    assert {node for chain in job.table.chains for node in chain.nodes} == set(FABRIC.storages[1:3])
    assert len(job.table.chains) == len(StorageJob(stage, config_of({}), FABRIC.computes[:1]).table.chains) / 2


def test_phases_have_their_own_rows_and_acknowledgements_add_up(job_of: JobOf) -> None:
    job = job_of(clients=2, **MIXED)
    for phase in ("one", "two"):
        records = played_until(job, phase, lambda seen: _kinds(seen).count("write") >= 8, "two checkpoints")
        assert {row["phase"] for row in records.rows("operations")} == {phase}
    verification = job.verify_acknowledged()
    assert verification.lost == ()
    # One writer, two checkpoints kept, four chunks each, two replicas.
    assert verification.checked == 2 * 4 * 2
    assert job.counts["acknowledged_chunks"] == 8


def test_a_checkpoint_is_written_once_a_period(job_of: JobOf, monkeypatch: pytest.MonkeyPatch) -> None:
    """One may begin late and the next one in time, but none before it is due."""
    job = job_of(clients=1, dataloader={"share": 0.0}, checkpoint={"share": 1.0, "size": "1 MiB", "period": "300 ms"})
    began_s, played_s, play = time.monotonic(), list[float](), job.play

    def play_and_note(phase: str) -> None:
        played_s.append(time.monotonic())
        play(phase)

    monkeypatch.setattr(job, "play", play_and_note)
    writes = played_until(
        job, "checkpoints", lambda seen: len(seen.rows("operations")) >= 12, "three checkpoints", window_s=0.75
    ).rows("operations")
    starts = sorted(row["started_s"] for row in writes)[::4]
    assert len(writes) % 4 == 0 and len(starts) <= (time.monotonic() - began_s) / 0.3 + 1
    assert all(at - played_s[-1] >= 0.3 * place for place, at in enumerate(starts)), starts


def test_a_service_killed_under_load_loses_nothing_acknowledged_and_reads_go_on(job_of: JobOf) -> None:
    job = job_of(clients=4, **MIXED)
    others = set(ST) - {ST[1]}
    played_until(job, "whole", lambda seen: "write" in _kinds(seen), "a chunk that is written")
    job.play("failure")
    job.kill_service(FABRIC.storages[1], wait_s=30)
    job.halt()
    assert job.table.version == 2
    after = played_until(
        job, "after", lambda seen: _peers(seen) >= others and len(set(_kinds(seen))) > 1, "operations of all others"
    )
    assert set(_kinds(after)) == {"read", "write"}
    assert _peers(after) == others
    verification = job.verify_acknowledged()
    assert verification.checked > 0
    assert verification.lost == ()


def test_a_second_kill_ends_the_load_with_the_chain_that_is_lost(job_of: JobOf) -> None:
    job = job_of(clients=4, **MIXED)
    job.play("failures")
    job.kill_service(FABRIC.storages[0], wait_s=30)
    job.kill_service(FABRIC.storages[1], wait_s=30)
    with pytest.raises(TrafficError, match=r"chain \d+ is lost: chain table 3"):
        job.halt()


def test_services_that_share_a_process_serve_as_others_do_and_die_together(job_of: JobOf) -> None:
    job = job_of(clients=4, services_per_process=2, **MIXED)
    assert len({handle.process for handle in job._services.handles.values()}) == len(FABRIC.storages) / 2
    records = played_until(
        job, "together", lambda seen: _peers(seen) >= set(ST) and len(set(_kinds(seen))) > 1, "operations of all"
    )
    assert set(_kinds(records)) == {"read", "write"}
    assert _peers(records) == set(ST)
    assert job.verify_acknowledged().lost == ()
    with pytest.raises(TrafficError, match="storage service on st000: 1 more share its process"):
        job.kill_service(FABRIC.storages[0])


def test_a_service_that_dies_unasked_fails_the_run(job_of: JobOf) -> None:
    job = job_of(clients=2, **MIXED)
    job.play("accident")
    job._services.handles[FABRIC.storages[2]].send_signal(signal.SIGKILL)
    with pytest.raises(TrafficError, match="storage service on st002"):
        job.halt()


def test_a_rotten_chunk_fails_the_run_and_is_named(job_of: JobOf) -> None:
    data = {"share": 1.0, "files": 1, "file_size": "256 KiB", "sample_min": "64 KiB", "sample_max": "128 KiB"}
    job = job_of(clients=2, dataloader=data)
    extent = job.dataset[0].extent(0)
    for node in job.table.chains[extent.chain].nodes:
        job.rot_chunk(node, extent.chunk)
    with pytest.raises(TrafficError, match=f"z0h00.: {extent.chunk} version 1 from st00.: the bytes are not those"):
        played_until(job, "rot", lambda _: False, "a rotten chunk that is read")


def _faults(fabric_name: str = "fire_flyer_2_small", overrides: tuple[str, ...] = (), **settings: object) -> str:
    fabric = load_fabric(fabric_name, overrides)
    stage = Stage(fabric, AgentPool(), lambda _: None, seed=1)
    with pytest.raises(ConfigError) as error:
        StorageJob(stage, config_of(settings), fabric.computes[:2], loopback)
    return str(error.value)


def test_what_does_not_fit_the_fabric_is_told_before_anything_starts() -> None:
    assert "stripe 100 exceeds the 48 chains" in _faults(stripe=100)
    assert "replicas 5 exceed the 4 storage nodes" in _faults(replicas=5)
    assert "has no storage nodes" in _faults(overrides=("storage=0",))


def test_a_service_out_of_reach_fails_no_run_and_reads_go_to_other_replicas(job_of: JobOf) -> None:
    """A stopped service answers nothing, as one whose links are cut, and comes back; its connections stay."""
    job = job_of(clients=4, client={"call_timeout": 0.3, "operation_timeout": 1.0}, **MIXED)
    away = FABRIC.storages[1]
    service = job._services.handles[away]
    played_until(job, "whole", lambda seen: "write" in _kinds(seen), "a chunk that is written")
    job.play("cut")
    service.send_signal(signal.SIGSTOP)
    stopped = time.monotonic()
    time.sleep(4)  # So long it lasts; nobody can be asked meanwhile.
    service.send_signal(signal.SIGCONT)
    operations = pd.DataFrame(job.halt().rows("operations"))
    # A read of later might have its answer of the service that comes back, from a client that is late.
    meanwhile = operations[operations.started_s.between(stopped + 0.5, stopped + 2.5)]
    reads = meanwhile[meanwhile.operation == "read"]
    print(operations.groupby("operation").retries.agg(["size", "sum", "max"]))
    assert len(reads) > 10
    assert set(reads.peer) == {node.name for node in FABRIC.storages} - {away.name}
    failed = operations[operations.operation == "write_failed"]
    assert len(failed) > 0
    assert (failed.retries > 1).all()
    assert (failed.size_bytes == 0).all()
    assert (failed.ended_s - failed.started_s > 1.0).all()
    verification = job.verify_acknowledged(30)
    assert verification.checked > 0
    assert verification.lost == ()
