"""All-to-all: rank i's block j becomes rank j's block i. It is direct (``ncclAlltoAll``)."""

from __future__ import annotations

from traffic.collectives.chunk_program import BEHIND, DATA, OUTPUT, ChunkProgram, ProgramTrace
from traffic.collectives.collective import Collective, Expected, Layout, all_elements, block_of, of_one_rank
from traffic.collectives.program_schedule import program_algorithm


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


def direct(layout: Layout) -> ChunkProgram:
    """Return the program in which every block goes straight to its rank, one distance after the other."""
    trace = ProgramTrace(layout, [1] * layout.ranks, all_elements)
    for distance in range(layout.ranks):
        for rank in range(layout.ranks):
            target = (rank + distance) % layout.ranks
            if target == rank:
                trace.move(rank, (DATA, rank), (OUTPUT, rank))
            else:
                trace.copy(rank, target, (DATA, target), (OUTPUT, rank))
    return trace.program(expected, OUTPUT, behind=BEHIND)


ALL_TO_ALL = Collective(
    name="all_to_all",
    size="what each rank has before",
    input=all_elements,
    expected=expected,
    busbw_factor=of_one_rank,
    algorithms={"direct": program_algorithm(direct, expected)},
    in_place=False,
)
