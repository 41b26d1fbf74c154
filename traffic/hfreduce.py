"""HFReduce: allreduce on the CPU over a double binary tree (Fire-Flyer AI-HPC, arXiv 2408.14158v2, section IV).

A rank is a compute node. In the node the buffers of its GPUs are added chunk by chunk into host memory (the paper's
Algorithm 1, here numpy on buffers that stand for the GPUs'). Between nodes chunks travel up both trees, added on the
way, and back down (Algorithm 2). All stages overlap, each in threads of its own: one for the node's sum, and for each
tree one that reduces and one that broadcasts. Each tree carries half of the data over one full-duplex connection per
edge.

The paper's last stage, the copy back to the GPUs, is not carried out: no byte of it crosses the fabric.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Annotated

import numpy as np
from pydantic import Field

from fabric.config import SizeBytes, Strict
from fabric.identity import NodeId
from fabric.lanes import ServiceLevel
from traffic.collective import AddressOf, Collective, CollectiveConfig, CollectiveJob, ElementsBytes, zones_of
from traffic.dataset import ELEMENT_BYTES, Floats, pieces
from traffic.job import Stage
from traffic.links import Edge, Handoff, Link
from traffic.trees import DoubleTree, double_binary_tree, sent_fractions, zone_aware_double_tree


class TreeKind(str, Enum):
    """``zone_aware``: one pair of nodes talks across zones, as the paper says. ``plain``: NCCL's double binary tree."""

    ZONE_AWARE = "zone_aware"
    PLAIN = "plain"


class HostMemoryConfig(Strict):
    """The memory of a host, which caps the node's sum at ``bandwidth / operations_per_byte``.

    Values are those of the system that the fabric stands for (section IV-D3: 320 GB/s and 24 operations a byte, so
    13.3 GB/s); the job scales them down like the fabric's NICs.
    """

    bandwidth: Annotated[SizeBytes, Field(gt=0)] = 320 * 10**9
    """Bytes per second."""
    operations_per_byte: Annotated[float, Field(gt=0)] = 24.0

    @property
    def cap_bytes_per_s(self) -> float:
        """How many bytes of the sum a second the host can make, at full scale."""
        return self.bandwidth / self.operations_per_byte


class HFReduceConfig(CollectiveConfig):
    """An HFReduce of ``size`` bytes a GPU. ``chunk`` is the paper's Chunk_Size, which it does not give."""

    chunk: ElementsBytes = 32 * 1024
    gpus_per_node: Annotated[int, Field(ge=1)] = 8
    tree: Annotated[TreeKind, Field(strict=False)] = TreeKind.ZONE_AWARE
    host_memory: HostMemoryConfig | None = None


@dataclass(frozen=True)
class TreeAllreduce:
    """HFReduce as a schedule. ``node_sum_bytes_per_s`` caps the output of the node's sum; None leaves it to the CPU."""

    trees: DoubleTree
    elements: int
    chunk_elements: int
    node_sum_bytes_per_s: float | None = None

    @property
    def full_duplex(self) -> bool:
        """Sums go up and results go down every edge."""
        return True

    @property
    def edges(self) -> tuple[Edge, ...]:
        """A connection for every edge of both trees; children dial."""
        return tuple(sorted(Edge(channel, *edge) for channel, tree in enumerate(self.trees) for edge in tree.edges()))

    def chunks(self, channel: int) -> tuple[slice, ...]:
        """Return the elements of each chunk that a tree carries: the first carries the first half, rounded up."""
        half = (self.elements + 1) // 2
        start, stop = ((0, half), (half, self.elements))[channel]
        return tuple(pieces(start, stop, self.chunk_elements))

    def worker(self, rank: int, links: Mapping[Edge, Link], inputs: Sequence[Floats], timeout_s: float) -> TreeWorker:
        """Return a rank's part."""
        return TreeWorker(self, rank, links, inputs, timeout_s)


