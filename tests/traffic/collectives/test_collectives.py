"""Every collective by every algorithm, without sockets: what ranks get, what they send, and that errors are noticed."""

from __future__ import annotations

import pickle
import queue
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import cast

import numpy as np
import pytest

from fabric.config import checked
from fabric.errors import ConfigError, TrafficError
from traffic.collectives.chunk_connection import ChunkConnection, Edge
from traffic.collectives.collective import Collective, Expected, ScheduleOptions
from traffic.collectives.dataset import Dataset, DatasetShape
from traffic.collectives.elements import Elements
from traffic.collectives.listing import COLLECTIVES
from traffic.collectives.nccl import NcclConfig
from traffic.collectives.primitives import Primitive
from traffic.collectives.result_check import ResultCheck
from traffic.collectives.ring import Rings
from traffic.collectives.schedule import RankContext, Schedule

TIMEOUT_S = 20.0
RANKS = [2, 3, 8, 13, 16]
COUNTS = [0, 1, 7, 101, 20_011]
PLAYED = [(one.name, algorithm) for one in COLLECTIVES.values() for algorithm in one.algorithms]
IN_PLACE = [one for one in PLAYED if COLLECTIVES[one[0]].in_place]
WITH_DATA = [one for one in PLAYED if one[0] != "barrier"]


class Pipe:
    """A connection in memory that holds one frame. ``spoilt``: the number of an element to be changed on its way."""

    def __init__(self, spoilt: int | None = None) -> None:
        self.elements = 0
        self._spoilt = spoilt
        self._frames: queue.Queue[tuple[int, int, Elements]] = queue.Queue(maxsize=1)

    def send(self, step: int, chunk: int, payload: Elements) -> None:
        frame = payload.copy()
        if self._spoilt is not None and self.elements <= self._spoilt < self.elements + frame.size:
            frame[self._spoilt - self.elements] += 1
        self.elements += frame.size
        self._frames.put((step, chunk, frame), timeout=TIMEOUT_S)

    def begin_sending(self, step: int, chunk: int, payload: Elements) -> None:
        self.send(step, chunk, payload)

    def receive(self, step: int, chunk: int, into: Elements) -> None:
        *numbers, frame = self._frames.get(timeout=TIMEOUT_S)
        assert (numbers, frame.size) == ([step, chunk], into.size)
        into[:] = frame


@dataclass
class Outcome:
    """What ranks got, what each connection carried in elements, and what checks found."""

    results: list[Elements]
    carried: dict[Edge, int] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)

    def sent(self) -> dict[tuple[int, int], int]:
        """Return the elements that each rank sent to each other, of those that sent any."""
        found: dict[tuple[int, int], int] = {}
        for edge, elements in self.carried.items():
            if elements:
                found[edge.dialer, edge.listener] = found.get((edge.dialer, edge.listener), 0) + elements
        return found


