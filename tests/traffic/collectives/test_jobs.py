"""HFReduce and NCCL jobs as experiments use them: programs of their own, on loopback instead of a fabric."""

from __future__ import annotations

import importlib
import math
import signal
import struct
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from fabric.config import checked
from fabric.errors import ConfigError, TopologyError, TrafficError
from fabric.model.identity import NodeId
from fabric.model.inside import gpu_of
from fabric.model.lanes import ServiceLevel
from fabric.world.programs.agents import AgentPool
from tests.crossings import crossing_pairs
from tests.fakes import AT_20_MBIT
from tests.rows import columns_of_programs
from tests.waiting import until
from topologies.load import load_fabric
from traffic import stepped_job
from traffic.collectives.bandwidth import with_bandwidths
from traffic.collectives.chunk_connection import Edge
from traffic.collectives.dataset import Dataset, DatasetShape
from traffic.collectives.hfreduce import HFReduceConfig, HFReduceJob, HostMemoryConfig, TreeKind
from traffic.collectives.job import CollectiveJob, StepCounts, step_timeout_s
from traffic.collectives.listing import COLLECTIVES
from traffic.collectives.nccl import (
    Algorithm,
    NcclConfig,
    NcclJob,
    _entries,
    are_switched,
    nccl_flows,
    rail_addresses,
    sent_fraction,
    switched_addresses,
    switched_orders,
)
from traffic.collectives.operations.allreduce import ALLREDUCE, expected, ring_primitives
from traffic.collectives.orders import RankArguments, RankListening
from traffic.collectives.ring import Rings
from traffic.collectives.wiring import _accepted
from traffic.job import Stage
from traffic.stepped_job import StepDone
from traffic.transport.connection import SocketOptions
from traffic.transport.tcp import TcpTransport

FABRIC = load_fabric("fire_flyer_2_small", AT_20_MBIT)
TRANSPORT = TcpTransport(SocketOptions(ServiceLevel.NCCL))
RING = Rings(ring_primitives, 2, 8, 4)
NOTHING = Dataset(Path(), DatasetShape(2, 1, 8), 8)
NodesToJob = Callable[..., CollectiveJob]


def loopback(_: NodeId) -> str:
    return "127.0.0.1"


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    pool = AgentPool(preload=("traffic.collectives.hfreduce", "traffic.collectives.nccl", "traffic.flows.background"))
    yield Stage(FABRIC, pool, lambda _: None, seed=7)
    assert not pool.handles, "a test did not close its job"


@contextmanager
def started(job: CollectiveJob) -> Iterator[CollectiveJob]:
    try:
        job.start()
        yield job
    finally:
        job.close()


