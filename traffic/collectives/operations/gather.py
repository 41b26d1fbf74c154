"""Gather: the root gets the blocks of all ranks. Each goes straight there, as in nccl-tests (``gather.cu``)."""

from __future__ import annotations

from functools import partial

from traffic.collectives.collective import ROOT, Collective, Expected, block_of, of_one_rank
from traffic.collectives.exchange import Block, equal_flows, exchange_algorithm
from traffic.collectives.operations import all_gather


def expected(rank: int, ranks: int, elements: int) -> tuple[Expected, ...]:
    """Return that the root gets every rank's block, each at its place, and the others nothing."""
    return all_gather.expected(rank, ranks, elements) if rank == ROOT else ()


def to_root(ranks: int) -> list[tuple[int, int]]:
    """Return that each rank sends to the root."""
    return [(source, ROOT) for source in range(ranks)]


def exchanged(source: int, target: int, ranks: int, elements: int) -> Block:
    """Return that a rank's block keeps its place."""
    block = block_of(source, ranks, elements)
    return Block(block, block.start)


GATHER = Collective(
    name="gather",
    size="what the root has afterwards",
    input=block_of,
    expected=expected,
    busbw_factor=of_one_rank,
    algorithms={"direct": exchange_algorithm(to_root, exchanged, partial(equal_flows, to_root))},
    root=ROOT,
)
