"""Scatter: every rank gets its block of the root's data, straight from there, as in nccl-tests (``scatter.cu``)."""

from __future__ import annotations

from functools import partial

from traffic.collectives.collective import ROOT, Collective, Expected, at_root, block_of, of_one_rank
from traffic.collectives.exchange import Block, equal_flows, exchange_algorithm


def expected(rank: int, ranks: int, elements: int) -> tuple[Expected, ...]:
    """Return that each rank gets its block of the root's input, at its place."""
    block = block_of(rank, ranks, elements)
    return (Expected(block, (ROOT,), block.start),)


def from_root(ranks: int) -> list[tuple[int, int]]:
    """Return that the root sends to each rank."""
    return [(ROOT, target) for target in range(ranks)]


def exchanged(source: int, target: int, ranks: int, elements: int) -> Block:
    """Return that a rank's block keeps its place."""
    block = block_of(target, ranks, elements)
    return Block(block, block.start)


SCATTER = Collective(
    name="scatter",
    size="what the root has before",
    input=at_root,
    expected=expected,
    busbw_factor=of_one_rank,
    algorithms={"direct": exchange_algorithm(from_root, exchanged, partial(equal_flows, from_root))},
    root=ROOT,
)
