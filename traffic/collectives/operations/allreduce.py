"""Allreduce: every rank gets the sum of all inputs.

The ring is a reduce-scatter, then an all-gather. The data is added up in loops, in each of which it is cut into as many
segments as there are ranks. In each of the first n-1 rounds a rank sends one segment to the next rank and adds the one
it receives to its own; then every rank owns one whole sum, and n-1 more rounds hand these round.

The tree is NCCL's double binary tree over the ranks in their order, whatever their zones: the schedule that HFReduce
uses, here with one buffer per rank, so that nothing is added in the node. A rank sends up to twice the size.

Others are chunk programs (:mod:`traffic.collectives.chunk_program`): recursive halving and doubling, direct (each rank
adds up a block for all others, in one round each way), and hierarchical over nodes.
"""

from __future__ import annotations

from collections.abc import Iterator

from traffic.collectives.collective import (
    Collective,
    CollectiveAlgorithm,
    ScheduleOptions,
    all_elements,
    sum_everywhere,
)
from traffic.collectives.dataset import pieces
from traffic.collectives.halving_doubling import halving_doubling
from traffic.collectives.hierarchical import hierarchical
from traffic.collectives.parameter_server import sharded
from traffic.collectives.primitives import Primitive
from traffic.collectives.program_schedule import program_algorithm
from traffic.collectives.ring import Ring, ring_algorithm, ring_flows
from traffic.collectives.tree_allreduce import TreeAllreduce
from traffic.collectives.trees import double_binary_tree, tree_flows

expected = sum_everywhere


def busbw_factor(ranks: int) -> float:
    """Return what a rank of a ring sends, as a multiple of the size."""
    return 2 * (ranks - 1) / ranks


def ring_primitives(ring: Ring, rank: int) -> Iterator[Primitive]:
    """Yield a rank's primitives: in each loop it sends its own segment, then goes on with those that it receives."""
    before, after = ring.neighbours(rank)
    place, last = ring.place_of(rank), 2 * (ring.ranks - 1) - 1
    data = ring.data
    for loop in pieces(data.start, data.stop, ring.ranks * ring.loop_elements):
        for piece in ring.slices(_segment(loop, place, ring.ranks)):
            yield Primitive(own=piece, target=after)
        for round_number in range(last + 1):
            # The sum is whole here after the first half's last round, and elsewhere when it comes round in the second.
            adds, is_whole = round_number < ring.ranks - 1, round_number >= ring.ranks - 2
            target = after if round_number < last else None
            for piece in ring.slices(_segment(loop, place - 1 - round_number, ring.ranks)):
                yield Primitive(before, piece if adds else None, piece if is_whole else None, target)


def _segment(loop: slice, number: int, ranks: int) -> slice:
    number, length = number % ranks, loop.stop - loop.start
    return slice(loop.start + length * number // ranks, loop.start + length * (number + 1) // ranks)


def _ring_flows(ranks: int) -> list[tuple[int, int, float]]:
    return ring_flows(busbw_factor(ranks), ranks)


def _tree(options: ScheduleOptions) -> TreeAllreduce:
    trees = double_binary_tree(options.ranks)
    return TreeAllreduce(trees, options.elements, options.piece_elements, slots=options.slots, dtype=options.dtype)


def _tree_flows(ranks: int) -> list[tuple[int, int, float]]:
    return tree_flows(double_binary_tree(ranks))


ALLREDUCE = Collective(
    name="allreduce",
    size="what each rank has, before and after",
    input=all_elements,
    expected=expected,
    busbw_factor=busbw_factor,
    algorithms={
        "ring": ring_algorithm(ring_primitives, _ring_flows),
        "tree": CollectiveAlgorithm(_tree, _tree_flows),
        "halving_doubling": program_algorithm(halving_doubling, expected),
        "direct": program_algorithm(sharded, expected),
        "hierarchical": program_algorithm(hierarchical, expected),
    },
)
