"""What lanes carry is payload times hops, and headers, by cause: nothing is without one. In time that jumps, where the
network counts for itself."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from traffic.storage.wire.causes import Cause, cause_of, payload_bytes, sent_bytes
from traffic.storage.wire.messages import HEADER, IO_BYTES, CallKind

from .test_true_timers import config_of
from .true_timers import CHUNK_BYTES, NODES, Cluster, run

CHUNKS = 12
NUMBER_BYTES, RESULT_BYTES = 8, 32


def test_every_kind_of_call_has_a_cause() -> None:
    assert [kind for kind in CallKind if cause_of(kind) is Cause.UNNAMED] == []


async def writes_reads_and_a_return(level: str | None) -> tuple[Counter[str], dict[str, int]]:
    """Write and read, and let a node come back with empty disks, and once more with them."""
    cluster = Cluster(config_of(manager={"resync": {"level": level}}))
    await cluster.start()
    for index in range(CHUNKS):
        await cluster.write(index)
    for index in range(CHUNKS):
        assert await cluster.read(index) is not None
    before = cluster.counts
    for with_empty_disks in (True, False):
        cluster.restart(NODES[1], with_empty_disks)
        await cluster.until_left(NODES[1])
        await cluster.until_whole()
        if with_empty_disks:
            first = cluster.counts
            assert first["resync_chunks"] - before["resync_chunks"] == CHUNKS
        else:
            assert cluster.counts["resync_bytes"] == first["resync_bytes"], "a second resync sends nothing"
            assert cluster.counts["resyncs"] == 2 * first["resyncs"] == 2 * len(cluster.routing.chains)
    await asyncio.sleep(0.01)
    return cluster.counts, cluster.network.sent_bytes()


@pytest.mark.parametrize("level", [None, "other"])
def test_what_each_lane_carries_is_named_to_the_byte(level: str | None) -> None:
    """The network counts what connections carry; programs count by cause what they send."""
    counts, on_lanes = run(writes_reads_and_a_return(level))
    sent = sent_bytes(counts)
    print({cause.value: size for cause, size in sent.items()}, on_lanes)
    assert Cause.UNNAMED not in sent
    assert sum(sent.values()) == sum(on_lanes.values())
    greeting = sent.pop(Cause.GREETING)
    assert 0 <= on_lanes["control"] - sent.pop(Cause.CONTROL) < greeting
    resync_lane = on_lanes["other"] if level else on_lanes["storage"] - sum(sent.values()) + sent[Cause.RESYNC]
    assert 0 <= resync_lane - sent[Cause.RESYNC] < greeting


def test_payload_is_what_users_write_times_hops() -> None:
    counts, _ = run(writes_reads_and_a_return(None))
    written = CHUNKS * CHUNK_BYTES
    assert payload_bytes(counts) == {
        Cause.WRITE: written,
        Cause.FORWARD: 2 * written,
        Cause.READ: written,
        Cause.RESYNC: written + state_bytes(counts),
    }


def state_bytes(counts: Counter[str]) -> int:
    """What a target that has come back says of its chunks: nothing with empty disks, then a record of each."""
    return payload_bytes(counts)[Cause.RESYNC] - int(counts["resync_bytes"])


def test_headers_of_a_write_are_those_of_its_messages() -> None:
    """Per hop: the call with its record, the request for the data, the data's header, the answer with its result."""

    async def scene() -> Counter[str]:
        cluster = Cluster(config_of())
        await cluster.start()
        await cluster.write(0)
        return cluster.counts

    counts = run(scene())
    of_hop = 4 * HEADER.size + IO_BYTES + NUMBER_BYTES + RESULT_BYTES
    sent, payload = sent_bytes(counts), payload_bytes(counts)
    assert sent[Cause.WRITE] - payload[Cause.WRITE] == of_hop
    assert sent[Cause.FORWARD] - payload[Cause.FORWARD] == 2 * of_hop
