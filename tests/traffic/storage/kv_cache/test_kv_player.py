"""Clients of the KV cache over services in one process, in time that jumps: messages take none, so that what is left is
computing, and which block is there when."""

from __future__ import annotations

import asyncio
import json
import math
import time
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from fabric.model.lanes import ServiceLevel
from tests.traffic.storage.test_true_timers import config_of
from tests.traffic.storage.true_timers import Cluster, run
from traffic.storage.chains import Striping, extents_on
from traffic.storage.client.library import GaveUp
from traffic.storage.kv_cache.arrivals import window_of
from traffic.storage.kv_cache.cache import PrefixCache, totals
from traffic.storage.kv_cache.config import KvCacheConfig
from traffic.storage.kv_cache.kinds import of_requests
from traffic.storage.kv_cache.player import KvClientArguments, KvLoad, request_row
from traffic.storage.kv_cache.prefill import computed_at
from traffic.storage.kv_cache.trace import BLOCK_TOKENS
from traffic.storage.orders import LoadPart, ManagedClientArguments


def trace_of(folder: Path, *lines: tuple[float, int, list[int]]) -> str:
    path = folder / "trace.jsonl"
    requests = (
        {"timestamp": at_ms, "input_length": tokens, "output_length": 600, "hash_ids": blocks}
        for at_ms, tokens, blocks in lines
    )
    path.write_text("".join(json.dumps(one) + "\n" for one in requests))
    return str(path)


def kv_of(**parts: Any) -> KvCacheConfig:
    """A block of 61 layers of 100 B, so 6,100 B in two chunks of 4 KiB; 100 GFLOP take 10 s."""
    serving = {"flops_per_s": 1e10 * 1e3, "scale": 5898, **parts.pop("serving", {})}
    storage = config_of(dataloader={}).model_dump(mode="json")
    blocks = {"collect_every": 20.0, **parts.pop("blocks", {})}
    return KvCacheConfig.model_validate({"serving": serving, "storage": storage, "blocks": blocks, **parts})


async def load_on(cluster: Cluster, kv: KvCacheConfig) -> KvLoad:
    """Return what a client plays on a cluster that is up; what is there before is on its disks."""
    await cluster.start()
    window = window_of(kv.requests, kv.blocks, 1)
    striping = Striping(kv.storage.chunk_size, kv.storage.stripe, len(cluster.table.chains), 1)
    told = ManagedClientArguments(
        number=0,
        source="c0",
        services={},
        config=kv.storage,
        table=cluster.table,
        striping=striping,
        dataset=(),
        part=LoadPart(writes=True),
        seed=1,
        transport=cluster._transport("c0"),
    )
    arguments = KvClientArguments(told, kv, window)
    files = [
        striping.layout(arguments.first_file + place, kv.serving.block_bytes) for place in range(len(window.present))
    ]
    for node, service in cluster.services.items():
        service.replica.preload(extents_on(node, cluster.table, files))
    return KvLoad(cluster.clients["c0"], arguments, cluster.tasks)


def played(kv: KvCacheConfig, seconds: float) -> tuple[KvLoad, Cluster, float]:
    """Return a load that was played for a time, its cluster, and when it began."""

    async def scene() -> tuple[KvLoad, Cluster, float]:
        cluster = Cluster(kv.storage)
        load = await load_on(cluster, kv)
        began_s = time.monotonic()
        load.begin()
        await asyncio.sleep(seconds)
        await load.end()
        cluster.require_sound()
        return load, cluster, began_s

    return run(scene())


def chunks_of(cluster: Cluster) -> int:
    """Return how many chunks with bytes the services have, all replicas counted."""
    chains = range(len(cluster.table.chains))
    return sum(
        state.size_bytes > 0
        for service in cluster.services.values()
        for chain in chains
        for state in service.replica.states(chain).values()
    )


