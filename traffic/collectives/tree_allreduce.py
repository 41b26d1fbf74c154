"""An allreduce over a double tree: what HFReduce does between nodes and in them, and NCCL's tree."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import numpy as np

from traffic.collectives.chunk_connection import ChunkConnection, Edge, Handoff, Slots
from traffic.collectives.dataset import adder_of, pieces
from traffic.collectives.elements import Dtype, Elements, ElementType
from traffic.collectives.gpu_copies import TREES, CpuSide, GpuSide, NodeLinks
from traffic.collectives.schedule import DEFAULT_SLOTS, Finished, RankContext
from traffic.collectives.trees import DoubleTree


@dataclass(frozen=True)
class TreeAllreduce:
    """An allreduce over a double tree as a schedule.

    ``node_sum_bytes_per_s`` caps the output of the node's sum; None leaves it to the CPU. ``slots``: how many chunks of
    a tree its root holds between their sum and the last child that takes it. When all are in use the root sums up no
    more, its children's sums wait in TCP, and so their ranks do.
    """

    trees: DoubleTree
    elements: int
    chunk_elements: int
    node_sum_bytes_per_s: float | None = None
    slots: int = DEFAULT_SLOTS
    dtype: ElementType = Dtype.FP32

    @property
    def edges(self) -> tuple[Edge, ...]:
        """Two connections for every edge of both trees: for sums on their way up, and for results on their way down.

        With data both ways on one, acknowledgements in a lane of their own (``queues.acknowledgements: control``) would
        overtake it, and what it says itself of the other way would be so old when it comes that TCP drops it (RFC 5961,
        5.2).
        """
        ways = [(channel, *edge) for channel, tree in enumerate(self.trees) for edge in tree.edges()]
        up = [_upward(channel, child, parent) for channel, child, parent in ways]
        return tuple(sorted(up + [_downward(channel, parent, child) for channel, child, parent in ways]))

    def chunks(self, channel: int) -> tuple[slice, ...]:
        """Return the elements of each chunk that a tree carries: the first carries the first half, rounded up."""
        half = (self.elements + 1) // 2
        start, stop = ((0, half), (half, self.elements))[channel]
        return tuple(pieces(start, stop, self.chunk_elements))

    @property
    def longest_piece(self) -> int:
        """The elements of a chunk."""
        return min(self.chunk_elements, self.elements)

    def shortened(self, elements: int) -> TreeAllreduce:
        """Return the same trees with the first ``elements``."""
        return replace(self, elements=min(elements, self.elements))

    def worker(self, context: RankContext, finished: Sequence[Finished]) -> TreeWorker:
        """Return a rank's part."""
        return TreeWorker(self, context, finished)


def _upward(channel: int, child: int, parent: int) -> Edge:
    return Edge(channel, child, parent)


def _downward(channel: int, parent: int, child: int) -> Edge:
    return Edge(TREES + channel, parent, child)


class TreeWorker:
    """A rank's part in :class:`TreeAllreduce`: each tree's reduce and broadcast."""

    def __init__(self, schedule: TreeAllreduce, context: RankContext, finished: Sequence[Finished]) -> None:
        memory = _HostMemory(schedule.node_sum_bytes_per_s, TREES * schedule.longest_piece * schedule.dtype.size_bytes)
        self._branches = tuple(_Branch(schedule, channel, context, memory, finished) for channel in range(TREES))

    def tasks(self, step: int) -> Sequence[Callable[[], None]]:
        """Return the step's tasks: two for each tree, and two for each GPU and tree of a node with an inside."""
        started = time.monotonic()
        tasks: list[Callable[[], None]] = []
        for branch in self._branches:
            tasks += [partial(branch.reduce, step, started), partial(branch.broadcast, step)]
            tasks += branch.gpu_tasks(step)
        return tasks

    def abort(self) -> None:
        """Wake every thread that waits for another of this rank."""
        for branch in self._branches:
            branch.abort()


class _HostMemory:
    """Delivers the node's sum at a rate, whichever tree it is for. It works at most ``ahead_bytes`` ahead of those who
    take the sum: unused rate does not accumulate."""

    def __init__(self, bytes_per_s: float | None, ahead_bytes: int) -> None:
        self._bytes_per_s = bytes_per_s
        self._ahead_s = ahead_bytes / bytes_per_s if bytes_per_s else 0.0
        self._lock = threading.Lock()
        self._started = self._done_at = 0.0

    def begin(self, started: float) -> None:
        """Begin a step: nothing of it is summed up before ``started``. Each tree says so."""
        with self._lock:
            if started > self._started:
                self._started = self._done_at = started

    def deliver(self, size_bytes: int) -> None:
        """Wait until so much more of the sum can be there."""
        if self._bytes_per_s is None:
            return
        with self._lock:
            earliest = max(self._started, time.monotonic() - self._ahead_s)
            self._done_at = due = max(self._done_at, earliest) + size_bytes / self._bytes_per_s
        _sleep_until(due)


@dataclass(frozen=True)
class _Neighbour:
    """The connections with the next rank up or down a tree: one for sums, one for results."""

    upward: ChunkConnection
    downward: ChunkConnection

    @classmethod
    def of(cls, context: RankContext, channel: int, child: int, parent: int) -> _Neighbour:
        """Return the connections between two ranks, of which one is the context's."""
        return cls(context.links[_upward(channel, child, parent)], context.links[_downward(channel, parent, child)])


