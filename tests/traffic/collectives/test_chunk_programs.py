"""Algorithms as programs over chunks: what they refuse, their closed forms, and that they need no buffers to end."""

from __future__ import annotations

import pickle
from typing import cast

import numpy as np
import pytest

from tests.traffic.collectives.test_collectives import carried_out, inputs_of, right
from traffic.collectives.chunk_connection import Edge
from traffic.collectives.chunk_program import DATA, OUTPUT, SCRATCH, ChunkProgram, ProgramError, ProgramTrace, compiled
from traffic.collectives.collective import Layout, ScheduleOptions, all_elements, sum_everywhere
from traffic.collectives.elements import Dtype, Elements
from traffic.collectives.halving_doubling import halving_doubling
from traffic.collectives.hierarchical import hierarchical
from traffic.collectives.listing import COLLECTIVES
from traffic.collectives.operations.all_to_all_v import all_to_all_of, size_of
from traffic.collectives.parameter_server import sharded, shared
from traffic.collectives.program_schedule import Overlap, ProgramSchedule
from traffic.collectives.trees import double_tree_at_zero, from_the_root


def busiest(program: ChunkProgram) -> float:
    """Return what the busiest rank sends or receives, as a multiple of the size."""
    busy: dict[tuple[int, int], float] = {}
    for flow in program.flows():
        for way in (0, 1):
            busy[int(flow[way]), way] = busy.get((int(flow[way]), way), 0.0) + flow[2]
    return max(busy.values())


# What no program may do ----------------------------------------------------------------------------------------------


def two_ranks() -> ProgramTrace:
    return ProgramTrace(Layout(2), [1, 1], all_elements)


def test_a_program_must_end_with_what_its_collective_says() -> None:
    trace = two_ranks()
    trace.add(0, 1, (DATA, 0))
    with pytest.raises(ProgramError, match="rank 0: chunk 0 of the result is chunk 0 of rank 0, not chunk 0 of the"):
        trace.program(sum_everywhere)
    with pytest.raises(ProgramError, match="rank 0: chunk 0 of the result is nothing, not chunk 0 of the sum over"):
        trace.program(sum_everywhere, OUTPUT)


def test_what_nothing_has_written_is_not_read() -> None:
    with pytest.raises(ProgramError, match="rank 0: reads chunk 1 of scratch, in which nothing has come yet"):
        two_ranks().copy(0, 1, (SCRATCH, 1))


def test_chunks_that_do_not_belong_together_are_not_added_up() -> None:
    trace = two_ranks()
    with pytest.raises(ProgramError, match="rank 1, chunk 1 of data: adds up chunk 0 and chunk 1"):
        trace.add(0, 1, (DATA, 0), (DATA, 1))
    trace.add(0, 1, (DATA, 0))
    with pytest.raises(ProgramError, match="rank 1, chunk 0 of data: the input of rank 0 is added twice"):
        trace.add(0, 1, (DATA, 0))


@pytest.mark.parametrize("is_sent", [True, False])
def test_a_value_that_is_under_way_is_not_overwritten(is_sent: bool) -> None:
    """Rank 1 adds up rank 0's and then rank 2's. In one slot, unless somebody gets what it has in between."""
    trace = ProgramTrace(Layout(3), [1], all_elements)
    trace.add(0, 1, (DATA, 0))
    between = trace.send(1, 2, (DATA, 0)) if is_sent else None
    trace.add(2, 1, (DATA, 0))
    if between is not None:
        trace.take(between, (SCRATCH, 0))
    for rank in (0, 2):
        trace.copy(1, rank, (DATA, 0))
    program = trace.program(sum_everywhere)
    assert program.ranks[1].slots == 1 + is_sent
    schedule = ProgramSchedule(lambda _: program, Layout(3), sum_everywhere, 101, 7)
    inputs = inputs_of(COLLECTIVES["allreduce"], 3, 101)
    outcome = carried_out(COLLECTIVES["allreduce"], schedule, inputs)
    assert outcome.faults == []
    assert np.array_equal(outcome.results[1], np.sum(inputs, axis=0))


