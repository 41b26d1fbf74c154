"""HFReduce's and the ring's workers over socket pairs in one process: any ranks, any size, any chunk."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fabric.errors import TrafficError
from tests.waiting import until
from traffic.collectives.chunk_connection import ChunkConnection, Edge
from traffic.collectives.collective import Expected
from traffic.collectives.dataset import Buffer, Dataset, DatasetShape, adder_of, pieces, series_of
from traffic.collectives.elements import Dtype, Elements
from traffic.collectives.operations.allreduce import ring_primitives
from traffic.collectives.result_check import ResultCheck
from traffic.collectives.ring import Ring, Rings
from traffic.collectives.schedule import RankContext, Schedule, Worker
from traffic.collectives.tree_allreduce import TreeAllreduce, _HostMemory
from traffic.collectives.trees import RankTree, double_binary_tree, zone_aware_double_tree
from traffic.program_group import PeerGoneError
from traffic.transport.tcp import TcpConnection

TIMEOUT_S = 10.0


def connected(schedule: Schedule, ranks: int, buffers_bytes: int | None = None) -> list[dict[Edge, ChunkConnection]]:
    """Return each rank's connections, which hold as little as the kernel allows if ``buffers_bytes`` is small."""
    links: list[dict[Edge, ChunkConnection]] = [{} for _ in range(ranks)]
    for edge in schedule.edges:
        pair = socket.socketpair()
        if buffers_bytes is not None:
            for sock in pair:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, buffers_bytes)
        for rank, sock in zip((edge.dialer, edge.listener), pair, strict=True):
            links[rank][edge] = ChunkConnection(TcpConnection(sock), edge.channel, f"rank {rank}", TIMEOUT_S)
    return links


def allreduce(
    schedule: Schedule, inputs: Sequence[Sequence[Buffer]], steps: int = 1, buffers_bytes: int | None = None
) -> list[Elements]:
    """Return every rank's result after some steps, each begun with a result of NaN."""
    ranks = range(len(inputs))
    links = connected(schedule, len(inputs), buffers_bytes)
    results: list[Elements] = [np.empty(schedule.elements, schedule.dtype.numpy) for _ in ranks]
    workers = [
        schedule.worker(RankContext(rank, links[rank], inputs[rank], TIMEOUT_S), [partial(_copy, results[rank])])
        for rank in ranks
    ]
    try:
        with ThreadPoolExecutor(sum(len(worker.tasks(0)) for worker in workers)) as threads:
            for step in range(steps):
                for result in results:
                    result.fill(np.nan)
                _step(workers, step, threads)
    finally:
        for link in (link for of_rank in links for link in of_rank.values()):
            link.close()
    return results


def _copy(result: Elements, piece: slice, found: Elements) -> None:
    assert np.isnan(result[piece]).all(), "a piece came twice"
    result[piece] = found


def _step(workers: Sequence[Worker], step: int, threads: ThreadPoolExecutor) -> None:
    tasks: list[Callable[[], None]] = [task for worker in workers for task in worker.tasks(step)]
    for future in [threads.submit(task) for task in tasks]:
        future.result(TIMEOUT_S)


def rings_over(ranks: int, elements: int, slice_elements: int, slots: int = 8, **others: Any) -> Rings:
    """Return an allreduce's rings."""
    return Rings(ring_primitives, ranks, elements, slice_elements, slots, **others)


def random_inputs(ranks: int, buffers: int, elements: int) -> list[list[Elements]]:
    random = np.random.default_rng(ranks * elements)
    return [[random.integers(0, 99, elements).astype(np.float32) for _ in range(buffers)] for _ in range(ranks)]


def assert_all_summed(
    schedule: Schedule, inputs: Sequence[Sequence[Elements]], steps: int = 1, buffers_bytes: int | None = None
) -> None:
    expected = np.sum([buffer for of_rank in inputs for buffer in of_rank], axis=0)
    for result in allreduce(schedule, inputs, steps, buffers_bytes):
        assert np.array_equal(result, expected)


SIZES = {"ranks": st.integers(2, 9), "elements": st.integers(1, 3000), "chunk": st.integers(1, 4000)}