def nodes(count: int) -> tuple[NodeId, ...]:
    """Return nodes of both zones in turn."""
    of_zone = [[node for node in FABRIC.computes if node.zone == zone] for zone in range(2)]
    return tuple(of_zone[place % 2][place // 2] for place in range(count))


def hfreduce(stage: Stage, ranks: tuple[NodeId, ...], **config: object) -> HFReduceJob:
    return HFReduceJob(stage, checked(HFReduceConfig, config, "test"), ranks, loopback)


def nccl(stage: Stage, ranks: tuple[NodeId, ...], **config: object) -> NcclJob:
    return NcclJob(stage, checked(NcclConfig, config, "test"), ranks, loopback)


@pytest.mark.parametrize("make", ["hfreduce", "nccl"])
def test_ranks_that_share_processes_sum_up_as_others_do(stage: Stage, make: str) -> None:
    job = {"hfreduce": hfreduce, "nccl": nccl}[make](stage, nodes(5), size=300_000, ranks_per_process=2)
    with started(job):
        processes = [handle.process for handle in job._programs.handles.values()]
        records = job.run_steps(3)
    assert [process is before for before, process in pairwise(processes)] == [True, False, True, False]
    assert [row["step"] for row in records.rows("steps")] == [0, 1, 2]
    assert [row["host"] for row in records.rows("rank_steps")] == [node.name for node in nodes(5)] * 3


@pytest.mark.parametrize(
    ("ranks", "size", "chunk"), [(2, 1_000_004, 65_536), (3, 100, 65_536), (5, 300_000, 10_000), (8, 262_144, 32_768)]
)
@pytest.mark.parametrize(("kind", "algorithm"), [("hfreduce", ""), ("nccl", "ring"), ("nccl", "tree")])
def test_job_sums_over_ranks_and_rows_fit_the_tables(
    stage: Stage, kind: str, algorithm: str, ranks: int, size: int, chunk: int
) -> None:
    if kind == "hfreduce":
        job: CollectiveJob = hfreduce(stage, nodes(ranks), size=size, chunk=chunk)
    else:
        job = nccl(stage, nodes(ranks), size=size, slice=chunk, algorithm=algorithm)
    with started(job):
        records = job.run_steps(3, phase="quiet")
    steps, flows = pd.DataFrame(records.rows("steps")), pd.DataFrame(records.rows("flows"))
    assert list(steps.columns) == columns_of_programs("steps")
    assert list(flows.columns) == columns_of_programs("flows")
    assert steps["step"].tolist() == [0, 1, 2]
    assert (steps["ended_s"] > steps["started_s"]).all()
    of_ranks = pd.DataFrame(records.rows("rank_steps"))
    assert list(of_ranks.columns) == columns_of_programs("rank_steps")
    assert of_ranks["host"].tolist() == [node.name for node in nodes(ranks)] * 3
    by_step = of_ranks.groupby("step")
    assert by_step["started_s"].min().tolist() == steps["started_s"].tolist()
    assert by_step["ended_s"].max().tolist() == steps["ended_s"].tolist()
    assert set(steps["service_level"]) == set(flows["service_level"]) == {kind}
    assert set(flows["host"]) <= {node.name for node in nodes(ranks)}


@pytest.mark.parametrize("kind", ["hfreduce", "ring", "tree"])
def test_jobs_sum_up_over_a_transport_that_is_not_tcp(stage: Stage, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of messages in the memory of one process, so all ranks share it. Nothing of programs or jobs knows."""
    monkeypatch.syspath_prepend(Path(__file__).parent.parent / "transport")
    make_transport = importlib.import_module("memory_transport").MemoryTransport
    in_memory, config = replace(stage, make_transport=make_transport), {"size": 300_000, "ranks_per_process": 5}
    if kind == "hfreduce":
        job: CollectiveJob = hfreduce(in_memory, nodes(5), chunk=10_000, **config)
    else:
        job = nccl(in_memory, nodes(5), slice=10_000, algorithm=kind, **config)
    with started(job):
        job.run_steps(1)
        before = acknowledged_bytes(job)
        job.run_steps(2)
        flows = pd.DataFrame(job.run_steps(0).rows("flows"))
        grown = acknowledged_bytes(job) - before
    assert flows["retransmissions"].isna().all()
    assert flows["rtt_s"].isna().all()
    assert 2 * 2 * 4 * 300_000 <= grown < 2 * 2 * 4 * 300_000 * 1.02


def test_rings_over_hosts_with_one_address_and_several_connections_sum_up(stage: Stage) -> None:
    with started(nccl(stage, nodes(3), size=300_000, slice=10_000, channels=2, queue_pairs=3)) as job:
        flows = pd.DataFrame(job.run_steps(2).rows("flows"))
    assert set(flows.groupby(["host", "at_s"]).size()) == {6}


FAILOVER = {"size": 300_000, "slice": 10_000, "channels": 3, "stall_timeout": 5.0, "failover": True}
UPS = {
    "all": (((True,) * 3, (True,) * 3), (0, 1, 2)),
    "one rank lacks one": (((True, False, True), (True,) * 3), (0, 2)),
    "each lacks another": (((False, True, True), (True, True, False)), (1,)),
    "none in common": (((False, True, False), (True, False, True)), (0, 1, 2)),
}


@pytest.mark.parametrize(("up", "places"), UPS.values(), ids=list(UPS))
def test_rings_are_over_the_links_that_are_up_at_every_rank(
    stage: Stage, up: Sequence[tuple[bool, ...]], places: tuple[int, ...]
) -> None:
    listening = [RankListening(tuple((f"10.0.{rank}.{place}", 1) for place in range(3)), up[rank]) for rank in (0, 1)]
    job = NcclJob(stage, checked(NcclConfig, FAILOVER, "test"), nodes(2))
    wiring = job._wiring(listening)
    assert wiring.places == places
    assert wiring.endpoints[1] == tuple((f"10.0.1.{place}", 1) for place in places)
    assert len({edge.channel for edge in wiring.schedule.edges}) == len(places)
    assert wiring.schedule.elements == 75_000
    job.close()


def test_failover_without_a_choice_of_nics_or_an_end_of_patience_is_refused(stage: Stage) -> None:
    with pytest.raises(TrafficError, match="failover chooses among NICs"):
        nccl(stage, nodes(2), **FAILOVER)
    with pytest.raises(ConfigError, match="failover: a job begins again only with a stall_timeout; set one"):
        checked(NcclConfig, {"failover": True}, "test")


def test_rings_run_over_a_switch_where_the_ranks_are_all_gpus_of_its_nodes() -> None:
    dgx, pairs = load_fabric("dgx_a100_nodes"), load_fabric("fire_flyer_2_nodes_nvlink")
    gpus = [gpu_of(host, number) for host in dgx.computes[:2] for number in range(8)]
    assert are_switched(dgx, gpus)
    others = [gpu_of(host, number) for host in pairs.computes[:2] for number in range(8)]
    for fabric, ranks in ((dgx, gpus[:12]), (dgx, gpus[::-1]), (dgx, dgx.computes), (pairs, others)):
        assert not are_switched(fabric, ranks)


def test_a_ring_enters_and_leaves_every_node_by_one_nic() -> None:
    dgx = load_fabric("dgx_a100_nodes")
    gpus = [gpu_of(dgx.computes[1], number) for number in range(8)]
    assert switched_orders(dgx, 3) == ((0, 1, 2, 3, 4, 5, 6, 7), (1, 2, 3, 4, 5, 6, 7, 0), (2, 3, 4, 5, 6, 7, 0, 1))
    by_nics = tuple(map(dgx.address_inside, gpus[:3])) * 2
    for gpu in gpus:
        addresses = switched_addresses(dgx, channels=3, queue_pairs=2)(gpu)
        assert addresses == by_nics + (dgx.address_inside(gpu, nvlink=True),) * 3


def test_rings_take_nics_in_turn_where_several_gpus_share_one() -> None:
    inside = load_fabric("dgx_a100_nodes").inside
    assert inside is not None
    shared = replace(inside, nic_of_gpu=(0, 0, 1, 1, 2, 2, 3, 3))
    assert _entries(shared, 6) == (0, 2, 4, 6, 0, 2)


def test_ring_r_uses_nic_r_of_every_host() -> None:
    rails = load_fabric("rail_optimised_small")
    addresses_of = rail_addresses(rails, rails.computes, channels=6)
    for node in rails.computes:
        own = [nic.ip for nic in rails.nics_of[node]]
        assert list(addresses_of(node)) == [*own, *own[:2]]


def test_rings_over_hosts_with_unequally_many_nics_are_refused() -> None:
    hosts = (FABRIC.computes[0], FABRIC.storages[0])
    with pytest.raises(TopologyError, match=r"hosts have unequally many \(z0h000: 1, st000: 2 \.\.\.\); choose others"):
        rail_addresses(FABRIC, hosts, channels=2)


def test_a_tree_with_several_channels_or_queue_pairs_is_refused() -> None:
    for several in ({"channels": 2}, {"queue_pairs": 2}):
        with pytest.raises(ConfigError, match="algorithm tree has one each; use algorithm: ring"):
            checked(NcclConfig, {"algorithm": "tree", **several}, "test")


def test_job_plays_phases_until_halted(stage: Stage) -> None:
    with started(hfreduce(stage, nodes(4), size="256 KiB")) as job:
        job.play("first")
        until(lambda: len(job._phase.records.rows("steps")) > 3, "four steps")
        first = job.halt()
        job.play("second")
        until(lambda: job._phase.records.rows("steps"), "a step of the second phase")
        second = job.halt()
    assert {row["phase"] for row in first.rows("steps") + first.rows("flows")} == {"first"}
    assert {row["phase"] for row in second.rows("steps") + second.rows("flows")} == {"second"}
    numbers = [row["step"] for row in first.rows("steps") + second.rows("steps")]
    assert numbers == list(range(len(numbers)))
    assert len(first.rows("steps")) > 3


def test_bytes_acknowledged_are_those_the_trees_promise(stage: Stage) -> None:
    """Both directions of all edges together carry 2(n-1) S, and 16 bytes of header a chunk."""
    size, ranks, chunks = 256 * 1024, 6, 8
    with started(hfreduce(stage, nodes(ranks), size=size, chunk=size // chunks)) as job:
        before = acknowledged_bytes(job)
        job.run_steps(3)
        after = acknowledged_bytes(job)
    assert after - before == 3 * 2 * (ranks - 1) * (size + 16 * chunks)


def acknowledged_bytes(job: CollectiveJob) -> int:
    """Return the bytes that all connections have had acknowledged, once they grow no more: acknowledgements are delayed
    by 0.2 s at most."""

    def now() -> int:
        flows = pd.DataFrame(job.run_steps(0).rows("flows"))
        last = flows["at_s"] == flows.groupby("host")["at_s"].transform("max")
        return int(flows[last]["bytes_acked"].sum())

    def settled() -> tuple[int] | None:
        before = now()
        time.sleep(0.25)
        return (before,) if now() == before else None

    return until(settled, "the last delayed acknowledgement")[0]


@pytest.mark.parametrize(("kind", "pairs"), [(TreeKind.ZONE_AWARE, 1), (TreeKind.PLAIN, 8)])
def test_tree_kind_decides_how_many_pairs_cross_zones(stage: Stage, kind: TreeKind, pairs: int) -> None:
    job = hfreduce(stage, FABRIC.computes, tree=kind.value)
    zones = [FABRIC.nics_of[node][0].zone for node in FABRIC.computes]
    assert len(crossing_pairs(job.trees, zones)) == pairs
    job.close()


@pytest.mark.parametrize("make", [hfreduce, nccl])
def test_wrong_sum_is_caught_with_its_first_wrong_element(stage: Stage, make: NodesToJob) -> None:
    with started(make(stage, nodes(3), size=480_000)) as job:
        job.run_steps(1)
        spoil(job, element=100_000)
        job.play("spoilt")
        until(lambda: job._stepping._error, "a wrong sum that is found")
        with pytest.raises(
            TrafficError, match=r"rank \d \(z\dh\d{3}\), step 1: element 100000 of 120000 is \d+, expected"
        ):
            job.halt()


def test_warming_up_is_checked_and_no_row_tells_of_it(stage: Stage) -> None:
    with started(nccl(stage, nodes(3), size="8 MiB")) as job:
        job.warm_up()
        assert [row["step"] for row in job.run_steps(1).rows("steps")] == [1]
        spoil(job, element=0)
        with pytest.raises(TrafficError, match=r"step 2: element \d+ of 1048576 is \d+, expected"):
            job.warm_up()


def spoil(job: CollectiveJob, element: int) -> None:
    """Change one expected value in the file that all ranks map."""
    assert job._data is not None
    path = Path(job._data.files.name) / "expected.fp32"
    np.memmap(path, dtype=np.float32, mode="r+")[element] += 1


def test_killed_rank_is_named_and_not_its_peers(stage: Stage) -> None:
    with started(hfreduce(stage, nodes(4), size=6_000_000, host_memory={})) as job:
        job.play("killed")
        time.sleep(0.2)  # A step takes 4.5 s at least, so the rank dies in its midst and takes its peers with it.
        job._programs.handles[2].kill()
        with pytest.raises(TrafficError, match=r"rank 2 on z0h001: ended with -9 before end of step \d+ \(3 more"):
            job.halt()


def test_memory_cap_of_the_paper_is_scaled_with_the_fabric(stage: Stage) -> None:
    """320 GB/s, 24 operations a byte and 1:10,000 leave 1.33 MB/s, so 400 kB take at least 0.3 s."""
    with started(hfreduce(stage, nodes(2), size=400_000, host_memory={})) as job:

        def step_s() -> float:
            (step,) = job.run_steps(1).rows("steps")
            took_s = float(step["ended_s"] - step["started_s"])
            assert took_s >= 0.3
            return took_s

        until(lambda: step_s() < 0.6, "a step at about that rate; a busy machine may hold some up")
    assert HostMemoryConfig().cap_bytes_per_s == pytest.approx(13.33e9, rel=1e-3)


def test_one_rank_is_refused(stage: Stage) -> None:
    with pytest.raises(TrafficError, match="HFReduce: 1 ranks; a collective needs at least 2 nodes"):
        hfreduce(stage, nodes(1))
    for algorithm in Algorithm:
        with pytest.raises(TrafficError, match="NCCL: 1 ranks"):
            nccl(stage, nodes(1), algorithm=algorithm.value)


@pytest.mark.parametrize("ranks", [2, 3, 8, 12])
@pytest.mark.parametrize("algorithm", list(Algorithm))
def test_flows_are_all_that_is_sent_and_the_busiest_rank_sends_its_fraction(algorithm: Algorithm, ranks: int) -> None:
    flows = nccl_flows(algorithm.value, ranks)
    by_rank = [sum(share for sender, _, share in flows if sender == rank) for rank in range(ranks)]
    assert sum(by_rank) == pytest.approx(2 * (ranks - 1))
    assert max(by_rank) == pytest.approx(sent_fraction(algorithm.value, ranks))


def test_nccl_is_a_ring_unless_a_tree_is_wanted() -> None:
    assert checked(NcclConfig, {}, "test").planned_algorithm is ALLREDUCE.algorithms["ring"]
    assert checked(NcclConfig, {"algorithm": "tree"}, "test").planned_algorithm is ALLREDUCE.algorithms["tree"]
    with pytest.raises(ConfigError, match="algorithm: 'nvls' is not an algorithm of allreduce; use one of ring, tree"):
        checked(NcclConfig, {"algorithm": "nvls"}, "test")


def test_nccl_tree_asks_for_no_more_than_its_busiest_rank_sends(stage: Stage) -> None:
    """Twice the size at 20 Mbit/s: 2.5 MB take 2 s."""
    job = nccl(stage, nodes(8), algorithm="tree", size=2_500_000)
    assert job.step_timeout_s == step_timeout_s(NcclConfig(), ideal_s=2.0)
    job.close()


def test_job_that_has_not_started_says_so(stage: Stage) -> None:
    job = nccl(stage, nodes(2))
    with pytest.raises(TrafficError, match=r"NCCL: has not started; call start\(\) before play\(\)"):
        job.play("x")
    job.close()


@pytest.mark.parametrize(
    ("config", "fault"),
    [
        ({"size": 1001}, "size: 1001 bytes are not whole fp32 elements; use a multiple of 4"),
        ({"size": -4}, "size: Input should be greater than or equal to 0"),
        ({"chunk": "6 B"}, "chunk: 6 bytes are not whole fp32 elements"),
        ({"tree": "zone"}, "tree: Input should be 'zone_aware' or 'plain'"),
        ({"gpus_a_node": 8}, "gpus_a_node: unknown key; did you mean 'gpus_per_node'?"),
    ],
)
def test_wrong_config_is_explained(config: dict[str, object], fault: str) -> None:
    with pytest.raises(ConfigError) as caught:
        checked(HFReduceConfig, config, "test")
    assert fault in str(caught.value)


def test_step_timeout_is_derived_from_the_ideal_step_unless_given() -> None:
    assert step_timeout_s(HFReduceConfig(), ideal_s=1.5) == 60 + 20 * 1.5
    assert step_timeout_s(HFReduceConfig(step_timeout=3.0), ideal_s=1.5) == 3


STALL_S = 3.0
"""So long no rank is silent but one that is stopped, also on a busy machine."""


def test_a_job_that_stalls_begins_again_from_its_last_whole_step(stage: Stage) -> None:
    with started(hfreduce(stage, nodes(4), size="256 KiB", stall_timeout=STALL_S)) as job:
        job.play("stopped")
        until(lambda: job._phase.records.rows("steps"), "a first step")
        job._programs.handles[2].send_signal(signal.SIGSTOP)
        until(lambda: has_begun_again(job), "a step after a restart")
        records = job.halt()
    (restart,) = records.rows("restarts")
    print(restart)
    assert list(restart) == columns_of_programs("restarts")
    numbers = [row["step"] for row in records.rows("steps")]
    assert numbers == list(range(len(numbers)))
    assert restart["step"] in numbers, "it did not go on"
    (again,) = (row for row in records.rows("steps") if row["step"] == restart["step"])
    assert again["started_s"] > restart["failed_s"]
    # Either another rank waited in vain, or the stopped one had only to say that it was done.
    words = (f"for {STALL_S:g} s", f"within {STALL_S:g} s", "no end of step")
    assert any(one in restart["reason"] for one in words), restart["reason"]


def has_begun_again(job: CollectiveJob) -> bool:
    """Whether a step has ended after the first restart."""
    restarts = job._phase.records.rows("restarts")
    return bool(restarts) and job._next_step > restarts[0]["step"]


class StoppedAtBirth:
    """Stops a rank as soon as it is forked, for the first ``attempts`` that a job makes to begin again."""

    def __init__(self, job: CollectiveJob, patch: pytest.MonkeyPatch, attempts: int) -> None:
        self.stopped = 0
        self._start_all = job._programs.start_all
        self._job, self._attempts, self._patch = job, attempts, patch
        self._patience_s = stepped_job.START_TIMEOUT_S
        patch.setattr(job._programs, "start_all", self._started)

    def _started(self, *arguments: Any) -> None:
        self._start_all(*arguments)
        is_stopped = self.stopped < self._attempts
        if is_stopped:
            self.stopped += 1
            self._job._programs.handles[1].send_signal(signal.SIGSTOP)
        # It is waited for in vain; the others have as long as a busy machine takes.
        self._patch.setattr(stepped_job, "START_TIMEOUT_S", 1.0 if is_stopped else self._patience_s)


def test_a_job_whose_restart_stalls_tries_until_it_works(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    with started(hfreduce(stage, nodes(3), size="64 KiB", stall_timeout=STALL_S)) as job:
        births = StoppedAtBirth(job, monkeypatch, attempts=2)
        job.play("stopped")
        job._programs.handles[2].send_signal(signal.SIGSTOP)
        until(lambda: has_begun_again(job), "a step after a restart")
        records = job.halt()
    assert births.stopped == 2
    (restart,) = records.rows("restarts")
    assert restart["resumed_s"] - restart["failed_s"] > 2, "two attempts of 1 s each stalled"
    numbers = [row["step"] for row in records.rows("steps")]
    assert numbers == list(range(len(numbers)))


def test_a_phase_ends_while_a_job_cannot_begin_again_and_the_next_one_starts_its_ranks(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    with started(hfreduce(stage, nodes(3), size="64 KiB", stall_timeout=STALL_S)) as job:
        with monkeypatch.context() as patch:
            births = StoppedAtBirth(job, patch, attempts=1000)
            job.play("stopped")
            job._programs.handles[2].send_signal(signal.SIGSTOP)
            until(lambda: births.stopped > 1, "a second attempt to begin again")
            records = job.halt()
        (restart,) = records.rows("restarts")
        assert math.isnan(restart["resumed_s"])
        assert job._programs.handles == {}
        again = job.run_steps(2, "whole again")
        job.warm_up()
    assert [row["step"] for row in again.rows("steps")] == [restart["step"], restart["step"] + 1]


def test_a_job_is_closed_while_it_begins_again(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    job = hfreduce(stage, nodes(3), size="64 KiB", stall_timeout=0.5)
    job.start()
    births = StoppedAtBirth(job, monkeypatch, attempts=1000)
    job.play("stopped")
    job._programs.handles[2].send_signal(signal.SIGSTOP)
    until(lambda: births.stopped > 0, "an attempt to begin again")
    player = job._stepping.thread
    began = time.monotonic()
    job.close()
    assert time.monotonic() - began < 30
    assert player is not None
    assert not player.is_alive()
    assert stage.pool.handles == []


def test_a_dialer_that_gave_up_is_not_taken_for_a_rank(stage: Stage) -> None:
    arguments = RankArguments("x", 1, ("a", "b"), ("127.0.0.1",), TRANSPORT, RING, NOTHING, expected, 1.0, 1.0)
    with closing(TRANSPORT.listen("127.0.0.1")) as listener:
        TRANSPORT.connect(listener.endpoint, 5).close()
        assert _accepted(listener, arguments) == {}
        with closing(TRANSPORT.connect(listener.endpoint, 5)) as dialer:
            dialer.send([struct.pack("!II", 0, 0)])
            ((edge, connection),) = _accepted(listener, arguments).items()
            connection.close()
    assert edge == Edge(0, 0, 1)


def test_a_stall_ends_a_job_that_is_not_to_begin_again(stage: Stage) -> None:
    with started(hfreduce(stage, nodes(3), size="256 KiB", step_timeout=1.0)) as job:
        job.play("stopped")
        job._programs.handles[2].send_signal(signal.SIGSTOP)
        time.sleep(0.1)
        # Others say so, unless it had sent all its share of the step before it was stopped.
        with pytest.raises(TrafficError, match=r"for 1 s at step|within 1 s; raise|rank 2 .* no end of step"):
            job.halt()
        job._programs.handles[2].kill()  # Or it would be given time to end by itself.


def test_who_halts_a_job_waits_longer_than_its_step_which_says_for_whom(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = hfreduce(stage, nodes(3))
    waited_s: list[float] = []
    monkeypatch.setattr(job._stepping, "join", waited_s.append)
    with pytest.raises(TrafficError, match=r"step 0 did not end within [\d.]+ s of halt"):
        job.halt()
    assert waited_s[0] >= job._limits.patience_s + 2 * stepped_job.REPORT_TIMEOUT_S
    monkeypatch.undo()
    job.close()


def test_a_job_that_is_only_asked_for_its_trees_makes_no_directory(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    job = hfreduce(stage, nodes(4))
    assert len(job.trees) == 2
    assert list(tmp_path.iterdir()) == []
    job.close()


@pytest.mark.parametrize("collective", sorted(COLLECTIVES))
def test_every_collective_is_played_over_sockets_and_its_rows_say_which(stage: Stage, collective: str) -> None:
    """Sizes: one that ranks do not divide, one of fewer elements than ranks, and none. A barrier has the last only."""
    sizes = ((300_004, 10_000), (12, 4), (0, 4))
    for size, slice_bytes in sizes[2:] if collective == "barrier" else sizes:
        with started(nccl(stage, nodes(5), collective=collective, size=size, slice=slice_bytes)) as job:
            job.warm_up()
            records = job.run_steps(2, phase="quiet")
        steps = pd.DataFrame(records.rows("steps"))
        assert list(steps.columns) == columns_of_programs("steps")
        assert steps["collective"].tolist() == [collective] * 2
        assert len(records.rows("rank_steps")) == 10


OTHERS = [(one.name, algorithm) for one in COLLECTIVES.values() for algorithm in list(one.algorithms)[1:]]


@pytest.mark.parametrize(("collective", "algorithm"), OTHERS)
def test_every_other_algorithm_is_played_over_sockets(stage: Stage, collective: str, algorithm: str) -> None:
    config = {"collective": collective, "algorithm": algorithm, "size": 300_004, "slice": 10_000}
    with started(nccl(stage, nodes(6), **config)) as job:
        assert len(job.run_steps(2).rows("steps")) == 2


@pytest.mark.parametrize(("algorithm", "sent"), [("sharded", 2 * 3), ("byteps", 2 * (3 - 3 / 11))])
def test_servers_without_data_of_their_own_serve_the_others(stage: Stage, algorithm: str, sent: float) -> None:
    """Three workers push all, but BytePS' worker the eleventh that it serves itself, and pull as much."""
    config = {"collective": "push_pull", "algorithm": algorithm, "servers": 2, "size": 300_004, "slice": 10_000}
    with started(nccl(stage, nodes(5), **config)) as job:
        before = acknowledged_bytes(job)
        job.run_steps(2)
        assert acknowledged_bytes(job) - before == pytest.approx(2 * sent * 300_004, rel=0.005)


def test_a_barrier_ends_nowhere_before_it_has_begun_everywhere(stage: Stage) -> None:
    with started(nccl(stage, nodes(5), collective="barrier")) as job:
        rows = pd.DataFrame(job.run_steps(20).rows("rank_steps")).groupby("step")
    assert (rows["ended_s"].min() >= rows["started_s"].max()).all()


def test_a_barrier_that_a_rank_leaves_too_early_is_found(stage: Stage) -> None:
    job = nccl(stage, nodes(3), collective="barrier")
    job._verify_synchronised([StepDone(7, 1.0, 3.0), StepDone(7, 2.5, 3.0), StepDone(7, 1.0, 2.5)])
    with pytest.raises(TrafficError, match=r"step 7: rank 2 ended the barrier 500(\.0)? ms before rank 1 began it"):
        job._verify_synchronised([StepDone(7, 1.0, 3.0), StepDone(7, 2.5, 3.0), StepDone(7, 1.0, 2.0)])


IN_PLACE = [(one.name, algorithm) for one in COLLECTIVES.values() if one.in_place for algorithm in one.algorithms]


@pytest.mark.parametrize(("collective", "algorithm"), IN_PLACE)
def test_sizes_follow_each_other_in_one_job_in_place_and_not(stage: Stage, collective: str, algorithm: str) -> None:
    """What is there of a step before would be found in the next one's result."""
    sizes = [0] if collective == "barrier" else [40, 0, 28, 200_004]
    config = {"collective": collective, "algorithm": algorithm, "size": sizes[-1], "slice": 4000}
    with started(nccl(stage, nodes(5), **config)) as job:
        for in_place in (True, False):
            rows = job.run_sizes(sizes, StepCounts(1, 2), "sizes", in_place).rows("steps")
            assert [row["size_bytes"] for row in rows] == [size for size in sizes for _ in range(2)]


def test_a_wrong_element_in_place_is_caught(stage: Stage) -> None:
    with started(nccl(stage, nodes(3), size=480_000)) as job:
        spoil(job, element=20_000)
        with pytest.raises(TrafficError, match=r"step 0: element 20000 of 120000 is \d+, exp"):
            job.run_sizes([480_000], StepCounts(0, 1), in_place=True)


@pytest.mark.parametrize("collective", sorted(name for name, one in COLLECTIVES.items() if not one.in_place))
def test_what_has_no_result_in_place_says_so(stage: Stage, collective: str) -> None:
    job = nccl(stage, nodes(2), collective=collective)
    with pytest.raises(TrafficError, match=f"NCCL: {collective} has no result in place"):
        job.run_sizes([4], StepCounts(0, 1), in_place=True)


@pytest.mark.parametrize(
    ("config", "ranks", "fault"),
    [
        ({"collective": "push_pull", "servers": 4}, 5, "4 servers of 5 ranks leave 1 workers; leave 2 or more"),
        ({"collective": "push_pull", "algorithm": "byteps", "servers": 3}, 5, "3 servers for 2 workers"),
        ({"algorithm": "hierarchical", "node_ranks": 2}, 5, "node_ranks: 2 do not divide 5 ranks; use a divisor"),
        ({"counts": [[0, 1], [1, 0]]}, 3, "counts of 2 ranks are not those of 3; give one row per rank"),
    ],
)
def test_ranks_that_do_not_fit_are_refused(stage: Stage, config: dict[str, object], ranks: int, fault: str) -> None:
    with pytest.raises(TrafficError, match=f"NCCL: {fault}"):
        nccl(stage, nodes(ranks), **config)


@pytest.mark.parametrize("collective", ["reduce_scatter", "reduce"])
def test_a_wrong_sum_of_part_of_the_data_is_caught(stage: Stage, collective: str) -> None:
    with started(nccl(stage, nodes(3), size=480_000, collective=collective)) as job:
        job.run_steps(1)
        spoil(job, element=20_000)
        with pytest.raises(TrafficError, match=r"rank 0 \(z\dh\d{3}\), step 1: element 20000 of 120000 is \d+, exp"):
            job.run_steps(1)


@pytest.mark.parametrize(("collective", "fraction"), [("all_gather", 4 / 5), ("broadcast", 1.0), ("all_to_all", 4 / 5)])
def test_bytes_acknowledged_are_those_of_the_closed_form(stage: Stage, collective: str, fraction: float) -> None:
    """And 16 bytes of header a slice: 5 ranks, 20 slices of each rank's block, or 100 of the whole."""
    size, ranks = 500_000, 5
    frames = {"all_gather": 4 * 5 * 20, "broadcast": 4 * 100, "all_to_all": 4 * 5 * 20}[collective]
    with started(nccl(stage, nodes(ranks), collective=collective, size=size, slice=5000)) as job:
        before = acknowledged_bytes(job)
        job.run_steps(3)
        after = acknowledged_bytes(job)
    senders = ranks - 1 if collective == "broadcast" else ranks
    assert after - before == 3 * (senders * fraction * size + 16 * frames)


def test_busbw_counts_the_gpus_of_nodes_with_an_inside_as_nccl_tests_does(stage: Stage) -> None:
    """2 nodes of 8 GPUs, whose data HFReduce adds up in the node: of the same algbw the same busbw as NCCL."""
    job = hfreduce(stage, nodes(2), gpus_per_node=8)
    try:
        done = [StepDone(step=1, started=0.0, ended=0.5)] * 2
        assert [row["ranks"] for row in job._step_records("p", done)["steps"]] == [2], "a point is a rank"
        job._planned = replace(job._planned, node_of=lambda node: node)  # type: ignore[arg-type,return-value]
        steps = pd.DataFrame(job._step_records("p", done)["steps"])
    finally:
        job.close()
    assert list(steps["ranks"]) == [16]
    (row,) = with_bandwidths(steps).to_dict("records")
    assert row["busbw"] / row["algbw"] == 2 * 15 / 16
