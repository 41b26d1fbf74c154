"""Failures and returns with 3FS's own timers, in time that jumps; services, clients and manager are the real ones."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import replace
from typing import Any
from unittest import mock

import pandas as pd
import pytest

from fabric.errors import TrafficError
from fabric.model.identity import NodeId
from fabric.percentiles import Percentile
from traffic import metrics
from traffic.storage.chains import Chain
from traffic.storage.config import StorageConfig
from traffic.storage.history import Kind, replica_faults, violations
from traffic.storage.service import program as service
from traffic.storage.service.replica import Applied, Chunk, Pull, Replica, Stored
from traffic.storage.wire.messages import Io

from .true_timers import CHUNK_BYTES, MANAGER, NODES, Cluster, no_listeners_left, run


def config_of(**changed: Any) -> StorageConfig:
    manager = {"fence": "off"} | changed.pop("manager", {})
    keys: dict[str, Any] = {
        "chunk_size": CHUNK_BYTES,
        "replicas": 3,
        "disks_per_node": 1,
        "chains_per_target": 3,
        "stripe": 3,
        "connections": "when_needed",
        "cluster_manager": manager,
        "client": {"retry": {}},
        "dataloader": {"file_size": 1 << 20, "sample_max": 1 << 16},
    }
    return StorageConfig.model_validate(keys | changed)


def check_history(cluster: Cluster) -> None:
    """Nothing that clients saw is wrong, and targets have all that was acknowledged."""
    assert violations(cluster.events) == []
    for chain in cluster.routing.chains:
        acknowledged = {
            event.chunk: max(e.version or 0 for e in cluster.events if e.chunk == event.chunk and e.kind is Kind.WRITE)
            for event in cluster.events
            if event.version and event.chunk.index % len(cluster.routing.chains) == chain.number
        }
        assert replica_faults(cluster.held(chain.number), acknowledged) == []


def heads_chunk(cluster: Cluster, node: NodeId) -> int:
    return next(chain.number for chain in cluster.table.chains if chain.head.node == node)


async def cut_head(written_after: list[float]) -> tuple[float, list[float | None]]:
    """Cut a head off; return when the client knew of the new chain, and how long each write took that was begun so long
    after the cut, None if it failed."""
    cluster = Cluster(config_of())
    await cluster.start()
    index = heads_chunk(cluster, NODES[0])
    assert (await cluster.write(index)).version == 1
    await asyncio.sleep(33.3)
    cut_s = time.monotonic()
    cluster.silence(NODES[0])
    client = cluster.clients["c0"]

    async def learn() -> float:
        while NODES[0] in client.table.chains[index].nodes:
            await asyncio.sleep(0.1)
        return time.monotonic() - cut_s

    async def write(after_s: float, place: int) -> float | None:
        await asyncio.sleep(after_s)
        begun_s = time.monotonic()
        # Chunks of one chain: a chunk's writes by one client would follow one another.
        event = await cluster.write(index + 3 * (place + 1))
        print(f"begun {after_s:g} s after the cut: {event.words}, ended after {time.monotonic() - begun_s:.1f} s")
        return time.monotonic() - begun_s if event.version else None

    learned_s, *took = await asyncio.gather(learn(), *(write(one, place) for place, one in enumerate(written_after)))
    assert learned_s is not None
    return learned_s, took


def test_a_write_fails_at_a_minute_unless_the_new_chain_is_there_at_its_last_turn() -> None:
    """Turns begin 0, 10 and 30 s after a write; the new chain is known 50 to 81 s after the cut."""
    begun = [0.0, 10.0, 20.0, 25.0, 30.0, 40.0, 50.0, 60.0]
    learned_s, took = run(cut_head(begun))
    print(f"the client knows of the new chain {learned_s:.1f} s after the cut")
    assert 50 <= learned_s <= 81
    for after_s, took_s in zip(begun, took, strict=True):
        turns = [after_s + turn for turn in (0, 10, 30)]
        known = [turn for turn in turns if turn >= learned_s]
        if known:  # Told that the new head does not know of the chain yet, the client tries again 5 s later.
            assert took_s is not None
            assert -0.01 < took_s - (known[0] - after_s) < 10.1
        else:
            assert took_s is None, "the user sees an I/O error a minute later"
    assert took[0] is None
    assert took[-1] is not None


async def fall_silent_and_return(node: NodeId, silent_s: float, writes: int) -> Cluster:
    """Write while a node is away, and bring it back."""
    cluster = await Cluster(config_of()).with_data(12)
    await asyncio.sleep(20)
    cluster.silence(node)
    await asyncio.sleep(silent_s)
    for index in range(writes):
        event = await cluster.write(index)
        assert event.version == 2, event.words
    cluster.network.mend()
    await cluster.until_whole()
    for index in range(12):
        for server in NODES:
            event = await cluster.read(index, server=server)  # type: ignore[assignment]
            assert event is not None and event.version == (2 if index < writes else 1)
    check_history(cluster)
    return cluster


@pytest.mark.parametrize("node", NODES)
def test_a_node_that_was_silent_is_brought_up_to_date_by_what_was_written_meanwhile(node: NodeId) -> None:
    cluster = run(fall_silent_and_return(node, silent_s=90, writes=5))
    assert cluster.count("resyncs") >= 3
    assert cluster.count("resync_chunks") == 5
    assert cluster.count("resync_bytes") == 5 * CHUNK_BYTES
    assert (
        sum(
            service.returning.membership.restarts
            for service in cluster.services.values()
            if service.returning.membership
        )
        == 1
    )


def test_a_restart_changes_each_chain_three_times() -> None:
    """Offline, syncing, serving: clients are told of a newer chain at each (3FS's issue 340)."""
    cluster = run(fall_silent_and_return(NODES[1], silent_s=90, writes=0))
    assert [chain.version for chain in cluster.routing.chains] == [4, 4, 4]


def test_a_target_that_comes_back_empty_is_filled_whole() -> None:
    """A new disk (3FS's issues 335 and 92)."""

    async def scene() -> Cluster:
        cluster = await Cluster(config_of()).with_data(12)
        cluster.silence(NODES[1])
        await asyncio.sleep(90)
        cluster.services[NODES[1]].replica._chunks.clear()
        cluster.network.mend()
        await cluster.until_whole()
        check_history(cluster)
        return cluster

    assert run(scene()).count("resync_bytes") == 12 * CHUNK_BYTES


@pytest.mark.parametrize("level", [None, "other"])
def test_a_resync_has_a_service_level_of_its_own_if_wanted(level: str | None) -> None:
    async def scene() -> dict[str, int]:
        cluster = await Cluster(config_of(manager={"resync": {"level": level}})).with_data(12)
        before = cluster.network.sent_bytes()
        cluster.silence(NODES[1])
        await asyncio.sleep(90)
        cluster.services[NODES[1]].replica._chunks.clear()
        cluster.network.mend()
        await cluster.until_whole()
        return {key: count - before.get(key, 0) for key, count in cluster.network.sent_bytes().items()}

    sent = run(scene())
    print(sent)
    assert sent["control"] > 0
    carries, does_not = (level or "storage"), ("storage" if level else "other")
    assert sent[carries] > 12 * CHUNK_BYTES
    assert sent.get(does_not, 0) == 0


def test_a_resync_keeps_to_its_rate() -> None:
    """An empty target of three chains with four chunks each: chains are sent side by side, one chunk at once."""

    async def scene(rate: str) -> float:
        cluster = await Cluster(config_of(manager={"resync": {"rate": rate, "batch": 1}})).with_data(12)
        cluster.silence(NODES[1])
        await asyncio.sleep(90)
        cluster.services[NODES[1]].replica._chunks.clear()
        cluster.network.mend()
        mended_s = time.monotonic()
        while cluster.count("resyncs") < 3:
            await asyncio.sleep(0.1)
        return time.monotonic() - mended_s

    unpaced_s, paced_s = run(scene("off")), run(scene("8192 bit/s"))
    assert paced_s - unpaced_s == pytest.approx(4 * CHUNK_BYTES / 1024, abs=0.15)


def test_a_target_with_a_chunk_of_a_newer_chain_never_serves_and_it_is_counted() -> None:
    """3FS's issue 229: syncing forever, since the remote chain version is higher. It is planted here."""

    async def scene() -> Cluster:
        cluster = await Cluster(config_of()).with_data(3)
        cluster.silence(NODES[1])
        await asyncio.sleep(90)
        (held, *_) = cluster.services[NODES[1]].replica._chunks.values()
        assert held.committed is not None
        held.committed = replace(held.committed, chain_version=99)
        cluster.network.mend()
        await asyncio.sleep(300)
        return cluster

    cluster = run(scene())
    assert cluster.count("resyncs_forked") > 3
    assert [len(chain.nodes) for chain in cluster.routing.chains].count(2) == 1


async def stall_of(node: NodeId, does_write: bool) -> float:
    """Silence one of two nodes for good, and return how long the operation takes that is begun then."""
    cluster = Cluster(config_of(replicas=2, chains_per_target=2, client={"retry": {}, "operation_timeout": 120}))
    await cluster.start()
    index = next(chain.number for chain in cluster.table.chains if node in chain.nodes)
    await cluster.write(index)
    cluster.silence(node)
    begun_s = time.monotonic()
    done = await (cluster.write(index) if does_write else cluster.read(index))
    assert done is not None and done.version == (2 if does_write else 1)
    return time.monotonic() - begun_s


@pytest.mark.parametrize("node", NODES)
def test_with_two_replicas_both_deaths_end_without_an_error(node: NodeId) -> None:
    """3FS's issue 268: a read goes to the other replica after one turn at most; a write waits for the new chain."""
    read_s, write_s = run(stall_of(node, does_write=False)), run(stall_of(node, does_write=True))
    print(f"{node} is silent: a read takes {read_s:.1f} s, a write {write_s:.1f} s")
    assert read_s <= 10.1
    assert write_s <= 120


async def write_at_the_cut(failed_after_s: float, tries_s: float) -> bool:
    """Return whether a write succeeds that is begun when its head is cut off."""
    beat_s = failed_after_s / 6
    manager = {"failed_after": failed_after_s, "heartbeat": beat_s, "checked_every": beat_s, "polled_every": beat_s}
    cluster = Cluster(config_of(manager=manager, client={"retry": {}, "operation_timeout": tries_s}))
    await cluster.start()
    index = heads_chunk(cluster, NODES[0])
    await asyncio.sleep(3 * failed_after_s + 0.7)
    cluster.silence(NODES[0])
    return (await cluster.write(index)).version is not None


def test_which_timers_lose_no_write() -> None:
    """Failed after and tries for, in seconds. The new chain is known by 8/6 of the first and a second; the last turn
    begins 30, 60, 90 s after the write."""
    failed, tries = (15.0, 20.0, 30.0, 60.0), (30.0, 60.0, 90.0, 120.0)
    grid = {(after, total): run(write_at_the_cut(after, total)) for after in failed for total in tries}
    for after in failed:
        print(f"failed after {after:g} s:", {f"{total:g} s": grid[after, total] for total in tries})
    assert not grid[60, 60], "as released"
    last_turn = {30.0: 10, 60.0: 30, 90.0: 60, 120.0: 90}
    for (after, total), succeeds in grid.items():
        if last_turn[total] > after * 8 / 6 + 1 + after / 6:
            assert succeeds, (after, total)
        if last_turn[total] + 5 < after * 5 / 6:
            assert not succeeds, (after, total)


def test_a_read_that_is_tried_again_counts_from_when_its_caller_began_to_wait() -> None:
    async def scene() -> None:
        cluster = await Cluster(config_of()).with_data(6)
        client = cluster.clients["c0"]
        await asyncio.sleep(33)
        client.operations.clear()
        cluster.silence(NODES[1])
        waited = []
        for number in range(12):
            began_s = time.monotonic()
            await client.read_chunks([cluster.extent(number % 6)])
            waited.append(time.monotonic() - began_s)
        took = [one.ended_s - one.started_s for one in client.operations]
        assert [one.kind for one in client.operations] == ["read"] * 12
        assert took == waited and max(took) == pytest.approx(10), "a turn of the retries"
        rows = pd.DataFrame(client.operations).rename(columns={"kind": "operation"})
        done = metrics.completion(rows, "read")
        assert done is not None and done.percentiles["p99"] == Percentile(max(waited))

    run(scene())


@pytest.mark.parametrize("hands_on", [False, True])
def test_a_copy_that_is_wrong_counts_as_read_once_where_it_is_right(hands_on: bool) -> None:
    async def scene() -> None:
        cluster = await Cluster(config_of()).with_data(6)
        client = cluster.clients["c0"]
        client.expect_wrong_copies()
        extents = [cluster.extent(index) for index in range(6)]
        for extent in extents[:3]:
            for node in cluster.table.chains[extent.chain].nodes[:-1]:
                cluster.services[node].rot(extent.chunk)
        client.operations.clear()
        for _ in range(20):
            read = client.read_bytes if hands_on else client.read_chunks
            await read(extents)
        assert client.party.counts["wrong_copies"] > 0
        assert sum(one.size_bytes for one in client.operations) == 20 * 6 * CHUNK_BYTES

    run(scene())


def test_a_node_that_missed_nothing_is_sent_nothing() -> None:
    cluster = run(fall_silent_and_return(NODES[1], silent_s=90, writes=0))
    assert cluster.count("resync_bytes") == 0
    assert cluster.count("resyncs") >= 3


def test_a_short_silence_changes_no_chain() -> None:
    async def scene() -> int:
        cluster = Cluster(config_of())
        await cluster.start()
        await cluster.write(0)
        cluster.silence(NODES[2])
        await asyncio.sleep(25)
        cluster.network.mend()
        await asyncio.sleep(100)
        check_history(cluster)
        return cluster.routing.version

    assert run(scene()) == 1


async def isolate_tail(fence: str, isolated_reads: int = 60) -> tuple[list[str], int, int]:
    """Cut a tail off from the manager and its chain, not from a client that is cut off from the manager, too. Another
    one writes. Return what is wrong, and how many reads at the tail succeeded and failed."""
    cluster = Cluster(config_of(manager={"fence": fence}, client={"retry": {}, "operation_timeout": 60}))
    await cluster.start(clients=2)
    index = next(chain.number for chain in cluster.table.chains if chain.nodes[-1] == NODES[2])
    await cluster.write(index)
    await asyncio.sleep(15)
    cluster.silence(NODES[2], but=("c1",))
    cluster.network.cut("c1", [MANAGER.name])
    read, failed = 0, 0

    async def read_on() -> None:
        nonlocal read, failed
        for _ in range(isolated_reads):
            event = await cluster.read(index, "c1", NODES[2])
            read, failed = read + (event is not None), failed + (event is None)
            await asyncio.sleep(3)

    async def write_on() -> None:
        for _ in range(12):
            await cluster.write(index, "c0")
            await asyncio.sleep(5)

    await asyncio.gather(read_on(), write_on())
    return violations(cluster.events), read, failed


def test_without_a_fence_the_checker_finds_stale_reads_at_a_tail_that_was_forgotten() -> None:
    found, read, failed = run(isolate_tail("off"))
    print(f"{len(found)} stale of {read} reads, {failed} failed: {found[0] if found else ''}")
    assert found
    assert "stale, after write" in found[0]
    assert failed == 0


def test_with_a_fence_there_are_none() -> None:
    found, read, failed = run(isolate_tail("half", 20))
    assert found == []
    assert read > 0
    assert failed > 0, "it answers no more"


async def random_partitions(seed: int, fence: str = "half") -> Cluster:
    """Cut nodes off, one at a time, from some or all, for as long as that takes, while clients read and write."""
    rng = random.Random(seed)
    cluster = Cluster(config_of(manager={"fence": fence}))
    await cluster.start(clients=3)
    for index in range(4):
        await cluster.write(index)
    over = asyncio.Event()

    clients = [cluster.play_at_random(rng, name, over) for name in cluster.clients]
    await asyncio.gather(*clients, cluster.cut_at_random(rng, over))
    await cluster.until_whole(2000)
    await asyncio.sleep(100)
    return cluster


class SkipsCommits(Replica):
    """Says of some versions that they are committed, and forgets them."""

    def _commit(self, held: Chunk, stored: Stored) -> Applied:
        if stored.version % 3:
            return super()._commit(held, stored)
        held.pending = None
        return Applied(stored.version, stored.request, stored.chain_version)


class LosesAChunk(Replica):
    """Does not keep a chunk that a resync brings."""

    async def replace_chunk(self, io: Io, last: Mapping[int, Applied], pull: Pull, until_s: float) -> None:
        if io.chunk.index != 1:
            await super().replace_chunk(io, last, pull, until_s)


class AcceptsOldChains(Replica):
    """Serves callers that go by an older version of a chain."""

    def chain_of(self, io: Io) -> Chain:
        known = self.table.chains[io.chain].version
        return super().chain_of(io._replace(chain_version=max(known, io.chain_version)))


async def old_head_writes_on() -> list[str]:
    """Cut a head and a client off from the manager, from nobody else: both go by the old chain, the others do not."""
    cluster = Cluster(config_of())
    await cluster.start(clients=2)
    index = heads_chunk(cluster, NODES[0])
    await cluster.write(index)
    for host in (NODES[0].name, "c1"):
        cluster.network.cut(host, [MANAGER.name])
    await asyncio.sleep(90)
    for _ in range(3):
        await asyncio.gather(cluster.write(index, "c1"), cluster.write(index, "c0"))
        await cluster.read(index, "c0")
    return violations(cluster.events)


def whatever_is_wrong(scene: Coroutine[Any, Any, Any]) -> list[str]:
    """Return what a scene says is wrong, by its checks or by the protocol's own."""
    try:
        found = run(scene)
    except (AssertionError, TrafficError) as error:
        return [str(error)]
    return found if isinstance(found, list) else []


@pytest.mark.parametrize(
    ("kind", "scene"),
    [
        (SkipsCommits, lambda: checked(random_partitions(1))),
        (LosesAChunk, lambda: checked(fall_silent_and_return(NODES[1], 90, 5))),
        (AcceptsOldChains, old_head_writes_on),
    ],
)
def test_a_planted_bug_is_found(kind: type[Replica], scene: Callable[[], Coroutine[Any, Any, list[str]]]) -> None:
    assert whatever_is_wrong(scene()) == []
    with mock.patch.object(service, "Replica", kind):
        found = whatever_is_wrong(scene())
    print(kind.__name__, found[:1])
    assert found


async def checked(scene: Coroutine[Any, Any, Cluster]) -> list[str]:
    """Return what is wrong with a cluster at the end of a scene."""
    cluster = await scene
    check_history(cluster)
    return violations(cluster.events)


@pytest.mark.soak
@pytest.mark.timeout(7200)  # An alarm would end but one task of the cluster, and the rest wait for it forever.
def test_a_thousand_random_sequences_of_partitions_lose_nothing() -> None:
    operations = versions = resent = 0
    for seed in range(1000):
        with no_listeners_left():
            cluster = run(random_partitions(seed))
            check_history(cluster)
        assert cluster.count("resyncs_forked") == 0, seed
        operations, versions = operations + len(cluster.events), versions + cluster.routing.version
        resent += cluster.count("resync_chunks")
    print(f"{operations} operations, {versions} versions of the routing, {resent} chunks sent again")
    assert resent > 500


@pytest.mark.soak
@pytest.mark.timeout(7200)  # An alarm would end but one task of the cluster, and the rest wait for it forever.
def test_five_hundred_runs_with_partitions_and_a_fence_have_no_stale_read() -> None:
    stale = 0
    for seed in range(500):
        with no_listeners_left():
            stale += bool(violations(run(random_partitions(seed, "off")).events))
            assert violations(run(random_partitions(seed, "half")).events) == [], seed
    print(f"without a fence, {stale} of 500 have one")


@pytest.mark.parametrize("seed", range(6))
def test_random_partitions_lose_nothing_and_all_serve_in_the_end(seed: int) -> None:
    cluster = run(random_partitions(seed))
    print(
        f"{len(cluster.events)} operations, routing {cluster.routing.version}, {cluster.count('resync_chunks')} resent"
    )
    check_history(cluster)
    assert cluster.count("resyncs_forked") == 0
