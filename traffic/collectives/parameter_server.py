"""Parameter servers: workers push gradients to servers, which add them up, and pull the sums (Li et al., OSDI'14).

The data is sharded: each server has a chunk of it. Servers are the last ranks, which have no data of their own; without
any, each worker serves an equal chunk, which is the direct allreduce. So a worker sends and receives S, and each of m
servers n/m S; without servers all send and receive 2(n-1)/n S.

In BytePS (OSDI'20, Theorem 1) workers serve beside k servers, each (n-k)/Z of S, and each server 2(n-1)/Z, with
Z = n^2 + kn - 2k: then all links are equally busy, and a step takes 2n(n-1)/Z S over their rate.
"""

from __future__ import annotations

from dataclasses import dataclass

from traffic.collectives.chunk_program import DATA, SCRATCH, ChunkProgram, Place, ProgramError, ProgramTrace
from traffic.collectives.collective import Expected, Layout


@dataclass(frozen=True)
class WorkersHave:
    """That the last ``servers`` ranks have no data, and all others, the workers, all elements."""

    servers: int

    def __call__(self, rank: int, ranks: int, elements: int) -> slice:
        """Return what a rank has."""
        return slice(0, elements if rank < ranks - self.servers else 0)


@dataclass(frozen=True)
class WorkersGet:
    """That all ranks but the last ``servers`` get the sum over themselves."""

    servers: int

    def __call__(self, rank: int, ranks: int, elements: int) -> tuple[Expected, ...]:
        """Return what a rank gets."""
        workers = ranks - self.servers
        return (Expected(slice(0, elements), tuple(range(workers)), 0),) if rank < workers else ()


def sharded(layout: Layout) -> ChunkProgram:
    """Return the program in which servers alone serve, in equal shares, or without servers all workers."""
    workers = _workers(layout)
    if not layout.servers:
        return _push_pull(layout, [(rank, 1) for rank in range(workers)])
    return _push_pull(layout, [(rank, 1) for rank in range(workers, layout.ranks)])


def shared(layout: Layout) -> ChunkProgram:
    """Return the program in which workers serve beside servers, by BytePS' shares. Raises ProgramError if there are
    more servers than workers: then servers alone are faster."""
    workers, servers = _workers(layout), layout.servers
    if servers > workers:
        raise ProgramError(f"{servers} servers for {workers} workers: BytePS shares work among up to {workers}")
    shares = [(rank, workers - servers) for rank in range(workers)]
    shares += [(rank, 2 * (workers - 1)) for rank in range(workers, layout.ranks)]
    return _push_pull(layout, [one for one in shares if one[1]])


def _workers(layout: Layout) -> int:
    workers = layout.ranks - layout.servers
    if workers < 2:
        raise ProgramError(f"{layout.servers} servers of {layout.ranks} ranks leave {workers} workers; leave 2 or more")
    return workers


def _push_pull(layout: Layout, shares: list[tuple[int, int]]) -> ChunkProgram:
    """Return the program of servers with these shares: in round k a worker talks to the server k places on."""
    workers = layout.ranks - layout.servers
    trace = ProgramTrace(layout, [share for _, share in shares], WorkersHave(layout.servers))
    rounds = [
        (worker, (worker + distance) % len(shares)) for distance in range(len(shares)) for worker in range(workers)
    ]
    held: dict[int, Place] = {chunk: (DATA, chunk) for chunk, (rank, _) in enumerate(shares) if rank < workers}
    for worker, chunk in rounds:
        server = shares[chunk][0]
        if server != worker:
            place = held.get(chunk, (SCRATCH, chunk))
            trace.copy(worker, server, (DATA, chunk), place, adds=chunk in held)
            held[chunk] = place
    for worker, chunk in rounds:
        server = shares[chunk][0]
        if server != worker:
            trace.copy(server, worker, held[chunk], (DATA, chunk))
    return trace.program(WorkersGet(layout.servers))
