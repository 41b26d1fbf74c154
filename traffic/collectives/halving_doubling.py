"""Allreduce by recursive halving and doubling (Rabenseifner): a reduce-scatter over ever nearer partners, then back.

Of p = 2^k ranks, rank i ends the halving with chunk i of p: in each round it sends its partner (i with one bit of its
number changed) the half of its chunks that are the partner's and adds those that it gets. Doubling goes the same way
back. That is 2(p-1)/p S for each rank, as a ring, in 2k rounds instead of 2(p-1).

Of other numbers n the n-p last ranks first send all to a partner among the first p and get the sum from it at the end.
Partners so take S more and send S more than others: (2(p-1)/p + 1) S each way. Done one after the other, as MPI
libraries do, that is up to 2S/B longer than with p ranks; here loops overlap, and links carry both ways at once.
"""

from __future__ import annotations

from traffic.collectives.chunk_program import DATA, ChunkProgram, ProgramTrace
from traffic.collectives.collective import Layout, all_elements, sum_everywhere


def halving_doubling(layout: Layout) -> ChunkProgram:
    """Return the program."""
    core = 1 << (layout.ranks.bit_length() - 1)
    trace = ProgramTrace(layout, [1] * core, all_elements)
    for extra in range(core, layout.ranks):
        for chunk in range(core):
            trace.add(extra, extra - core, (DATA, chunk))
    distances = [1 << bit for bit in reversed(range(core.bit_length() - 1))]
    for distance in distances:
        _exchange(trace, core, distance, halves=True)
    for distance in reversed(distances):
        _exchange(trace, core, distance, halves=False)
    for extra in range(core, layout.ranks):
        for chunk in range(core):
            trace.copy(extra - core, extra, (DATA, chunk))
    return trace.program(sum_everywhere)


def _exchange(trace: ProgramTrace, core: int, distance: int, halves: bool) -> None:
    """Let all partners of a distance exchange: chunks that are the partner's, or those that the rank has whole."""
    for offset in range(distance):
        for rank in range(core):
            partner = rank ^ distance
            # Chunks that agree in all higher bits; of the lower ones, one offset after the other for all ranks.
            owner = partner if halves else rank
            chunk = (owner & ~(distance - 1)) | offset
            if halves:
                trace.add(rank, partner, (DATA, chunk))
            else:
                trace.copy(rank, partner, (DATA, chunk))
