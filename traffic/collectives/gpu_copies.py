"""What an HFReduce moves inside a node: chunks from its GPUs to its CPU (D2H), and the results back (H2D).

::

    GPU a  --half of the chunk-->  GPU b     over NVLink, where pairs have it: each adds, and has half of the pair's sum
      |                              |
      +---- its share (D2H) ---------+---->  CPU: adds all shares, which takes memory operations
      <---- its share of the result (H2D) --
    GPU a  <--the other share-->  GPU b      over NVLink

Arithmetic is the paper's (arXiv 2408.14158v2, IV-B, Algorithm 1, and IV-C with NVLink). Chunks cross the node's own
links on connections between its parts; where these lie, and how fast, is the fabric's concern.

The CPU's memory operations of its adding are taken from the memory's budget: a read of each share, a write of the sum;
and a read of what a child sent. Those of D2H, H2D and the NIC are taken as frames come and go.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from fabric.queueing.budgets import Reserving
from traffic.collectives.chunk_connection import ChunkConnection, send_side_by_side
from traffic.collectives.dataset import Buffer
from traffic.collectives.elements import Elements, ElementType, add
from traffic.transport.connection import Transport

TREES = 2
"""Of a double tree."""
_CONNECT_TIMEOUT_S = 60.0


@dataclass(frozen=True)
class NodeParts:
    """Where a node's parts are: the addresses of its CPU and its GPUs, on PCIe and, of pairs, on NVLink.

    ``pairs`` has the partner of each GPU, or is empty. ``memory_budget``: the number of the node's memory.
    ``copies_ahead``: how many shares of a chunk wait at a copy engine, beside the one on its way.
    """

    cpu: str
    gpus: tuple[str, ...]
    memory_budget: int
    pairs: tuple[int, ...] = ()
    nvlink: tuple[str, ...] = ()
    copies_ahead: int = 1

    def share(self, gpu: int, chunk: slice) -> slice:
        """Return the elements of a chunk that a GPU exchanges with the CPU: all, or with NVLink its half."""
        if not self.pairs:
            return chunk
        middle = (chunk.start + chunk.stop + 1) // 2
        return slice(chunk.start, middle) if gpu < self.pairs[gpu] else slice(middle, chunk.stop)

    def longest_share(self, chunk: int) -> int:
        """Return the most that a GPU exchanges with the CPU of a chunk of this length, in the same unit."""
        return (chunk + 1) // 2 if self.pairs else chunk

    def connect(self, chunk_bytes: int, transport: Transport, name: str, timeout_s: float) -> NodeLinks:
        """Connect the parts, tree by tree. Raises UnreachableError if one does not answer."""
        return NodeLinks(self, connect_parts(self, TREES, chunk_bytes, transport, name, timeout_s))

    @property
    def reads_per_element(self) -> int:
        """How many GPUs' shares cover each element."""
        return len(self.gpus) // (2 if self.pairs else 1)


@dataclass(frozen=True)
class GpuLinks:
    """The connections of one GPU, of one tree: its ends and the CPU's; ``to_peer`` and ``from_peer`` over NVLink."""

    to_cpu: ChunkConnection
    cpu_from: ChunkConnection
    cpu_to: ChunkConnection
    from_cpu: ChunkConnection
    to_peer: dict[int, ChunkConnection] = field(default_factory=dict)
    from_peer: dict[int, ChunkConnection] = field(default_factory=dict)

    @property
    def all(self) -> tuple[ChunkConnection, ...]:
        """Every end of every connection."""
        ends = (self.to_cpu, self.cpu_from, self.cpu_to, self.from_cpu)
        return (*ends, *self.to_peer.values(), *self.from_peer.values())


@dataclass(frozen=True)
class NodeLinks:
    """The connections inside a node: those of each GPU, tree by tree. Each GPU has a result."""

    parts: NodeParts
    of_trees: Sequence[Sequence[GpuLinks]]

    @property
    def results(self) -> int:
        """As many as GPUs."""
        return len(self.parts.gpus)

    def abort(self) -> None:
        """Wake the threads that wait on these connections."""
        for link in (link for tree in self.of_trees for gpu in tree for link in gpu.all):
            link.abort()


def connect_parts(
    parts: NodeParts, trees: int, chunk_bytes: int, transport: Transport, name: str, timeout_s: float
) -> list[list[GpuLinks]]:
    """Return the connections of each GPU, tree by tree. Raises UnreachableError if a part does not answer."""
    # What waits in a queue that all copies share holds up those to and from other GPUs: it has to wait in the sender.
    # A connection leaves room for one more, the share on its way.
    joined = _Joining(transport, parts.copies_ahead * parts.longest_share(chunk_bytes), name, timeout_s).joined
    found = []
    for tree in range(trees):
        links = []
        for gpu in parts.gpus:
            up, up_end = joined(gpu, parts.cpu, tree)
            down, down_end = joined(parts.cpu, gpu, tree)
            links.append(GpuLinks(up, up_end, down, down_end))
        for one, peer in enumerate(parts.pairs):
            for way in range(2):  # Shares before the CPU adds, and results after.
                links[one].to_peer[way], links[peer].from_peer[way] = joined(
                    parts.nvlink[one], parts.nvlink[peer], tree
                )
        found.append(links)
    return found


