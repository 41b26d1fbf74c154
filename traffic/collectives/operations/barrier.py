"""Barrier: no rank goes on before all have come.

It is a dissemination barrier, as MPI libraries have (NCCL has none): in round k a rank tells the rank 2^k places after
it that it and all that it has heard of are there, and waits for the rank 2^k places before it: log2(n) rounds, rounded
up. Messages have a frame's header and no data.
"""

from __future__ import annotations

from traffic.collectives.chunk_program import DATA, SCRATCH, ChunkProgram, ProgramTrace
from traffic.collectives.collective import Collective, Expected, Layout, all_elements, no_elements, of_all_data
from traffic.collectives.program_schedule import program_algorithm


def expected(rank: int, ranks: int, elements: int) -> tuple[Expected, ...]:
    """Return that ranks get nothing."""
    return ()


def dissemination(layout: Layout) -> ChunkProgram:
    """Return the program. What travels is a chunk without weight, so that it has no elements, whatever the size."""
    trace = ProgramTrace(layout, [0, 1], all_elements)
    rounds = (layout.ranks - 1).bit_length()
    heard: list[tuple[str, int]] = [(DATA, 0)] * layout.ranks
    for number in range(rounds):
        here = list(heard)
        for rank in range(layout.ranks):
            target = (rank + (1 << number)) % layout.ranks
            trace.copy(rank, target, here[rank], (SCRATCH, number))
            heard[target] = (SCRATCH, number)
    return trace.program(expected, signals=True)


BARRIER = Collective(
    name="barrier",
    size="0: there is no data",
    input=no_elements,
    expected=expected,
    busbw_factor=of_all_data,
    algorithms={"dissemination": program_algorithm(dissemination, expected)},
    synchronises=True,
)
