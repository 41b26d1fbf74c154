"""NCCL-like allreduces over TCP: the ring and the tree.

The ring is a reduce-scatter, then an allgather, over one connection from each rank to the next. The data is added up in
loops, in each of which it is cut into as many segments as there are ranks. In each of the first n-1 rounds a rank sends
one segment to the next rank and adds the one it receives to its own; then every rank owns one whole sum, and n-1 more
rounds hand these round. A segment travels in slices, forwarded one by one, so that rounds overlap. A rank sends
2(n-1)/n of the size.

A rank holds a few slices at most between receiving and sending on, as NCCL's connections do (a FIFO of 8 slots, by
default of 512 KiB each: ``NCCL_STEPS``, ``NCCL_BUFFSIZE``). When all are in use it takes no more, TCP's window closes,
and the rank before it waits: a slow link holds up the whole ring, as it does in NCCL.

The tree is NCCL's double binary tree over the ranks in their order, whatever their zones: the schedule that HFReduce
uses, here with one buffer per rank, so that nothing is added in the node. A rank sends up to twice the size.

A rank is a compute node with one buffer, since between nodes NCCL's rings and trees over all GPUs of a node carry the
same bytes; or, of nodes with an inside, a GPU.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import partial
from typing import Annotated

import numpy as np
from pydantic import Field

from fabric.model.identity import NodeId
from fabric.model.lanes import ServiceLevel
from traffic.collectives.chunk_connection import Edge, Handoff, Slots
from traffic.collectives.dataset import ELEMENT_BYTES, pieces
from traffic.collectives.hfreduce import TreeAllreduce
from traffic.collectives.job import AddressOf, Collective, CollectiveConfig, CollectiveJob, ElementsBytes
from traffic.collectives.rank import DEFAULT_SLOTS, Finished, Schedule, Seat
from traffic.collectives.trees import double_binary_tree, sent_fractions, tree_flows
from traffic.job import Stage
from traffic.metrics import busbw_factor


class Algorithm(str, Enum):
    """Two of NCCL's algorithms, by its names (``NCCL_ALGO``)."""

    RING = "ring"
    TREE = "tree"


class NcclConfig(CollectiveConfig):
    """An allreduce of ``size`` bytes a rank, forwarded in pieces of ``slice`` (NCCL: 1 MiB at full scale)."""

    algorithm: Annotated[Algorithm, Field(strict=False)] = Algorithm.RING
    slice: ElementsBytes = 32 * 1024


