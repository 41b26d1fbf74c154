"""Send/receive: each rank sends all that it has to the next and gets what the one before it has (``sendrecv.cu``)."""

from __future__ import annotations

from traffic.collectives.collective import Collective, Expected, all_elements, of_all_data
from traffic.collectives.exchange import Block, exchange_algorithm


def expected(rank: int, ranks: int, elements: int) -> tuple[Expected, ...]:
    """Return that each rank gets the input of the rank before it."""
    return (Expected(slice(0, elements), ((rank - 1) % ranks,), 0),)


def to_next(ranks: int) -> list[tuple[int, int]]:
    """Return that each rank sends to the next."""
    return [(rank, (rank + 1) % ranks) for rank in range(ranks)]


def exchanged(source: int, target: int, ranks: int, elements: int) -> Block:
    """Return that all goes, and keeps its place."""
    return Block(slice(0, elements), 0)


def _flows(ranks: int) -> list[tuple[int, int, float]]:
    return [(source, target, 1.0) for source, target in to_next(ranks)]


SEND_RECEIVE = Collective(
    name="send_receive",
    size="what each rank sends",
    input=all_elements,
    expected=expected,
    busbw_factor=of_all_data,
    algorithms={"direct": exchange_algorithm(to_next, exchanged, _flows)},
    in_place=False,
)
