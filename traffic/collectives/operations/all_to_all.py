"""All-to-all: rank i's block j becomes rank j's block i. It is direct (``ncclAlltoAll``)."""

from __future__ import annotations

from functools import partial

from traffic.collectives.collective import Collective, Expected, all_elements, block_of, of_one_rank
from traffic.collectives.exchange import Block, all_pairs, equal_flows, exchange_algorithm


def expected(rank: int, ranks: int, elements: int) -> tuple[Expected, ...]:
    """Return that a rank gets, one behind the other, the blocks that all ranks have for it."""
    first = block_of(rank, ranks, elements).start
    places = (_place(rank, source, ranks, elements) for source in range(ranks))
    return tuple(Expected(place, (source,), first) for source, place in enumerate(places))


def _place(rank: int, source: int, ranks: int, elements: int) -> slice:
    """Return where in a rank's result the block of a source is."""
    block = block_of(rank, ranks, elements)
    length = block.stop - block.start
    return slice(source * length, (source + 1) * length)


def exchanged(source: int, target: int, ranks: int, elements: int) -> Block:
    """Return what goes from rank to rank."""
    return Block(block_of(target, ranks, elements), _place(target, source, ranks, elements).start)


ALL_TO_ALL = Collective(
    name="all_to_all",
    size="what each rank has before",
    input=all_elements,
    expected=expected,
    busbw_factor=of_one_rank,
    algorithms={"direct": exchange_algorithm(all_pairs, exchanged, partial(equal_flows, all_pairs))},
    in_place=False,
)