class _Room(NamedTuple):
    """Memory for a chunk each: of the node's sum, of what a child sent, of the result."""

    sum: Elements
    received: Elements
    result: Elements


@dataclass(frozen=True)
class _NodeSide:
    """What a rank does inside its node for one tree: the CPU's part, and each GPU's with whom to tell of its result."""

    cpu: CpuSide
    gpus: Sequence[GpuSide]
    told: Sequence[Finished]

    @classmethod
    def of(
        cls, schedule: TreeAllreduce, channel: int, context: RankContext, finished: Sequence[Finished]
    ) -> _NodeSide | None:
        """Return it; None if the node is a point."""
        node = context.node
        if node is None:
            return None
        assert isinstance(node, NodeLinks), "a tree's node is one of these"
        links, chunks = node.of_trees[channel], schedule.chunks(channel)
        dtype = schedule.dtype
        gpus = [GpuSide(node.parts, gpu, own, context.inputs[gpu], chunks, dtype) for gpu, own in enumerate(links)]
        return cls(CpuSide(node.parts, links, schedule.longest_piece, dtype), gpus, finished)

    def tasks(self, step: int) -> list[Callable[[], None]]:
        """Return what the GPUs do in a step. Each checks its own result."""
        takes = [partial(gpu.take, step, told) for gpu, told in zip(self.gpus, self.told, strict=True)]
        return [*(partial(gpu.give, step) for gpu in self.gpus), *takes]


class _Branch:
    """A rank's place in one of the two trees."""

    def __init__(
        self,
        schedule: TreeAllreduce,
        channel: int,
        context: RankContext,
        memory: _HostMemory,
        finished: Sequence[Finished],
    ) -> None:
        tree, rank = schedule.trees[channel], context.rank
        parent = tree.parent[rank]
        children = tree.children[rank]
        self._chunks = schedule.chunks(channel)
        self._parent = None if parent is None else _Neighbour.of(context, channel, child=rank, parent=parent)
        self._children = [_Neighbour.of(context, channel, child, rank) for child in children]
        self._inputs = context.inputs
        self._add_up = adder_of(context.inputs)
        self._combine = context.combine
        self._memory = memory
        self._finished = finished[0]
        # Memory that is not used is not touched, and so is none.
        self._room = _Room(*np.empty((3, schedule.longest_piece), schedule.dtype.numpy))
        self._node = _NodeSide.of(schedule, channel, context, finished)
        what = f"rank {rank}, tree {channel}"
        room = f"{what}: room at the root"
        self._slots = Slots(schedule.longest_piece, schedule.dtype, schedule.slots, room, context.timeout_s)
        self._at_root = Handoff(f"{what}: sum at the root", context.timeout_s)

    def abort(self) -> None:
        """Wake both threads, as far as they wait for each other."""
        self._at_root.abort()
        self._slots.abort()

    def gpu_tasks(self, step: int) -> list[Callable[[], None]]:
        """Return what the node's GPUs do in a step; nothing where data begins and ends in host memory."""
        return [] if self._node is None else self._node.tasks(step)

    def reduce(self, step: int, started: float) -> None:
        """Add the node's and the children's chunks and send the sum up; the root hands it to :meth:`broadcast`."""
        self._memory.begin(started)
        element_bytes = self._room.sum.itemsize
        for number, chunk in enumerate(self._chunks):
            length = chunk.stop - chunk.start
            self._memory.deliver(length * element_bytes)
            if self._parent is None:
                slot = self._slots.take()
                self._sum_up(step, number, chunk, slot[:length])
                self._at_root.put(slot)
            else:
                self._parent.upward.send(step, number, self._sum_up(step, number, chunk, self._room.sum[:length]))

    def _sum_up(self, step: int, number: int, chunk: slice, out: Elements) -> Elements:
        """Return the sum of a chunk over this node and those below it: in ``out``, unless it is another's already."""
        total = out
        if self._node is not None:
            self._node.cpu.add_up(step, number, chunk, out)
        elif len(self._inputs) == 1 and self._parent is not None:
            total = self._inputs[0][chunk]
        else:
            self._add_up(chunk, out)
        received = self._room.received[: out.size]
        for child in self._children:
            child.upward.receive(step, number, received)
            if self._node is not None:
                self._node.cpu.operate(received.nbytes)
            total = self._combine(total, received, out)
        return total

    def broadcast(self, step: int) -> None:
        """Take the sum from above and hand it to the children."""
        for number, chunk in enumerate(self._chunks):
            slot = self._at_root.get() if self._parent is None else self._room.result
            part = slot[: chunk.stop - chunk.start]
            if self._parent is not None:
                self._parent.downward.receive(step, number, part)
            for child in self._children:
                child.downward.send(step, number, part)
            if self._node is None:
                self._finished(chunk, part)
            else:
                self._node.cpu.hand_out(step, number, chunk, part)
            if self._parent is None:
                self._slots.give_back(slot)


def _sleep_until(deadline: float) -> None:
    ahead_s = deadline - time.monotonic()
    if ahead_s > 0:
        time.sleep(ahead_s)
