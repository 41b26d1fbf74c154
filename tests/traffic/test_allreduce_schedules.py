"""HFReduce's and the ring's workers over socket pairs in one process: any ranks, any size, any chunk."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fabric.errors import TrafficError
from traffic.dataset import Buffer, Dataset, Floats, SumCheck, pieces
from traffic.hfreduce import TreeAllreduce
from traffic.links import Edge, Link
from traffic.nccl import RingAllreduce
from traffic.rank import Schedule, Seat, Worker
from traffic.trees import double_binary_tree, zone_aware_double_tree

TIMEOUT_S = 10.0


def connected(schedule: Schedule, ranks: int) -> list[dict[Edge, Link]]:
    links: list[dict[Edge, Link]] = [{} for _ in range(ranks)]
    for edge in schedule.edges:
        pair = socket.socketpair()
        for rank, sock in zip((edge.dialer, edge.listener), pair, strict=True):
            links[rank][edge] = Link(sock, edge.channel, f"rank {rank}", TIMEOUT_S)
    return links


def allreduce(schedule: Schedule, inputs: Sequence[Sequence[Buffer]], steps: int = 1) -> list[Floats]:
    """Return every rank's result after some steps, each begun with a result of NaN."""
    ranks = range(len(inputs))
    links = connected(schedule, len(inputs))
    results: list[Floats] = [np.empty(schedule.elements, np.float32) for _ in ranks]
    workers = [
        schedule.worker(Seat(rank, links[rank], inputs[rank], TIMEOUT_S), partial(_copy, results[rank]))
        for rank in ranks
    ]
    try:
        with ThreadPoolExecutor(5 * len(inputs)) as threads:
            for step in range(steps):
                for result in results:
                    result.fill(np.nan)
                _step(workers, step, threads)
    finally:
        for link in (link for of_rank in links for link in of_rank.values()):
            link.close()
    return results


def _copy(result: Floats, piece: slice, found: Floats) -> None:
    assert np.isnan(result[piece]).all(), "a piece came twice"
    result[piece] = found


def _step(workers: Sequence[Worker], step: int, threads: ThreadPoolExecutor) -> None:
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


@pytest.mark.parametrize("elements", [1, 14, 1001])
def test_dataset_expects_the_sum_of_its_buffers(tmp_path: Path, elements: int) -> None:
    dataset = Dataset.write(tmp_path, ranks=5, buffers_per_rank=3, elements=elements, seed=1)
    whole = slice(0, elements)
    buffers = [buffer[whole] for rank in range(5) for buffer in dataset.inputs(rank)]
    assert len(buffers) == 15
    assert np.array_equal(dataset.expected()[whole], np.sum(buffers, axis=0))
    if elements > 1:
        assert len({buffer.tobytes() for buffer in buffers}) == 15


def test_dataset_larger_than_its_memory_has_the_right_sum_everywhere_and_no_chunk_twice(tmp_path: Path) -> None:
    elements, chunk = 3_000_000, 2**14
    dataset = Dataset.write(tmp_path, ranks=2, buffers_per_rank=2, elements=elements, seed=1)
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) < elements
    buffers = [buffer for rank in range(2) for buffer in dataset.inputs(rank)]
    seen: list[set[bytes]] = [set() for _ in buffers]
    for piece in pieces(0, elements, chunk):
        parts = [buffer[piece] for buffer in buffers]
        assert np.array_equal(dataset.expected()[piece], np.sum(parts, axis=0))
        assert len({part.tobytes() for part in parts}) == len(buffers)
        for chunks, part in zip(seen, parts, strict=True):
            chunks.add(part.tobytes())
    assert {len(chunks) for chunks in seen} == {-(-elements // chunk)}


def test_an_allreduce_larger_than_its_datasets_memory_is_right(tmp_path: Path) -> None:
    elements, ranks = 400_000, 3
    dataset = Dataset.write(tmp_path, ranks, 1, elements, seed=1)
    inputs = [dataset.inputs(rank) for rank in range(ranks)]
    expected = dataset.expected()[slice(0, elements)]
    for schedule in (TreeAllreduce(double_binary_tree(ranks), elements, 30_000), RingAllreduce(ranks, elements, 7000)):
        for result in allreduce(schedule, inputs):
            assert np.array_equal(result, expected)


@pytest.mark.parametrize("kind", ["tree", "ring"])
def test_a_shortened_collective_sums_the_first_elements_over_the_same_connections(kind: str) -> None:
    whole: Schedule = TreeAllreduce(double_binary_tree(4), 1000, 64)
    if kind == "ring":
        whole = RingAllreduce(4, 1000, 64)
    short = whole.shortened(130)
    assert (short.elements, short.edges) == (130, whole.edges)
    assert whole.shortened(5000) == whole
    inputs = random_inputs(4, 1, 1000)
    expected = np.sum([buffer[:130] for of_rank in inputs for buffer in of_rank], axis=0)
    for result in allreduce(short, inputs):
        assert np.array_equal(result, expected)


def test_both_trees_get_the_nodes_sum_in_turn() -> None:
    """Elements of the first: 20, 20, 11; of the second: 20, 20, 10."""
    schedule = TreeAllreduce(double_binary_tree(2), 101, 20)
    assert schedule.summed_bytes(0) == [80, 240, 364]
    assert schedule.summed_bytes(1) == [160, 320, 404]


def test_dataset_whose_sums_would_not_be_exact_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TrafficError, match="20000 buffers: float32 sums are exact up to 16400"):
        Dataset.write(tmp_path, ranks=2500, buffers_per_rank=8, elements=1, seed=1)


def checked_pieces(*found: tuple[int, Floats]) -> SumCheck:
    """Return a check of a result of 0 to 5 that was told of some pieces."""
    check = SumCheck(np.arange(6, dtype=np.float32), 6)
    check.begin("rank 3")
    for start, piece in found:
        check.piece(slice(start, start + len(piece)), piece)
    return check


def floats(*values: float) -> Floats:
    return np.array(values, np.float32)


def test_wrong_element_is_named_with_its_rank() -> None:
    checked_pieces((2, floats(2, 3, 4, 5)), (0, floats(0, 1))).end()
    with pytest.raises(
        TrafficError, match=r"rank 3: element 4 of 6 is nan, expected 4 \(2 wrong elements in its chunk"
    ):
        checked_pieces((2, floats(2, 3, np.nan, 7)))


@pytest.mark.parametrize(
    ("found", "element"),
    [
        ([], 0),
        ([(0, floats(0, 1, 2))], 3),
        ([(3, floats(3, 4, 5))], 0),
        ([(0, floats(0, 1, 2)), (3, floats(3, 4, 5)), (3, floats(3, 4, 5))], 6),
        ([(0, floats(0, 1, 2)), (2, floats(2, 3, 4, 5))], 3),
    ],
)
def test_a_result_that_did_not_come_whole_is_noticed(found: list[tuple[int, Floats]], element: int) -> None:
    with pytest.raises(TrafficError, match=f"rank 3: the result from element {element} of 6 on did not come, or"):
        checked_pieces(*found).end()


def test_pieces_cover_a_stretch_without_gaps() -> None:
    assert list(pieces(3, 10, 4)) == [slice(3, 7), slice(7, 10)]
    assert list(pieces(3, 3, 4)) == []