# Closed forms --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("ranks", "wanted"), [(2, 1.0), (3, 2.0), (8, 1.75), (13, 2.75), (16, 1.875)])
def test_halving_and_doubling_sends_what_a_ring_does_and_once_more_where_ranks_are_no_power_of_two(
    ranks: int, wanted: float
) -> None:
    program = halving_doubling(Layout(ranks))
    assert busiest(program) == pytest.approx(wanted)
    rounds = 2 * (ranks.bit_length() - 1) + (2 if ranks & (ranks - 1) else 0)
    assert program.stages == rounds


@pytest.mark.parametrize(
    ("servers", "time", "server", "worker"),
    [(0, 1.75, 0.0, 1 / 8), (2, 112 / 76, 14 / 76, 6 / 76), (4, 112 / 88, 14 / 88, 4 / 88), (8, 1.0, 14 / 112, 0.0)],
)
def test_byteps_shares_make_all_links_equally_busy(servers: int, time: float, server: float, worker: float) -> None:
    """Theorem 1 over 8 workers: shares of a server and of a worker, and the time in units of S over the rate."""
    program = shared(Layout(8 + servers, servers=servers))
    whole = sum(program.weights)
    assert busiest(program) == pytest.approx(time)
    sent = [sum(share for source, _, share in program.flows() if source == rank) for rank in range(8 + servers)]
    assert sent == pytest.approx([time] * 8 + [8 * server] * servers)
    shares = [weight / whole for weight in program.weights]
    assert shares == pytest.approx([worker] * (8 if worker else 0) + [server] * servers)


@pytest.mark.parametrize(("servers", "wanted"), [(0, 1.75), (1, 8.0), (2, 4.0), (4, 2.0), (8, 1.0), (16, 1.0)])
def test_servers_alone_bind_until_there_are_as_many_as_workers(servers: int, wanted: float) -> None:
    assert busiest(sharded(Layout(8 + servers, servers=servers))) == pytest.approx(wanted)


def test_hierarchical_over_nodes_sends_a_share_of_each_rank_between_nodes() -> None:
    """4 ranks in each of 3 nodes, in any order: 2(N-1)/N S/g between nodes, 2(g-1)/g S in them."""
    groups = ((0, 3, 6, 9), (1, 4, 7, 10), (11, 8, 5, 2))
    program = hierarchical(Layout(12, groups))
    node_of = {rank: number for number, group in enumerate(groups) for rank in group}
    between, inside = [0.0] * 12, [0.0] * 12
    for source, target, share in program.flows():
        (inside if node_of[source] == node_of[target] else between)[source] += share
    assert between == pytest.approx([2 * 2 / 3 / 4] * 12)
    assert inside == pytest.approx([2 * 3 / 4] * 12)
    assert all((edge.channel == 1) == (node_of[edge.dialer] == node_of[edge.listener]) for edge in program.edges)


@pytest.mark.parametrize("groups", [((0, 1), (2, 3, 4)), ((0, 1), (1, 2))])
def test_nodes_of_unequally_many_ranks_are_refused(groups: tuple[tuple[int, ...], ...]) -> None:
    with pytest.raises(ProgramError, match=r"nodes have 2 to 3 ranks|groups .* are not each of ranks 0 to"):
        hierarchical(Layout(sum(map(len, groups)), groups))


@pytest.mark.parametrize("ranks", [2, 3, 8, 13, 16])
def test_trees_of_a_root_reach_all_and_send_no_more_than_all_twice_half(ranks: int) -> None:
    for tree in double_tree_at_zero(ranks):
        edges = from_the_root(tree)
        assert sorted(child for _, child in edges) == list(range(1, ranks))
        reached = {0}
        for parent, child in edges:
            assert parent in reached
            reached.add(child)
    for name in ("broadcast", "reduce"):
        assert COLLECTIVES[name].algorithms["tree"].busiest_fraction(Layout(ranks)) == 1.0