def test_a_request_reads_what_is_there_computes_the_rest_and_writes_it(tmp_path: Path) -> None:
    trace = trace_of(tmp_path, (0, 1024, [1, 2]), (1_000_000, 1500, [1, 2, 3]), (2_000_000, 1024, [1, 2]))
    kv = kv_of(requests={"trace": trace})
    load, cluster, _ = played(kv, 3000)
    found = [(one.hit_blocks, one.in_theory, one.read_bytes, one.written_bytes) for one in load.served]
    assert found == [(0, 0, 0, 12_200), (2, 2, 12_200, 6100), (2, 2, 12_200, 0)]
    flops = [kv.serving.shape.prefill_flops(*one) for one in ((1024,), (1500, 1024), (1024, 1024))]
    for one, work in zip(load.served, flops, strict=True):
        assert one.ready_s - one.started_s == pytest.approx(work / kv.serving.flops_per_s)
        assert one.compute_all_s >= one.compute_s
    assert load.served[0].ended_s == pytest.approx(load.served[0].ready_s, abs=0.01)
    assert chunks_of(cluster) == 3 * 2 * 3, "3 blocks of 2 chunks on 3 replicas"
    row = request_row(load.served[1], "all", ServiceLevel.STORAGE, "c0")
    assert (row["blocks"], row["hit_tokens"], row["input_tokens"]) == (3, 1024, 1500)


def test_a_block_is_found_once_it_is_computed_and_written(tmp_path: Path) -> None:
    """The second request comes while the first computes; a cache whose writes take no time would have had all."""
    trace = trace_of(tmp_path, (0, 1024, [1, 2]), (1, 1024, [1, 2]), (900_000, 1024, [1, 2]))
    load, cluster, _ = played(kv_of(requests={"trace": trace}), 2000)
    assert [(one.hit_blocks, one.in_theory, one.written_bytes) for one in load.served] == [
        (0, 0, 12_200),
        (0, 2, 0),
        (2, 2, 0),
    ]
    assert chunks_of(cluster) == 2 * 2 * 3, "the second request writes nothing anew"


def test_all_of_an_excerpt_finds_what_lru_finds_where_writes_take_no_time() -> None:
    """20 requests of Mooncake's, which compute in no time."""
    keys = {"trace": "conversation_first300", "first": 120, "count": 20}
    kv = kv_of(requests=keys, serving={"flops_per_s": 1e18, "scale": 589_000})
    load, _, _ = played(kv, 20)
    window = window_of(kv.requests, kv.blocks, 1)
    cache = PrefixCache()
    for block, used_s in window.present:
        cache.hold(block, used_s)
    expected = totals(cache.serve(one.request) for one in window.arrivals)
    assert sum(one.hit_blocks for one in load.served) == expected.hit_blocks == 62
    assert sum(one.in_theory for one in load.served) == expected.hit_blocks


def test_with_blocks_in_their_order_computing_waits_for_the_last(tmp_path: Path) -> None:
    assert computed_at(10.0, [11.0, 11.5, 12.0, 12.5], 4.0) == 15.0, "a layer is computed as soon as it is read"
    assert computed_at(10.0, [11.0, 15.0], 2.0) == 16.0
    assert computed_at(10.0, [12.5], 4.0) == 16.5, "all of them before"
    assert computed_at(10.0, [], 4.0) == 14.0
    trace = trace_of(tmp_path, (0, 1024, [1, 2]), (1_000_000, 1500, [1, 2, 3]))
    load, _, _ = played(kv_of(requests={"trace": trace}, io={"order": "blocks", "ahead": 1}), 2000)
    assert [one.read_bytes for one in load.served] == [0, 12_200]


@pytest.mark.parametrize(("order", "parts"), [("layers", 61), ("blocks", 2)])
def test_reads_hide_behind_computing_layer_by_layer_only(tmp_path: Path, order: str, parts: int) -> None:
    """Each part takes 0.1 s to read; a layer of what is left, 63 ms to compute."""
    trace = trace_of(tmp_path, (0, 1024, [1, 2]), (100_000, 1500, [1, 2, 3]))
    kv = kv_of(requests={"trace": trace}, io={"order": order, "ahead": 1})

    async def scene() -> KvLoad:
        load = await load_on(Cluster(kv.storage), kv)
        read = load.client.read_chunks

        async def slowly(*words: Any) -> Any:
            await asyncio.sleep(0.1)
            return await read(*words)

        load.client.read_chunks = slowly  # type: ignore[method-assign, assignment]
        load.begin()
        await load.finish()
        await load.end()
        return load

    served = run(scene()).served[1]
    hidden_s = served.compute_s * (60 / 61 if order == "layers" else 0)
    assert served.ready_s - served.started_s == pytest.approx(0.1 * parts + served.compute_s - hidden_s, abs=0.01)