@dataclass(frozen=True)
class RingAllreduce:
    """The ring as a schedule. ``slots``: how many slices a rank holds between receiving and sending on.

    The data is added up in loops of as much as gives each rank a segment of half its slots, as NCCL does: with all
    slots free a rank can take in a whole segment while it still sends its own, so no two ranks wait for each other.
    """

    ranks: int
    elements: int
    slice_elements: int
    slots: int = DEFAULT_SLOTS

    @property
    def edges(self) -> tuple[Edge, ...]:
        """A connection from each rank to the next."""
        return tuple(Edge(0, rank, (rank + 1) % self.ranks) for rank in range(self.ranks))

    @property
    def rounds(self) -> int:
        """Rounds of both halves of a loop together."""
        return 2 * (self.ranks - 1)

    @property
    def longest_piece(self) -> int:
        """The elements of a slice."""
        return min(self.slice_elements, self.elements)

    def loops(self) -> Iterator[slice]:
        """Yield the elements of each loop."""
        return pieces(0, self.elements, self.ranks * (self.slots // 2) * self.slice_elements)

    def slices(self, loop: slice, segment: int) -> Iterator[slice]:
        """Yield the elements of each slice of a segment; none if the loop has fewer elements than ranks."""
        start, stop = (loop.start + (loop.stop - loop.start) * place // self.ranks for place in (segment, segment + 1))
        return pieces(start, stop, self.slice_elements)

    def sent(self, rank: int) -> Iterator[tuple[int, slice]]:
        """Yield (round, elements) of all slices that a rank sends, in order: in each loop its own segment first, then
        in each round what it received in the round before."""
        for loop in self.loops():
            for round_number in range(self.rounds):
                for elements in self.slices(loop, (rank - round_number) % self.ranks):
                    yield round_number, elements

    def shortened(self, elements: int) -> RingAllreduce:
        """Return the same ring of the first ``elements``."""
        return replace(self, elements=min(elements, self.elements))

    def worker(self, seat: Seat, finished: Finished) -> RingWorker:
        """Return a rank's part."""
        return RingWorker(self, seat, finished)


class RingWorker:
    """A rank's part in :class:`RingAllreduce`: one thread receives and adds, one sends."""

    def __init__(self, schedule: RingAllreduce, seat: Seat, finished: Finished) -> None:
        (self._own,) = seat.inputs
        self._finished = finished
        before = (seat.rank - 1) % schedule.ranks
        self._from = seat.links[Edge(0, before, seat.rank)]
        self._to = seat.links[Edge(0, seat.rank, (seat.rank + 1) % schedule.ranks)]
        self._rounds = schedule.rounds
        self._receives, self._sends = list(schedule.sent(before)), list(schedule.sent(seat.rank))
        name = f"rank {seat.rank}"
        self._slots = Slots(schedule.longest_piece, schedule.slots, f"{name}: room for a slice", seat.timeout_s)
        self._forward = Handoff(f"{name}: slice to forward", seat.timeout_s)

    def tasks(self, step: int) -> Sequence[Callable[[], None]]:
        """Return the step's two tasks."""
        return [partial(self._receive, step), partial(self._send, step)]

    def abort(self) -> None:
        """Wake both threads, as far as they wait for each other."""
        self._forward.abort()
        self._slots.abort()

    def _receive(self, step: int) -> None:
        rounds = self._rounds
        for number, (round_number, elements) in enumerate(self._receives):
            slot = self._slots.take()
            part = slot[: elements.stop - elements.start]
            self._from.receive(step, number, part)
            if round_number < rounds // 2:
                np.add(self._own[elements], part, out=part)
            # The sum is whole here after the first half's last round, and elsewhere when it comes round in the second.
            if round_number >= rounds // 2 - 1:
                self._finished(elements, part)
            if round_number < rounds - 1:
                self._forward.put(slot)
            else:
                self._slots.give_back(slot)

    def _send(self, step: int) -> None:
        for number, (round_number, elements) in enumerate(self._sends):
            if round_number == 0:
                self._to.send(step, number, self._own[elements])
                continue
            slot = self._forward.get()
            self._to.send(step, number, slot[: elements.stop - elements.start])
            self._slots.give_back(slot)


def sent_fraction(algorithm: Algorithm, ranks: int) -> float:
    """Return what the busiest of two or more ranks sends in an allreduce, as a multiple of the size."""
    if algorithm is Algorithm.TREE:
        return max(sent_fractions(double_binary_tree(ranks)))
    return busbw_factor("allreduce", ranks)


def nccl_flows(algorithm: Algorithm, ranks: int) -> list[tuple[int, int, float]]:
    """Return (from rank, to rank, multiple of the size) of all that a step sends."""
    if algorithm is Algorithm.TREE:
        return tree_flows(double_binary_tree(ranks))
    return [(rank, (rank + 1) % ranks, sent_fraction(algorithm, ranks)) for rank in range(ranks)]


class NcclJob(CollectiveJob):
    """An allreduce over ``ranks`` in their order, one per compute node, by default in the NCCL service level."""

    def __init__(
        self,
        stage: Stage,
        config: NcclConfig,
        ranks: Sequence[NodeId],
        address_of: AddressOf | None = None,
        name: str | None = None,
        level: ServiceLevel = ServiceLevel.NCCL,
    ) -> None:
        ideal_s = 0.0
        if len(ranks) > 1:  # Fewer are refused by CollectiveJob, in its words.
            ideal_s = sent_fraction(config.algorithm, len(ranks)) * config.size * 8 / stage.fabric.nic_rate_bps
        collective = Collective("NCCL", level, _schedule(config, len(ranks)), 1, ideal_s)
        super().__init__(stage, collective, config, ranks, address_of, name)


def _schedule(config: NcclConfig, ranks: int) -> Schedule:
    elements = config.size // ELEMENT_BYTES
    slice_elements = min(config.slice // ELEMENT_BYTES, elements)
    if config.algorithm is Algorithm.TREE:
        return TreeAllreduce(double_binary_tree(ranks), elements, slice_elements, slots=config.slots)
    return RingAllreduce(ranks, elements, slice_elements, config.slots)