def test_counts_of_ones_own_bind_by_row_or_column() -> None:
    """DLRM's kind of skew: rank 2 gets most, so its column binds."""
    counts = [[0, 3, 8], [5, 0, 9], [1, 0, 7]]
    made = all_to_all_of(counts)
    assert size_of(tuple(tuple(row) for row in counts)) == 24
    assert made.algorithm(None).busiest_fraction(Layout(3)) == pytest.approx((8 + 9) / 24)
    buffers = [np.arange(24, dtype=np.float32) + 100 * rank for rank in range(3)]
    options = ScheduleOptions(3, 24, 4)
    outcome = carried_out(made, made.algorithm(None).schedule(options), buffers)
    assert outcome.faults == []
    assert outcome.results[1][:3].tolist() == [0, 1, 2]
    assert outcome.results[2][:24].tolist() == [*range(3, 11), *range(105, 114), *range(201, 208)]


# Carrying out --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("skew", [1, 3])
def test_loops_overlap_in_one_order_for_all(skew: int) -> None:
    """In time slot t a rank is in stage s of loop t - skew s, and what a move depends on comes before it."""
    program = halving_doubling(Layout(8))
    assert program.stages == 6
    overlap = Overlap(5, 6, skew, ahead=2)
    for rank in program.ranks:
        taken = {(loop, move.order): (slot, move.order.number) for slot, loop, move in overlap.in_order(rank.takes)}
        sent = list(overlap.in_order(rank.sends))
        assert len(sent) == 5 * len(rank.sends)
        for slot, loop, move in sent:
            assert slot == overlap.slot_of(loop, move.order.stage) == loop + skew * move.order.stage
            if move.after is not None:
                assert taken[loop, move.after] < (slot, move.order.number)


def test_stages_are_as_far_apart_as_a_rank_has_slots() -> None:
    """A tree's rank sends two pieces in a loop, halving and doubling over 8 ranks 14."""
    for name, algorithm, skew in (("broadcast", "tree", 4), ("allreduce", "halving_doubling", 1)):
        schedule = COLLECTIVES[name].algorithms[algorithm].schedule(ScheduleOptions(8, 10_000, 100, slots=8))
        assert cast(ProgramSchedule, schedule).skew == skew


@pytest.mark.parametrize("dtype", list(Dtype))
@pytest.mark.parametrize("name", [name for name in COLLECTIVES if name != "barrier"])
def test_all_types_of_elements(name: str, dtype: Dtype) -> None:
    """Values are so small that sums of four are exact in every type."""
    collective = COLLECTIVES[name]
    inputs = [(one % 4).astype(dtype.numpy) for one in map(np.nan_to_num, inputs_of(collective, 4, 203))]
    for algorithm in collective.algorithms.values():
        outcome = carried_out(collective, algorithm.schedule(ScheduleOptions(4, 203, 16, 4, dtype)), inputs)
        assert outcome.faults == []
        as_floats: list[Elements] = [one.astype(np.float32) for one in inputs]
        for rank, result in enumerate(outcome.results):
            wanted = right(name, as_floats, rank)
            there = ~np.isnan(wanted)
            assert np.array_equal(result[: wanted.size][there], wanted[there])


def test_a_rank_holds_few_values_at_once() -> None:
    """One for each other rank's chunk that it adds up or passes on, not one for each step."""
    for program, most in ((compiled(sharded, Layout(16)), 1), (compiled(halving_doubling, Layout(16)), 24)):
        assert max(rank.slots for rank in program.ranks) <= most
    assert pickle.loads(pickle.dumps(compiled(sharded, Layout(4)))) == compiled(sharded, Layout(4))


def test_connections_between_ranks_of_a_node_are_format_apart() -> None:
    groups = ((0, 1), (2, 3))
    for name in ("all_to_all", "reduce_scatter"):
        schedule = COLLECTIVES[name].algorithms["direct"].schedule(ScheduleOptions(4, 100, 10, groups=groups))
        assert Edge(1, 0, 1) in schedule.edges
        assert Edge(0, 0, 2) in schedule.edges