def test_what_is_too_old_is_out_of_the_index_at_once_and_its_chunks_go_later(tmp_path: Path) -> None:
    trace = trace_of(tmp_path, (0, 512, [1]))
    blocks = {"cold": 10, "ttl": 100.0, "collect_after": 300.0, "collect_every": 1.0, "collect_files": 4}
    kv = kv_of(requests={"trace": trace, "compression": 2}, blocks=blocks)
    load, cluster, began_s = played(kv, 320)
    assert load.files.removed == 11, "the 10 that were there, and what the request wrote, 50 s after it"
    removals = [one for one in load.client.operations if one.kind == "remove"]
    due_s = [one.started_s - began_s for one in removals]
    assert min(due_s) == pytest.approx(300, abs=1.5)
    assert len(removals) == 2 * sum(5 * place + 300 <= 319 for place in range(10))
    assert chunks_of(cluster) == 3 * (2 * 11 - len(removals))
    assert (load.files.garbage, len(load.files)) == (11 - len(removals) // 2, 0)


def test_a_cache_that_is_full_removes_the_least_recently_used(tmp_path: Path) -> None:
    trace = trace_of(tmp_path, *((1e6 * place, 512, [place]) for place in range(6)))
    blocks = {"capacity": 2, "collect_after": 0.0}
    load, cluster, _ = played(kv_of(requests={"trace": trace}, blocks=blocks), 7000)
    assert (load.files.removed, len(load.files), load.files.garbage) == (4, 2, 0)
    assert chunks_of(cluster) == 2 * 2 * 3


def test_a_load_is_finished_once_all_requests_have_written(tmp_path: Path) -> None:
    kv = kv_of(requests={"trace": trace_of(tmp_path, (0, 1024, [1, 2]), (5000, 512, [3]))})

    async def scene() -> tuple[KvLoad, float]:
        load = await load_on(Cluster(kv.storage), kv)
        load.begin()
        await load.finish()
        ended_s = time.monotonic()
        await load.end()
        return load, ended_s

    load, ended_s = run(scene())
    assert len(load.served) == 2
    assert ended_s == pytest.approx(max(one.ended_s for one in load.served), abs=0.01)


def test_one_request_at_a_time_lets_others_wait(tmp_path: Path) -> None:
    trace = trace_of(tmp_path, (0, 1024, [1, 2]), (0, 1024, [3, 4]))
    one, other = played(kv_of(requests={"trace": trace, "at_once": 1}), 1000)[0].served
    assert other.due_s == one.due_s
    assert other.started_s == pytest.approx(one.ready_s)


@pytest.mark.parametrize("at_once", [1, 4])
def test_the_time_to_the_first_token_counts_from_when_a_request_came(tmp_path: Path, at_once: int) -> None:
    """40 requests come within 4 s to a server that is busy with them for minutes: each waits for all before it."""
    trace = trace_of(tmp_path, *((number * 100, 1024, [2 * number, 2 * number + 1]) for number in range(40)))
    load, _, began_s = played(kv_of(requests={"trace": trace, "at_once": at_once}), 1000)
    assert [one.due_s - began_s for one in load.served] == pytest.approx([number / 10 for number in range(40)])
    rows = pd.DataFrame([request_row(one, "p", ServiceLevel.STORAGE, "c0") for one in load.served])
    found = of_requests(rows, [(began_s, began_s + 1000)])
    alone_s = load.served[0].compute_all_s
    turns = [number // at_once + 1 for number in range(40)]
    assert found["answered"] == 40
    waited_s = [turn * alone_s - number / 10 for number, turn in enumerate(turns)]
    assert found["first_token.p99_s"] == pytest.approx(max(waited_s), rel=0.03)
    assert found["saved_s"] == pytest.approx(alone_s - sum(waited_s) / 40, rel=0.03)


def test_requests_that_wait_when_the_load_ends_have_waited_at_least_that_long(tmp_path: Path) -> None:
    trace = trace_of(tmp_path, *((number * 100, 1024, [2 * number, 2 * number + 1]) for number in range(40)))
    load, _, began_s = played(kv_of(requests={"trace": trace, "at_once": 1}), 30)
    rows = pd.DataFrame([request_row(one, "p", ServiceLevel.STORAGE, "c0") for one in load.served])
    found = of_requests(rows, [(began_s, began_s + 30)])
    assert (found["requests"], found["answered"]) == (40, 3)
    assert found["first_token.p50_at_least_s"] == found["first_token.p99_at_least_s"] > 26
    assert found["first_token_without.p50_s"] == pytest.approx(load.served[0].compute_all_s)


@pytest.mark.parametrize("at_once", [1, 2, 3])
def test_phases_have_as_many_slots_each(tmp_path: Path, at_once: int) -> None:
    """Each ends while requests wait for a slot."""
    trace = trace_of(tmp_path, *((number, 1024, [2 * number, 2 * number + 1]) for number in range(8)))
    kv = kv_of(requests={"trace": trace, "at_once": at_once})

    async def scene() -> list[tuple[int, int]]:
        load = await load_on(Cluster(kv.storage), kv)
        found = []
        for _ in range(3):
            load.begin()
            await asyncio.sleep(2)
            await asyncio.wait_for(load.end(), 1000)
            found.append((len(load.served), sum(not math.isnan(one.started_s) for one in load.served)))
        return found

    assert run(scene()) == [(8, at_once)] * 3


def test_answers_fill_blocks_that_nobody_asks_for(tmp_path: Path) -> None:
    trace = trace_of(tmp_path, (0, 1000, [1, 2]))
    kv = kv_of(requests={"trace": trace}, serving={"outputs": True})
    assert (1000 + 600) // BLOCK_TOKENS - 2 == 1
    load, cluster, _ = played(kv, 1000)
    assert load.served[0].written_bytes == 3 * kv.serving.block_bytes
    assert (chunks_of(cluster), len(load.files)) == (3 * 2 * 3, 2)


def test_what_is_under_way_at_the_end_is_left_and_said(tmp_path: Path) -> None:
    trace = trace_of(tmp_path, (0, 1024, [1, 2]), (20_000, 512, [1]))
    load, cluster, _ = played(kv_of(requests={"trace": trace}), 1)
    (served,) = load.served
    assert (served.ready_s == served.ready_s, served.ended_s == served.ended_s) == (False, False)
    assert chunks_of(cluster) == 0
    assert len(load.files) == 0, "its blocks were not written, so nobody finds them"


def test_where_reads_fail_all_is_computed(tmp_path: Path) -> None:
    trace = trace_of(tmp_path, (0, 1024, [1, 2]), (1_000_000, 1024, [1, 2]))
    kv = kv_of(requests={"trace": trace})

    async def scene() -> KvLoad:
        load = await load_on(Cluster(kv.storage), kv)

        async def fails(*_: object) -> None:
            await asyncio.sleep(60)
            raise GaveUp("nobody answers")

        load.client.read_chunks = fails  # type: ignore[assignment]
        load.begin()
        await asyncio.sleep(2000)
        await load.end()
        return load

    served = run(scene()).served[1]
    assert (served.hit_blocks, served.read_bytes) == (2, 0)
    assert served.ready_s - served.started_s == pytest.approx(60 + served.compute_all_s)


def test_a_block_that_is_removed_while_it_is_written_is_written_no_further(tmp_path: Path) -> None:
    """Of the first block, two chunks, one is on its way when the second block takes its place."""
    trace = trace_of(tmp_path, (0, 512, [1]), (500, 512, [2]))
    kv = kv_of(
        requests={"trace": trace},
        serving={"flops_per_s": 1e18},
        io={"write_depth": 1},
        blocks={"capacity": 1, "collect_after": 1000.0},
    )

    async def scene() -> tuple[KvLoad, Cluster]:
        cluster = Cluster(kv.storage)
        load = await load_on(cluster, kv)
        write = load.client.write_chunk

        async def slowly(*words: Any) -> Any:
            await asyncio.sleep(1)
            return await write(*words)

        load.client.write_chunk = slowly  # type: ignore[method-assign, assignment]
        load.begin()
        await asyncio.sleep(10)
        await load.end()
        return load, cluster

    load, cluster = run(scene())
    assert [one.written_bytes for one in load.served] == [0, kv.serving.block_bytes]
    assert chunks_of(cluster) == (1 + 2) * 3
    assert (load.files.garbage, len(load.files)) == (1, 1)