@dataclass(frozen=True)
class _Joining:
    """How connections inside a node are made, whichever of its parts they join. ``send_bytes``: what waits in the
    sender at most."""

    transport: Transport
    send_bytes: int
    node: str
    timeout_s: float

    def joined(self, source: str, target: str, tree: int) -> tuple[ChunkConnection, ChunkConnection]:
        """Return both ends of a connection, the source's first."""
        listener = self.transport.listen(target)
        dialled = self.transport.connect(listener.endpoint, _CONNECT_TIMEOUT_S, source)
        accepted = listener.accept(_CONNECT_TIMEOUT_S)
        listener.close()
        dialled.limit_send_buffer(self.send_bytes)
        name = f"{self.node}, {source} to {target}"
        return (
            ChunkConnection(dialled, tree, name, self.timeout_s),
            ChunkConnection(accepted, tree, name, self.timeout_s),
        )


class GpuSide:
    """One GPU's part of one tree: what it sends of its own data, and what it receives of the result."""

    def __init__(
        self, parts: NodeParts, gpu: int, links: GpuLinks, data: Buffer, chunks: Sequence[slice], dtype: ElementType
    ) -> None:
        self._parts, self._gpu, self._links, self._data = parts, gpu, links, data
        self._chunks = chunks
        longest = max((chunk.stop - chunk.start for chunk in chunks), default=0)
        self._sum, self._received, self._result = np.empty((3, longest), dtype.numpy)

    def give(self, step: int) -> None:
        """Send all shares to the CPU; with NVLink, the pair's sum of them."""
        for number, chunk in enumerate(self._chunks):
            share = self._parts.share(self._gpu, chunk)
            if not self._parts.pairs:
                self._links.to_cpu.send(step, number, self._data[share])
                continue
            others = self._parts.share(self._parts.pairs[self._gpu], chunk)
            self._links.to_peer[0].send(step, number, self._data[others])
            received = self._received[: share.stop - share.start]
            self._links.from_peer[0].receive(step, number, received)
            total = add(self._data[share], received, self._sum[: received.size])
            self._links.to_cpu.send(step, number, total)

    def take(self, step: int, finished: Callable[[slice, Elements], None]) -> None:
        """Receive all of the result, and tell of each chunk."""
        for number, chunk in enumerate(self._chunks):
            result = self._result[: chunk.stop - chunk.start]
            share = self._parts.share(self._gpu, chunk)
            own = result[share.start - chunk.start : share.stop - chunk.start]
            self._links.from_cpu.receive(step, number, own)
            if self._parts.pairs:
                others = self._parts.share(self._parts.pairs[self._gpu], chunk)
                self._links.to_peer[1].send(step, number, own)
                rest = result[others.start - chunk.start : others.stop - chunk.start]
                self._links.from_peer[1].receive(step, number, rest)
            finished(chunk, result)


class CpuSide:
    """The CPU's part of one tree: it adds up what the GPUs send, and hands the result to them."""

    def __init__(self, parts: NodeParts, links: Sequence[GpuLinks], longest_piece: int, dtype: ElementType) -> None:
        self._parts, self._links = parts, links
        self._share = np.empty(longest_piece, dtype.numpy)
        self._memory = Reserving(parts.memory_budget)

    def add_up(self, step: int, number: int, chunk: slice, out: Elements) -> None:
        """Write the sum of all GPUs' shares of a chunk to ``out``; returns when memory has served all of it."""
        filled: set[int] = set()
        for gpu, links in enumerate(self._links):
            share = self._parts.share(gpu, chunk)
            into = out[share.start - chunk.start : share.stop - chunk.start]
            if share.start not in filled:
                filled.add(share.start)
                links.cpu_from.receive(step, number, into)
                continue
            received = self._share[: into.size]
            links.cpu_from.receive(step, number, received)
            add(into, received, into)
        self.operate((self._parts.reads_per_element + 1) * out.nbytes)

    def operate(self, size_bytes: int) -> None:
        """Take as long as memory takes for so many bytes read and written."""
        if size_bytes:
            self._memory.take(size_bytes)

    def hand_out(self, step: int, number: int, chunk: slice, result: Elements) -> None:
        """Send each GPU its share of the result, all side by side."""
        shares = [self._parts.share(gpu, chunk) for gpu in range(len(self._links))]
        parts = [result[share.start - chunk.start : share.stop - chunk.start] for share in shares]
        ends = [links.cpu_to for links in self._links]
        send_side_by_side(zip(ends, parts, strict=True), step, number)