@settings(max_examples=30)
@given(**SIZES, gpus=st.integers(1, 3), zones=st.integers(1, 3))
def test_hfreduce_sums_any_size_over_any_ranks(ranks: int, elements: int, chunk: int, gpus: int, zones: int) -> None:
    trees = zone_aware_double_tree([rank % zones for rank in range(ranks)])
    chunk = max(chunk, elements // 50)  # Thousands of chunks take long and show nothing new.
    assert_all_summed(TreeAllreduce(trees, elements, chunk), random_inputs(ranks, gpus, elements), steps=2)


@settings(max_examples=30)
@given(**SIZES, slots=st.integers(2, 9))
def test_ring_sums_any_size_over_any_ranks(ranks: int, elements: int, chunk: int, slots: int) -> None:
    chunk = max(chunk, elements // 50)
    assert_all_summed(rings_over(ranks, elements, chunk, slots), random_inputs(ranks, 1, elements), steps=2)


@settings(max_examples=30)
@given(
    ranks=st.integers(2, 5),
    elements=SIZES["elements"],
    chunk=SIZES["chunk"],
    rings=st.integers(2, 3),
    pairs=st.integers(1, 3),
)
def test_rings_sum_any_size_over_any_ranks(ranks: int, elements: int, chunk: int, rings: int, pairs: int) -> None:
    several = rings_over(ranks, elements, max(chunk, elements // 50), 4, rings=rings, queue_pairs=pairs)
    assert_all_summed(several, random_inputs(ranks, 1, elements), steps=2)


@pytest.mark.parametrize("pairs", [2, 3, 16])
def test_the_queue_pairs_of_a_ring_share_its_slices_and_none_waits_for_ever(pairs: int) -> None:
    ring = rings_over(3, 60_000, 500, 4, queue_pairs=pairs)
    assert [edge.channel for edge in ring.parts[0].edges_from(1)] == list(range(pairs))
    assert_all_summed(ring, random_inputs(3, 1, 60_000), buffers_bytes=1)


def test_rings_have_connections_of_their_own_by_remainders_of_their_channels() -> None:
    rings = rings_over(4, 1001, 100, rings=3, queue_pairs=2)
    assert [[edge.channel for edge in ring.edges_from(0)] for ring in rings.parts] == [[0, 3], [1, 4], [2, 5]]
    assert len(set(rings.edges)) == 4 * 3 * 2
    assert [(ring.data.start, ring.data.stop) for ring in rings.parts] == [(0, 333), (333, 667), (667, 1001)]


@pytest.mark.parametrize("slots", [2, 3, 8])
@pytest.mark.parametrize("ranks", [2, 3, 8])
def test_no_rank_of_a_ring_waits_for_ever_however_little_is_held(ranks: int, slots: int) -> None:
    """A slice is more than a connection holds, and a whole segment more than all slots."""
    elements, slice_elements = ranks * 20_000, 2000
    ring = rings_over(ranks, elements, slice_elements, slots)
    assert_all_summed(ring, random_inputs(ranks, 1, elements), buffers_bytes=1)


@pytest.mark.parametrize("slots", [2, 8])
def test_trees_need_no_more_than_their_slots(slots: int) -> None:
    trees = TreeAllreduce(double_binary_tree(5), 50_000, 2000, slots=slots)
    assert_all_summed(trees, random_inputs(5, 2, 50_000), buffers_bytes=1)


class HeldLink:
    """A connection on which nothing can be sent until it is let go, and as much as one likes received."""

    def __init__(self) -> None:
        self.released = threading.Event()
        self.received = 0

    def send(self, *_: object) -> None:
        assert self.released.wait(TIMEOUT_S)

    def receive(self, *_: object) -> None:
        self.received += 1


def taken_while_held_back(schedule: Schedule, rank: int, least: int) -> int:
    """Return how many chunks, at ``least`` so many, a rank takes in while it can send nothing. Of trees, only the first
    is carried out."""
    held, data = HeldLink(), np.zeros(schedule.elements, np.float32)
    links = {edge: cast(ChunkConnection, held) for edge in schedule.edges}
    worker = schedule.worker(RankContext(rank, links, [data], TIMEOUT_S), [_drop])
    with ThreadPoolExecutor(2) as threads:
        running = [threads.submit(task) for task in worker.tasks(0)[:2]]
        try:
            until(lambda: held.received >= least, f"{least} chunks that are taken in")
            time.sleep(0.1)  # More could come meanwhile.
            seen = held.received
        finally:
            worker.abort()
            held.released.set()
        assert all(isinstance(task.exception(TIMEOUT_S), PeerGoneError) for task in running)
    return seen


def _drop(piece: slice, found: Elements) -> None:
    """Take no notice of a result."""


@pytest.mark.parametrize("slots", [2, 8])
def test_a_root_whose_child_takes_nothing_takes_no_more_than_its_slots(slots: int) -> None:
    schedule = TreeAllreduce(double_binary_tree(2), 100_000, 100, slots=slots)
    assert schedule.trees[0].root == 0
    assert taken_while_held_back(schedule, rank=0, least=slots) == slots


@pytest.mark.parametrize("slots", [2, 8])
def test_a_rank_of_a_ring_that_cannot_send_takes_no_more_than_its_slots(slots: int) -> None:
    schedule = rings_over(4, 100_000, 100, slots)
    assert taken_while_held_back(schedule, rank=1, least=slots) == slots


def test_chunks_overlap_on_their_way() -> None:
    """Over five links in a row, each of which takes 2 ms a chunk, and two trees: one after the other, two are on their
    way at once."""
    hop_s, chunks, ranks = 0.002, 20, 6
    chain = RankTree((None, *range(ranks - 1)))
    schedule = TreeAllreduce((chain, chain), 2 * chunks * 100, 100)
    send, lock, on_their_way, most = ChunkConnection.send, threading.Lock(), 0, 0

    def send_slowly(link: ChunkConnection, step: int, chunk: int, payload: Elements) -> None:
        nonlocal on_their_way, most
        with lock:
            on_their_way += 1
            most = max(most, on_their_way)
        time.sleep(hop_s)
        with lock:
            on_their_way -= 1
        send(link, step, chunk, payload)

    started = time.monotonic()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(ChunkConnection, "send", send_slowly)
        assert_all_summed(schedule, random_inputs(ranks, 1, schedule.elements))
    took_s = time.monotonic() - started
    print(f"{took_s:.3f} s, at most {most} on their way")
    assert took_s >= (chunks + 2 * (ranks - 1) - 1) * hop_s
    assert most >= 5


@pytest.mark.parametrize("elements", [1, 2, 3, 1000, 1001])
def test_trees_carry_half_of_the_data_each(elements: int) -> None:
    schedule = TreeAllreduce(double_binary_tree(4), elements, 64)
    carried = [sum(chunk.stop - chunk.start for chunk in schedule.chunks(channel)) for channel in range(2)]
    assert sum(carried) == elements
    assert 0 <= carried[0] - carried[1] <= 1


@pytest.mark.parametrize("elements", [3, 8, 1001])
def test_ring_rank_sends_each_segment_twice_but_two_of_them_once(elements: int) -> None:
    """That is 2(n-1)/n of the data: its own and the next rank's segment are sent in one half only."""
    ring, counts = Ring(rings_over(8, elements, 10)), np.zeros(elements, int)
    for primitive in ring.primitives(5):
        if primitive.target is not None:
            counts[primitive.own or primitive.result] += 1
    loops = pieces(0, elements, 8 * ring.loop_elements)
    once = sum(len(block(loop, 8, 6)) + len(block(loop, 8, 7)) for loop in loops)
    assert sum(counts == 1) == once
    assert set(counts) <= {1, 2}


def block(loop: slice, ranks: int, number: int) -> range:
    length = loop.stop - loop.start
    return range(length * number // ranks, length * (number + 1) // ranks)


def test_node_sum_is_no_faster_than_the_memory_allows() -> None:
    capped = TreeAllreduce(double_binary_tree(2), 10_000, 500, node_sum_bytes_per_s=400_000)
    started = time.monotonic()
    assert_all_summed(capped, random_inputs(2, 2, 10_000))
    assert time.monotonic() - started >= 0.1


@pytest.mark.parametrize("elements", [1, 14, 1001])
def test_dataset_expects_the_sum_of_its_buffers(tmp_path: Path, elements: int) -> None:
    dataset = Dataset.write(tmp_path, DatasetShape(5, 3, elements), seed=1, longest_piece=elements)
    whole = slice(0, elements)
    buffers = [buffer[whole] for rank in range(5) for buffer in dataset.inputs(rank)]
    assert len(buffers) == 15
    assert np.array_equal(dataset.expected()[whole], np.sum(buffers, axis=0))
    if elements > 1:
        assert len({buffer.tobytes() for buffer in buffers}) == 15


def test_dataset_larger_than_its_memory_has_the_right_sum_everywhere_and_no_chunk_twice(tmp_path: Path) -> None:
    elements, chunk = 3_000_000, 2**14
    dataset = Dataset.write(tmp_path, DatasetShape(2, 2, elements), seed=1, longest_piece=chunk)
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
    dataset = Dataset.write(tmp_path, DatasetShape(ranks, 1, elements), seed=1, longest_piece=elements)
    inputs = [dataset.inputs(rank) for rank in range(ranks)]
    expected = dataset.expected()[slice(0, elements)]
    for schedule in (TreeAllreduce(double_binary_tree(ranks), elements, 30_000), rings_over(ranks, elements, 7000)):
        for result in allreduce(schedule, inputs):
            assert np.array_equal(result, expected)


@pytest.mark.parametrize("kind", ["tree", "ring"])
def test_a_shortened_collective_sums_the_first_elements_over_the_same_connections(kind: str) -> None:
    whole: Schedule = TreeAllreduce(double_binary_tree(4), 1000, 64)
    if kind == "ring":
        whole = rings_over(4, 1000, 64)
    short = whole.shortened(130)
    assert (short.elements, short.edges) == (130, whole.edges)
    assert whole.shortened(5000) == whole
    inputs = random_inputs(4, 1, 1000)
    expected = np.sum([buffer[:130] for of_rank in inputs for buffer in of_rank], axis=0)
    for result in allreduce(short, inputs):
        assert np.array_equal(result, expected)


def test_what_memory_could_have_summed_up_in_a_stall_is_not_made_up_for() -> None:
    """After a stall as long as the whole sum takes, both trees together are given two chunks at once."""
    memory = _HostMemory(1e6, ahead_bytes=2000)
    memory.begin(time.monotonic())
    memory.deliver(1000)
    time.sleep(0.1)
    started = time.monotonic()
    for _ in range(22):
        memory.deliver(1000)
    assert time.monotonic() - started >= 0.02


def test_memory_sums_up_nothing_of_a_step_before_it_begins() -> None:
    memory = _HostMemory(1e6, ahead_bytes=20_000)
    started = time.monotonic()
    for _ in range(2):
        memory.begin(started)
    memory.deliver(20_000)
    assert time.monotonic() - started >= 0.02


@pytest.mark.parametrize("count", [1, 3, 8])
@pytest.mark.parametrize("length", [1, 4096, 4097, 30_000])
def test_a_nodes_buffers_are_added_up_as_one_by_one_and_as_views(tmp_path: Path, count: int, length: int) -> None:
    dataset = Dataset.write(tmp_path, DatasetShape(2, count, 400_000), seed=1, longest_piece=length)
    for start in (0, 119_990, 400_000 - length):
        piece, out = slice(start, start + length), np.empty(length, np.float32)
        inputs = dataset.inputs(1)
        adder_of(inputs)(piece, out)
        assert np.array_equal(out, np.sum([buffer[piece] for buffer in inputs], axis=0))
        assert all(np.shares_memory(inputs[0][piece], inputs[place][piece]) for place in range(min(count, length)))
    with pytest.raises(ValueError, match=f"a piece of {length + 200} elements: the dataset was made for shorter"):
        dataset.inputs(1)[0][119_990 : 120_190 + length]


@pytest.mark.parametrize("buffers", [2, 15, 16, 17, 300, 20_000])
@pytest.mark.parametrize("dtype", Dtype)
def test_sums_are_whole_numbers_that_their_type_holds_and_differ(tmp_path: Path, dtype: Dtype, buffers: int) -> None:
    whole = slice(0, min(50_000, 60_000_000 // buffers))
    dataset = Dataset.write(tmp_path, DatasetShape(buffers, 1, whole.stop, dtype), seed=1, longest_piece=whole.stop)
    largest = dataset.expected()[whole].astype(np.float64).max()
    assert 0 < largest <= dtype.exact_up_to
    counted = sum(dataset.inputs(rank)[0][whole].astype(np.int64) for rank in range(buffers))
    assert np.array_equal(dataset.expected()[whole].astype(np.int64), counted)
    assert dataset.expected()[whole].astype(np.int64).std() > 0


@pytest.mark.parametrize("dtype", Dtype)
def test_a_type_holds_all_whole_numbers_up_to_its_limit_and_not_the_next(dtype: Dtype) -> None:
    numbers = np.arange(max(0, dtype.exact_up_to - 100), dtype.exact_up_to + 2)
    held = numbers.astype(dtype.numpy).astype(np.int64) == numbers
    assert held[:-1].all()
    assert not held[-1]
    assert dtype.numpy.itemsize == dtype.size_bytes


@pytest.mark.parametrize("kind", ["tree", "ring"])
@pytest.mark.parametrize("dtype", Dtype)
def test_collectives_add_up_in_every_type(tmp_path: Path, dtype: Dtype, kind: str) -> None:
    elements, ranks, gpus = 30_000, 5, 1 if kind == "ring" else 8
    schedule: Schedule = rings_over(ranks, elements, 700, dtype=dtype)
    if kind == "tree":
        schedule = TreeAllreduce(double_binary_tree(ranks), elements, 2000, dtype=dtype)
    dataset = Dataset.write(tmp_path, DatasetShape(ranks, gpus, elements, dtype), seed=1, longest_piece=elements)
    expected = dataset.expected()[slice(0, elements)]
    for result in allreduce(schedule, [dataset.inputs(rank) for rank in range(ranks)]):
        assert result.dtype == dtype.numpy
        assert np.array_equal(result, expected)


def switched_rings(elements: int, rings: int, ranks: int = 8, node_ranks: int = 4) -> Rings:
    orders = tuple((*range(entry, node_ranks), *range(entry)) for entry in range(node_ranks))
    return rings_over(ranks, elements, 128, rings=rings, orders=orders)


def test_rings_that_go_through_nodes_in_any_order_sum_up() -> None:
    rings = rings_over(8, 3001, 128, rings=3, orders=((0, 2, 3, 1), (3, 0, 2, 1), (2, 1, 3, 0)))
    assert [part.rank_at(place) for part in rings.parts for place in (0, 3, 4, 7)] == [
        0,
        1,
        4,
        5,
        3,
        1,
        7,
        5,
        2,
        0,
        6,
        4,
    ]
    assert_all_summed(rings, random_inputs(8, 1, 3001), steps=2)


@pytest.mark.parametrize("rings", [1, 3, 4, 6])
def test_rings_over_a_switch_inside_nodes_sum_up(rings: int) -> None:
    inputs = random_inputs(8, 1, 3001)
    assert_all_summed(switched_rings(3001, rings), inputs, steps=2)


def test_each_ring_enters_a_node_at_its_own_rank_and_leaves_from_the_one_before() -> None:
    schedule = switched_rings(1000, rings=4)
    between = {edge for edge in schedule.edges if edge.dialer // 4 != edge.listener // 4}
    assert {(edge.channel, edge.dialer % 4, edge.listener % 4) for edge in between} == {
        (ring, (ring - 1) % 4, ring) for ring in range(4)
    }
    assert {edge.channel for edge in between} == set(range(4))
    assert {edge.channel for edge in set(schedule.edges) - between} == set(range(4, 8))
    assert len(schedule.edges) == 4 * 8
    for part in schedule.parts:
        assert [part.place_of(part.rank_at(place)) for place in range(8)] == list(range(8))


@settings(max_examples=60)
@given(
    period=st.integers(1, 500), buffers=st.integers(2, 400), exact_up_to=st.integers(4, 40), seed=st.integers(0, 2**32)
)
def test_any_buffers_in_a_row_add_up_to_what_is_exact_at_most(
    period: int, buffers: int, exact_up_to: int, seed: int
) -> None:
    buffers = min(buffers, period)
    series = series_of(period, buffers, exact_up_to, seed)
    assert series.size == period
    again = np.concatenate([series, series])
    assert max(again[first : first + buffers].sum() for first in range(period)) <= exact_up_to


def checked_pieces(*found: tuple[int, Elements]) -> ResultCheck:
    """Return a check of a result of 0 to 5 that was told of some pieces."""
    check = ResultCheck([(Expected(slice(0, 6), (0, 1), 0), np.arange(6, dtype=np.float32))], 6)
    check.begin("rank 3")
    for start, piece in found:
        check.piece(slice(start, start + len(piece)), piece)
    return check


def floats(*values: float) -> Elements:
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
def test_a_result_that_did_not_come_whole_is_noticed(found: list[tuple[int, Elements]], element: int) -> None:
    with pytest.raises(TrafficError, match=f"rank 3: the result from element {element} of 6 on did not come, or"):
        checked_pieces(*found).end()


def test_pieces_cover_a_stretch_without_gaps() -> None:
    assert list(pieces(3, 10, 4)) == [slice(3, 7), slice(7, 10)]
    assert list(pieces(3, 3, 4)) == []
