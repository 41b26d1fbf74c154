"""HFReduce's and the ring's workers over socket pairs in one process: any ranks, any size, any chunk."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fabric.errors import TrafficError
from traffic.collective import Schedule, Worker
from traffic.dataset import Dataset, Floats, pieces, verify
from traffic.hfreduce import TreeAllreduce
from traffic.links import Edge, Link
from traffic.nccl import RingAllreduce
from traffic.trees import double_binary_tree, zone_aware_double_tree

TIMEOUT_S = 10.0


def connected(schedule: Schedule, ranks: int) -> list[dict[Edge, Link]]:
    links: list[dict[Edge, Link]] = [{} for _ in range(ranks)]
    for edge in schedule.edges:
        pair = socket.socketpair()
        for rank, sock in zip((edge.dialer, edge.listener), pair, strict=True):
            links[rank][edge] = Link(sock, edge.channel, f"rank {rank}", TIMEOUT_S)
    return links


def allreduce(schedule: Schedule, inputs: Sequence[Sequence[Floats]], steps: int = 1) -> list[Floats]:
    """Return every rank's result after some steps, each begun with a result of NaN."""
    links = connected(schedule, len(inputs))
    workers = [schedule.worker(rank, links[rank], inputs[rank], TIMEOUT_S) for rank in range(len(inputs))]
    try:
        with ThreadPoolExecutor(5 * len(inputs)) as threads:
            for step in range(steps):
                _step(workers, step, threads)
    finally:
        for link in (link for of_rank in links for link in of_rank.values()):
            link.close()
    return [worker.result for worker in workers]


def _step(workers: Sequence[Worker], step: int, threads: ThreadPoolExecutor) -> None:
    for worker in workers:
        worker.result.fill(np.nan)
    tasks: list[Callable[[], None]] = [task for worker in workers for task in worker.tasks(step)]
    for future in [threads.submit(task) for task in tasks]:
        future.result(TIMEOUT_S)


def random_inputs(ranks: int, buffers: int, elements: int) -> list[list[Floats]]:
    random = np.random.default_rng(ranks * elements)
    return [[random.integers(0, 99, elements).astype(np.float32) for _ in range(buffers)] for _ in range(ranks)]


def assert_all_summed(schedule: Schedule, inputs: Sequence[Sequence[Floats]], steps: int = 1) -> None:
    expected = np.sum([buffer for of_rank in inputs for buffer in of_rank], axis=0)
    for result in allreduce(schedule, inputs, steps):
        assert np.array_equal(result, expected)


SIZES = {"ranks": st.integers(2, 9), "elements": st.integers(1, 3000), "chunk": st.integers(1, 4000)}


@settings(max_examples=30, deadline=None)
@given(**SIZES, gpus=st.integers(1, 3), zones=st.integers(1, 3))
def test_hfreduce_sums_any_size_over_any_ranks(ranks: int, elements: int, chunk: int, gpus: int, zones: int) -> None:
    trees = zone_aware_double_tree([rank % zones for rank in range(ranks)])
    chunk = max(chunk, elements // 50)  # Thousands of chunks take long and show nothing new.
    assert_all_summed(TreeAllreduce(trees, elements, chunk), random_inputs(ranks, gpus, elements), steps=2)


@settings(max_examples=30, deadline=None)
@given(**SIZES)
def test_ring_sums_any_size_over_any_ranks(ranks: int, elements: int, chunk: int) -> None:
    chunk = max(chunk, elements // 50)
    assert_all_summed(RingAllreduce(ranks, elements, chunk), random_inputs(ranks, 1, elements), steps=2)


@pytest.mark.parametrize("elements", [1, 2, 3, 1000, 1001])
def test_trees_carry_half_of_the_data_each(elements: int) -> None:
    schedule = TreeAllreduce(double_binary_tree(4), elements, 64)
    carried = [sum(chunk.stop - chunk.start for chunk in schedule.chunks(channel)) for channel in range(2)]
    assert sum(carried) == elements
    assert 0 <= carried[0] - carried[1] <= 1


@pytest.mark.parametrize("elements", [3, 8, 1001])
def test_ring_rank_sends_each_segment_twice_but_two_of_them_once(elements: int) -> None:
    """That is 2(n-1)/n of the data: its own and the next rank's segment are sent in one half only."""
    schedule = RingAllreduce(8, elements, 10)
    sent = [piece for number in range(schedule.rounds) for piece in schedule.sent_in(number, rank=5)]
    counts = np.zeros(elements, int)
    for piece in sent:
        counts[piece] += 1
    once = [piece for segment in (6, 7) for piece in schedule.slices(segment)]
    assert sum(counts == 1) == sum(piece.stop - piece.start for piece in once)
    assert set(counts) <= {1, 2}


def test_node_sum_is_no_faster_than_the_memory_allows() -> None:
    capped = TreeAllreduce(double_binary_tree(2), 10_000, 500, node_sum_bytes_per_s=400_000)
    started = time.monotonic()
    assert_all_summed(capped, random_inputs(2, 2, 10_000))
    assert 0.1 <= time.monotonic() - started < 0.5


def test_dataset_expects_the_sum_of_its_buffers(tmp_path: Path) -> None:
    dataset = Dataset.write(tmp_path, ranks=5, buffers_per_rank=3, elements=1001, seed=1)
    buffers = [buffer for rank in range(5) for buffer in dataset.inputs(rank)]
    assert len(buffers) == 15
    assert np.array_equal(dataset.expected(), np.sum(buffers, axis=0))
    assert len({buffer.tobytes() for buffer in buffers}) == 15


def test_dataset_whose_sums_would_not_be_exact_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TrafficError, match="20000 buffers: float32 sums are exact up to 16400"):
        Dataset.write(tmp_path, ranks=2500, buffers_per_rank=8, elements=1, seed=1)


def test_wrong_element_is_named_with_its_rank() -> None:
    expected = np.arange(6, dtype=np.float32)
    result = expected.copy()
    verify(result, expected, "rank 3")
    result[4:] = np.nan, 7
    with pytest.raises(TrafficError, match=r"rank 3: element 4 of 6 is nan, expected 4 \(2 wrong elements\)"):
        verify(result, expected, "rank 3")


def test_pieces_cover_a_stretch_without_gaps() -> None:
    assert list(pieces(3, 10, 4)) == [slice(3, 7), slice(7, 10)]
    assert list(pieces(3, 3, 4)) == []