class TreeWorker:
    """A rank's part in :class:`TreeAllreduce`: the sum in the node, and each tree's reduce and broadcast."""

    def __init__(
        self, schedule: TreeAllreduce, rank: int, links: Mapping[Edge, Link], inputs: Sequence[Floats], timeout_s: float
    ) -> None:
        self.result: Floats = np.empty(schedule.elements, np.float32)
        self._inputs = inputs
        self._host: Floats = np.empty(schedule.elements, np.float32)
        self._node_sum_bytes_per_s = schedule.node_sum_bytes_per_s
        self._branches = tuple(
            _Branch(schedule, channel, rank, links, self._host, self.result, timeout_s) for channel in range(2)
        )

    def tasks(self, step: int) -> Sequence[Callable[[], None]]:
        """Return the step's five tasks."""
        tasks: list[Callable[[], None]] = [self._sum_in_node]
        for branch in self._branches:
            tasks += [branch.reducing(step), branch.broadcasting(step)]
        return tasks

    def abort(self) -> None:
        """Wake every thread that waits for another of this rank."""
        for branch in self._branches:
            branch.summed.abort()
            branch.reduced.abort()

    def _sum_in_node(self) -> None:
        """Add the GPUs' buffers chunk by chunk, the trees in turn, no faster than the host's memory."""
        started = time.monotonic()
        made_bytes = 0
        for place in range(len(self._branches[0].chunks)):
            for branch in self._branches:
                if place >= len(branch.chunks):
                    continue
                part = self._host[branch.chunks[place]]
                self._add_inputs(branch.chunks[place], part)
                made_bytes += part.nbytes
                if self._node_sum_bytes_per_s is not None:
                    _sleep_until(started + made_bytes / self._node_sum_bytes_per_s)
                branch.summed.done()

    def _add_inputs(self, chunk: slice, out: Floats) -> None:
        first, *others = self._inputs
        if not others:
            out[:] = first[chunk]
            return
        np.add(first[chunk], others[0][chunk], out=out)
        for buffer in others[1:]:
            np.add(out, buffer[chunk], out=out)


class _Branch:
    """A rank's place in one of the two trees."""

    def __init__(
        self,
        schedule: TreeAllreduce,
        channel: int,
        rank: int,
        links: Mapping[Edge, Link],
        host: Floats,
        result: Floats,
        timeout_s: float,
    ) -> None:
        tree = schedule.trees[channel]
        parent = tree.parent[rank]
        self.chunks = schedule.chunks(channel)
        self.summed = Handoff(f"rank {rank}, tree {channel}: sum in the node", timeout_s)
        self.reduced = Handoff(f"rank {rank}, tree {channel}: sum at the root", timeout_s)
        self._up = None if parent is None else links[Edge(channel, rank, parent)]
        self._down = [links[Edge(channel, child, rank)] for child in tree.children[rank]]
        self._host = host
        self._result = result
        self._received: Floats = np.empty(min(schedule.chunk_elements, schedule.elements), np.float32)

    def reducing(self, step: int) -> Callable[[], None]:
        """Return the task that adds the children's chunks to the node's and sends the sum up; the root keeps it."""

        def reduce() -> None:
            for number, chunk in enumerate(self.chunks):
                self.summed.wait()
                part = self._host[chunk]
                received = self._received[: len(part)]
                for child in self._down:
                    child.receive(step, number, received)
                    np.add(part, received, out=part)
                if self._up is not None:
                    self._up.send(step, number, part)
                else:
                    self._result[chunk] = part
                    self.reduced.done()

        return reduce

    def broadcasting(self, step: int) -> Callable[[], None]:
        """Return the task that takes the sum from above and hands it to the children."""

        def broadcast() -> None:
            for number, chunk in enumerate(self.chunks):
                part = self._result[chunk]
                if self._up is not None:
                    self._up.receive(step, number, part)
                else:
                    self.reduced.wait()
                for child in self._down:
                    child.send(step, number, part)

        return broadcast


def _sleep_until(deadline: float) -> None:
    ahead_s = deadline - time.monotonic()
    if ahead_s > 0:
        time.sleep(ahead_s)


class HFReduceJob(CollectiveJob):
    """HFReduce over ``ranks``, one per compute node, in the service level of the same name."""

    def __init__(
        self, stage: Stage, config: HFReduceConfig, ranks: Sequence[NodeId], address_of: AddressOf | None = None
    ) -> None:
        self.trees = trees_of(config.tree, zones_of(stage, ranks))
        cap = _node_sum_bytes_per_s(stage, config)
        elements = config.size // ELEMENT_BYTES
        schedule = TreeAllreduce(self.trees, elements, min(config.chunk // ELEMENT_BYTES, elements), cap)
        nic_s = max(sent_fractions(self.trees)) * config.size * 8 / stage.fabric.nic_rate_bps
        memory_s = config.size / cap if cap else 0.0
        collective = Collective("HFReduce", ServiceLevel.HFREDUCE, schedule, config.gpus_per_node, max(nic_s, memory_s))
        super().__init__(stage, collective, config, ranks, address_of)


def trees_of(kind: TreeKind, zones: Sequence[int]) -> DoubleTree:
    """Return the trees over ranks whose zones are ``zones``."""
    return double_binary_tree(len(zones)) if kind is TreeKind.PLAIN else zone_aware_double_tree(zones)


def _node_sum_bytes_per_s(stage: Stage, config: HFReduceConfig) -> float | None:
    if config.host_memory is None:
        return None
    return config.host_memory.cap_bytes_per_s / stage.fabric.scale