def schedule_of(collective: Collective, algorithm: str, ranks: int, elements: int, piece: int = 16) -> Schedule:
    piece = max(piece, elements // 100)
    return collective.algorithm(algorithm).schedule(ScheduleOptions(ranks, elements, piece, slots=4))


def nothing_of(elements: int) -> Elements:
    found: Elements = np.full(elements, np.nan, np.float32)
    return found


def inputs_of(collective: Collective, ranks: int, elements: int) -> list[Elements]:
    """Return each rank's buffer: NaN where it has no input."""
    random = np.random.default_rng(ranks * elements)
    buffers: list[Elements] = []
    for rank in range(ranks):
        buffer = nothing_of(elements)
        piece = collective.input(rank, ranks, elements)
        buffer[piece] = random.integers(0, 99, piece.stop - piece.start)
        buffers.append(buffer)
    return buffers


def carried_out(
    collective: Collective,
    schedule: Schedule,
    inputs: Sequence[Elements],
    in_place: bool = False,
    spoilt: Edge | None = None,
) -> Outcome:
    """Carry a collective out, a thread per task, and check each rank's result by what the collective expects."""
    ranks, elements = len(inputs), schedule.elements
    pipes = {edge: Pipe(spoilt=0 if edge == spoilt else None) for edge in schedule.edges}
    links = cast("dict[Edge, ChunkConnection]", pipes)
    expected = [collective.expected(rank, ranks, elements) for rank in range(ranks)]
    checks = [ResultCheck([(one, total(one, inputs)) for one in own], elements) for own in expected]
    if in_place:
        results = [buffer.copy() for buffer in inputs]
        inputs = results
    else:
        lengths = [max((one.place.stop for one in own), default=0) for own in expected]
        results = [nothing_of(max(length, elements)) for length in lengths]
    outcome = Outcome(results)

    def finished(rank: int) -> Callable[[slice, Elements], None]:
        def take(piece: slice, found: Elements) -> None:
            results[rank][piece] = found
            noted(outcome.faults, checks[rank].piece, piece, found)

        return take

    contexts = [RankContext(rank, links, [inputs[rank]], TIMEOUT_S) for rank in range(ranks)]
    tasks = [task for one in contexts for task in schedule.worker(one, [finished(one.rank)]).tasks(0)]
    with ThreadPoolExecutor(len(tasks)) as threads:
        for running in [threads.submit(task) for task in tasks]:
            running.result(TIMEOUT_S)
    for check in checks:
        noted(outcome.faults, check.end)
    outcome.carried = {edge: pipe.elements for edge, pipe in pipes.items()}
    return outcome


def noted(faults: list[str], call: Callable[..., None], *arguments: object) -> None:
    try:
        call(*arguments)
    except TrafficError as error:
        faults.append(str(error))


def total(expected: Expected, inputs: Sequence[Elements]) -> Elements:
    return cast(Elements, np.sum([inputs[rank] for rank in expected.ranks], axis=0, dtype=np.float32))


def right(name: str, inputs: Sequence[Elements], rank: int) -> Elements:
    """Return what a rank must have, by the meaning of each collective; NaN where it has nothing."""
    ranks, elements = len(inputs), inputs[0].size
    bounds = [elements * number // ranks for number in range(ranks + 1)]
    mine, whole = slice(bounds[rank], bounds[rank + 1]), np.sum(inputs, axis=0)
    nothing = nothing_of(elements)
    if name == "allreduce":
        return cast(Elements, whole)
    if name == "broadcast":
        return inputs[0]
    if name == "reduce":
        return cast(Elements, whole) if rank == 0 else nothing
    if name == "reduce_scatter":
        nothing[mine] = whole[mine]
        return nothing
    if name == "all_gather":
        return np.concatenate([one[slice(*block)] for one, block in zip(inputs, pairwise(bounds), strict=True)])
    if name == "gather":
        return right("all_gather", inputs, rank) if rank == 0 else nothing
    if name == "scatter":
        nothing[mine] = inputs[0][mine]
        return nothing
    if name == "send_receive":
        return inputs[rank - 1]
    if name == "push_pull":
        return cast(Elements, whole)
    if name == "barrier":
        return nothing
    if name == "all_to_all_v":
        return sent_unevenly(inputs, rank)
    assert name == "all_to_all"
    return np.concatenate([one[mine] for one in inputs])


def sent_unevenly(inputs: Sequence[Elements], rank: int) -> Elements:
    """Return what a rank gets of inputs in which the block for the rank k places on has 2k of n^2 parts, and n if it is
    the rank itself; each rank's blocks are cut in the order of k, and are there in the order of ranks."""
    ranks, elements = len(inputs), inputs[0].size
    ends = [elements * (ranks + k * (k + 1)) // ranks**2 for k in range(ranks)]
    lengths = [end - start for start, end in zip([0, *ends], ends, strict=False)]
    found = []
    for source, one in enumerate(inputs):
        of_target = [lengths[(target - source) % ranks] for target in range(ranks)]
        first = sum(of_target[:rank])
        found.append(one[first : first + of_target[rank]])
    return np.concatenate(found)


@pytest.mark.parametrize("elements", COUNTS)
@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize(("name", "algorithm"), PLAYED)
def test_every_rank_gets_what_the_collective_means(name: str, algorithm: str, ranks: int, elements: int) -> None:
    collective = COLLECTIVES[name]
    inputs = inputs_of(collective, ranks, elements)
    outcome = carried_out(collective, schedule_of(collective, algorithm, ranks, elements), inputs)
    assert outcome.faults == []
    for rank, result in enumerate(outcome.results):
        wanted = right(name, inputs, rank)
        assert np.array_equal(result[: wanted.size], wanted, equal_nan=True)
        assert np.isnan(result[wanted.size :]).all()


def test_what_moves_blocks_has_no_result_in_place() -> None:
    """What these get takes the place of what they have not sent yet. nccl-tests' all-to-all has none either."""
    moving = {name for name, one in COLLECTIVES.items() if not one.in_place}
    assert moving == {"all_to_all", "all_to_all_v", "send_receive"}


@pytest.mark.parametrize("elements", COUNTS)
@pytest.mark.parametrize("ranks", [2, 5, 8])
@pytest.mark.parametrize(("name", "algorithm"), IN_PLACE)
def test_a_result_may_take_the_place_of_the_input(name: str, algorithm: str, ranks: int, elements: int) -> None:
    collective = COLLECTIVES[name]
    inputs = inputs_of(collective, ranks, elements)
    outcome = carried_out(collective, schedule_of(collective, algorithm, ranks, elements), inputs, in_place=True)
    assert outcome.faults == []
    for rank, result in enumerate(outcome.results):
        wanted = right(name, inputs, rank)
        there = ~np.isnan(wanted)
        assert np.array_equal(result[there], wanted[there])


@pytest.mark.parametrize("name", [name for name, algorithm in PLAYED if algorithm == "ring"])
def test_several_rings_with_several_queue_pairs_over_a_switch_share_the_data(name: str) -> None:
    collective = COLLECTIVES[name]
    inputs = inputs_of(collective, 8, 3001)
    orders = tuple((*range(entry, 4), *range(entry)) for entry in range(4))
    options = ScheduleOptions(8, 3001, 50, 4, channels=3, queue_pairs=2, orders=orders)
    outcome = carried_out(collective, collective.algorithms["ring"].schedule(options), inputs)
    assert outcome.faults == []
    for rank, result in enumerate(outcome.results):
        assert np.array_equal(result, right(name, inputs, rank), equal_nan=True)
    used = {edge.channel for edge, elements in outcome.carried.items() if elements}
    assert used == set(range(9)), "3 rings of 2 queue pairs between nodes, and 3 connections inside"


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize(("name", "algorithm"), PLAYED)
def test_what_is_sent_is_the_closed_form(name: str, algorithm: str, ranks: int) -> None:
    """To the element where blocks are of equal length, and in all for any number of elements."""
    collective, elements = COLLECTIVES[name], ranks * ranks * 16
    flows = collective.algorithm(algorithm).flows(ranks)
    shares: dict[tuple[int, int], float] = {}
    for source, target, share in flows:
        shares[source, target] = shares.get((source, target), 0.0) + share
    schedule = schedule_of(collective, algorithm, ranks, elements)
    sent = carried_out(collective, schedule, inputs_of(collective, ranks, elements)).sent()
    assert sent == {pair: pytest.approx(share * elements) for pair, share in shares.items()}
    of_rank = [sum(count for (source, _), count in sent.items() if source == rank) for rank in range(ranks)]
    assert max(of_rank) == pytest.approx(collective.algorithm(algorithm).sent_fraction(ranks) * elements)
    odd = schedule_of(collective, algorithm, ranks, 1013)
    sent = carried_out(collective, odd, inputs_of(collective, ranks, 1013)).sent()
    if name in ("gather", "scatter"):
        roots = 1013 // ranks if name == "gather" else 1013 - 1013 * (ranks - 1) // ranks
        assert sum(sent.values()) == pytest.approx(1013 - roots, abs=1)
        return
    times = {"allreduce": 2 * (ranks - 1), "push_pull": 2 * (ranks - 1), "send_receive": ranks, "barrier": 0}
    whole = times.get(name, ranks - 1) * 1013
    assert whole == pytest.approx(sum(one[2] for one in flows) * 1013)
    # Blocks of unequal length are cut to whole elements each.
    assert sum(sent.values()) == pytest.approx(whole, abs=ranks if name == "all_to_all_v" else 0)


@pytest.mark.parametrize(("ranks", "elements"), [(3, 1001), (7, 1009), (128, 128 * 50 + 1)])
def test_a_ring_moves_whole_chunks_where_blocks_differ(ranks: int, elements: int) -> None:
    """By lists of primitives alone: a rank sends all blocks but one, an allreduce all but the next two and then one."""
    blocks = [elements * (number + 1) // ranks - elements * number // ranks for number in range(ranks)]
    for name in ("all_gather", "reduce_scatter", "allreduce"):
        rings = cast(Rings, schedule_of(COLLECTIVES[name], "ring", ranks, elements, piece=elements))
        for rank in range(ranks):
            sent = sum(one.elements for one in rings.parts[0].primitives(rank) if one.target is not None)
            after, next_but_one = blocks[(rank + 1) % ranks], blocks[(rank + 2) % ranks]
            kept = {"all_gather": after, "reduce_scatter": blocks[rank], "allreduce": after + next_but_one - elements}
            assert sent == elements - kept[name]


@pytest.mark.parametrize(("name", "algorithm"), WITH_DATA)
def test_sizes_are_those_of_nccl_tests(name: str, algorithm: str) -> None:
    """S is the larger of what a rank sends from and what it receives into (``getCollByteCount``)."""
    collective, ranks, elements = COLLECTIVES[name], 8, 8 * 12
    assert algorithm in collective.algorithms
    has = [collective.input(rank, ranks, elements) for rank in range(ranks)]
    gets = [collective.expected(rank, ranks, elements) for rank in range(ranks)]
    lengths = [one.stop - one.start for one in has]
    lengths += [sum(one.place.stop - one.place.start for one in own) for own in gets]
    assert max(lengths) == elements


@pytest.mark.parametrize(("name", "algorithm"), WITH_DATA)
def test_one_wrong_element_is_found_wherever_it_goes(name: str, algorithm: str) -> None:
    collective = COLLECTIVES[name]
    schedule = schedule_of(collective, algorithm, 5, 203)
    inputs = inputs_of(collective, 5, 203)
    used = [edge for edge, elements in carried_out(collective, schedule, inputs).carried.items() if elements]
    for edge in used:
        faults = carried_out(collective, schedule, inputs, spoilt=edge).faults
        assert any("(1 wrong elements in its chunk of " in fault for fault in faults), f"changed on {edge}: {faults}"


@pytest.mark.parametrize(("name", "algorithm"), PLAYED)
def test_schedules_and_what_they_lead_to_travel_to_ranks(name: str, algorithm: str) -> None:
    collective = COLLECTIVES[name]
    schedule = schedule_of(collective, algorithm, 4, 1001)
    assert pickle.loads(pickle.dumps(schedule)) == schedule
    assert pickle.loads(pickle.dumps(collective.expected)) is collective.expected
    short = schedule.shortened(130)
    assert (short.elements, short.edges) == (130, schedule.edges)
    assert schedule.shortened(5000) == schedule
    assert carried_out(collective, short, inputs_of(collective, 4, 130)).faults == []


# The check -----------------------------------------------------------------------------------------------------------


def floats(*values: float) -> Elements:
    return np.array(values, np.float32)


def two_blocks() -> ResultCheck:
    """Return the check of elements 2 to 5 and 6 to 7 of a result: of rank 1, from its element 0 on, and the sum."""
    copied, summed = Expected(slice(2, 5), (1,), 0), Expected(slice(5, 7), (0, 1), 5)
    check = ResultCheck([(summed, np.arange(100, 110)), (copied, np.arange(10))], 8)
    check.begin("rank 3")
    return check


def test_pieces_may_reach_over_the_stretches_of_a_result() -> None:
    check = two_blocks()
    check.piece(slice(3, 6), floats(1, 2, 105))
    check.piece(slice(2, 3), floats(0))
    check.piece(slice(6, 7), floats(106))
    check.end()


@pytest.mark.parametrize(
    ("piece", "found", "fault"),
    [
        (slice(3, 6), floats(1, 3, 105), r"element 4 of 8 is 3, expected 2 \(1 wrong .* of the input of rank 1\)"),
        (slice(3, 6), floats(1, 2, 104), r"element 5 of 8 is 104, expected 105 \(1 .* of the sum over 2 ranks\)"),
        (slice(0, 3), floats(0, 0, 0), "element 0 of 8 came, which does not belong to this rank's result"),
        (slice(6, 8), floats(106, 107), "element 7 of 8 came, which does not belong to this rank's result"),
        (slice(3, 5), floats(1), "1 elements came for 2 from 3 on"),
    ],
)
def test_a_piece_that_is_wrong_is_named(piece: slice, found: Elements, fault: str) -> None:
    with pytest.raises(TrafficError, match=f"rank 3: {fault}"):
        two_blocks().piece(piece, found)


def test_what_lacks_or_comes_twice_over_several_stretches_is_noticed() -> None:
    check = two_blocks()
    check.piece(slice(2, 6), floats(0, 1, 2, 105))
    with pytest.raises(TrafficError, match="the result from element 6 of 8 on did not come, or came twice"):
        check.end()
    check.piece(slice(6, 7), floats(106))
    check.end()
    check.piece(slice(2, 3), floats(0))
    with pytest.raises(TrafficError, match="from element"):
        check.end()


def test_a_rank_without_a_result_is_right_if_nothing_comes() -> None:
    check = ResultCheck([], 8)
    check.begin("rank 3")
    check.end()
    with pytest.raises(TrafficError, match="element 0 of 8 came, which does not belong to this rank's result"):
        check.piece(slice(0, 1), floats(0))


def test_a_dataset_knows_the_sum_of_any_ranks(tmp_path: Path) -> None:
    dataset = Dataset.write(tmp_path, DatasetShape(5, 2, 1000), seed=1, longest_piece=1000)
    piece = slice(13, 700)
    groups = [(2,), (0, 3), tuple(range(5))]
    for ranks, found in zip(groups, dataset.sums_of(groups), strict=True):
        wanted = np.sum([buffer[piece] for rank in ranks for buffer in dataset.inputs(rank)], axis=0)
        assert np.array_equal(found[piece], wanted)


# Configs -------------------------------------------------------------------------------------------------------------


def test_a_collective_is_an_allreduce_unless_another_is_wanted() -> None:
    assert checked(NcclConfig, {}, "test").planned_collective is COLLECTIVES["allreduce"]
    assert checked(NcclConfig, {"collective": "all_to_all"}, "test").planned_collective is COLLECTIVES["all_to_all"]


@pytest.mark.parametrize(
    ("config", "fault"),
    [
        ({"collective": "allgather"}, "collective: 'allgather' is not a collective; use one of allreduce, all_gather"),
        ({"collective": "gather", "algorithm": "tree"}, "'tree' is not an algorithm of gather; use one of direct"),
        (
            {"collective": "all_to_all", "channels": 2},
            "channels: 2, queue_pairs: 1: algorithm direct has one each; leave both out",
        ),
    ],
)
def test_a_collective_or_algorithm_that_there_is_not_is_refused(config: dict[str, object], fault: str) -> None:
    with pytest.raises(ConfigError) as caught:
        checked(NcclConfig, config, "test")
    assert fault in str(caught.value)


def test_a_primitive_has_the_length_of_its_piece() -> None:
    assert Primitive(own=slice(3, 5), target=1).elements == Primitive(0, result=slice(8, 10)).elements == 2


def test_the_documents_table_has_every_collective() -> None:
    whole = ("broadcast", "reduce", "send_receive", "barrier", "push_pull")
    words = {"allreduce": "2(n-1)/n"} | dict.fromkeys(whole, "1")
    rows = (Path(__file__).parents[3] / "docs" / "concepts.md").read_text().splitlines()
    for one in COLLECTIVES.values():
        (row,) = (row for row in rows if row.startswith(f"| `{one.name}` | "))
        *_, size, algorithms, factor = row.strip("| ").split(" | ")
        assert (size, factor) == (one.size, words.get(one.name, "(n-1)/n"))
        assert algorithms == ", ".join(f"`{name}`" for name in one.algorithms)
