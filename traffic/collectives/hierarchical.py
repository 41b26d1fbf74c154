"""Allreduce over nodes: a reduce-scatter by a ring in each node, allreduces between nodes, an all-gather in each node.

Of g ranks in each of N nodes, rank i of a node ends the first stage with the node's sum of block i, which it adds up
with the ranks i of all other nodes, by a ring. So for each rank links between nodes carry 2(N-1)/N S/g, and those in
nodes 2(g-1)/g S. NCCL calls a like algorithm CollNet, and 2D rings are the same.
"""

from __future__ import annotations

from collections.abc import Sequence

from traffic.collectives.chunk_program import DATA, ChunkProgram, ProgramTrace, equal_groups
from traffic.collectives.collective import Layout, all_elements, sum_everywhere


def hierarchical(layout: Layout) -> ChunkProgram:
    """Return the program. Block i of a node has a chunk for each node. Raises ProgramError for unequal groups."""
    nodes = equal_groups(layout)
    members = len(nodes[0])
    blocks = [range(place * len(nodes), (place + 1) * len(nodes)) for place in range(members)]
    trace = ProgramTrace(layout, [1] * (members * len(nodes)), all_elements)
    _rings(trace, nodes, [blocks] * len(nodes), adds=True)
    rails = [[node[place] for node in nodes] for place in range(members)]
    singles = [[range(chunk, chunk + 1) for chunk in block] for block in blocks]
    _rings(trace, rails, singles, adds=True)
    _rings(trace, rails, singles, adds=False)
    _rings(trace, nodes, [blocks] * len(nodes), adds=False)
    return trace.program(sum_everywhere)


def _rings(trace: ProgramTrace, rings: Sequence[Sequence[int]], blocks: Sequence[Sequence[range]], adds: bool) -> None:
    """Let each ring add up its blocks, of which the i-th ends at its i-th rank, or hand them round from there."""
    length = len(rings[0])
    for hop in range(length - 1):
        for ring, of_ring in zip(rings, blocks, strict=True):
            for place, block in enumerate(of_ring):
                start = place + 1 + hop if adds else place + hop
                source, target = ring[start % length], ring[(start + 1) % length]
                for chunk in block:
                    trace.copy(source, target, (DATA, chunk), adds=adds)
