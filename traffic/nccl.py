"""An NCCL-like ring allreduce: reduce-scatter, then allgather, over one connection from each rank to the next.

The data is cut into as many segments as there are ranks. In each of the first n-1 rounds a rank sends one segment to
the next rank and adds the one it receives to its own; then every rank owns one whole sum, and n-1 more rounds hand
these round. A segment travels in slices, forwarded one by one, so that rounds overlap. A rank sends 2(n-1)/n of the
size.

A rank is a compute node with one buffer: between nodes NCCL's rings over all GPUs of a node carry the same bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fabric.identity import NodeId
from fabric.lanes import ServiceLevel
from traffic.collective import AddressOf, Collective, CollectiveConfig, CollectiveJob, ElementsBytes
from traffic.dataset import ELEMENT_BYTES, Floats, pieces
from traffic.job import Stage
from traffic.links import Edge, Handoff, Link


class NcclConfig(CollectiveConfig):
    """A ring allreduce of ``size`` bytes a rank, forwarded in pieces of ``slice`` (NCCL: 1 MiB at full scale)."""

    slice: ElementsBytes = 32 * 1024


@dataclass(frozen=True)
class RingAllreduce:
    """The ring as a schedule."""

    ranks: int
    elements: int
    slice_elements: int

    @property
    def full_duplex(self) -> bool:
        """Data goes round the ring one way."""
        return False

    @property
    def edges(self) -> tuple[Edge, ...]:
        """A connection from each rank to the next."""
        return tuple(Edge(0, rank, (rank + 1) % self.ranks) for rank in range(self.ranks))

    @property
    def rounds(self) -> int:
        """Rounds of both halves together."""
        return 2 * (self.ranks - 1)

    def slices(self, segment: int) -> tuple[slice, ...]:
        """Return the elements of each slice of a segment; none if there are fewer elements than ranks."""
        start, stop = (self.elements * place // self.ranks for place in (segment, segment + 1))
        return tuple(pieces(start, stop, self.slice_elements))

    def sent_in(self, round_number: int, rank: int) -> tuple[slice, ...]:
        """Return what a rank sends in a round: its own segment first, then what it received in the round before."""
        return self.slices((rank - round_number) % self.ranks)

    def worker(self, rank: int, links: Mapping[Edge, Link], inputs: Sequence[Floats], timeout_s: float) -> RingWorker:
        """Return a rank's part."""
        return RingWorker(self, rank, links, inputs, timeout_s)


class RingWorker:
    """A rank's part in :class:`RingAllreduce`: one thread receives and adds, one sends."""

    def __init__(
        self, schedule: RingAllreduce, rank: int, links: Mapping[Edge, Link], inputs: Sequence[Floats], timeout_s: float
    ) -> None:
        (self._own,) = inputs
        self.result: Floats = np.empty(schedule.elements, np.float32)
        self._schedule = schedule
        self._rank = rank
        self._before = (rank - 1) % schedule.ranks
        self._from = links[Edge(0, self._before, rank)]
        self._to = links[Edge(0, rank, (rank + 1) % schedule.ranks)]
        self._received: Floats = np.empty(min(schedule.slice_elements, schedule.elements), np.float32)
        self._forward = Handoff(f"rank {rank}: slice to forward", timeout_s)

    def tasks(self, step: int) -> Sequence[Callable[[], None]]:
        """Return the step's two tasks."""
        return [lambda: self._receive(step), lambda: self._send(step)]

    def abort(self) -> None:
        """Wake the sending thread."""
        self._forward.abort()

    def _frames(self, rank: int) -> Iterator[tuple[int, int, slice]]:
        """Yield (number, round, elements) of every slice that a rank sends, in order."""
        number = 0
        for round_number in range(self._schedule.rounds):
            for elements in self._schedule.sent_in(round_number, rank):
                yield number, round_number, elements
                number += 1

    def _receive(self, step: int) -> None:
        rounds = self._schedule.rounds
        for number, round_number, elements in self._frames(self._before):
            part = self.result[elements]
            if round_number < rounds // 2:
                received = self._received[: len(part)]
                self._from.receive(step, number, received)
                np.add(self._own[elements], received, out=part)
            else:
                self._from.receive(step, number, part)
            if round_number < rounds - 1:
                self._forward.done()

    def _send(self, step: int) -> None:
        for number, round_number, elements in self._frames(self._rank):
            if round_number == 0:
                self._to.send(step, number, self._own[elements])
                continue
            self._forward.wait()
            self._to.send(step, number, self.result[elements])


class NcclJob(CollectiveJob):
    """A ring allreduce over ``ranks`` in their order, one per compute node, in the NCCL service level."""

    def __init__(
        self, stage: Stage, config: NcclConfig, ranks: Sequence[NodeId], address_of: AddressOf | None = None
    ) -> None:
        count = len(ranks)
        elements = config.size // ELEMENT_BYTES
        schedule = RingAllreduce(count, elements, min(config.slice // ELEMENT_BYTES, elements))
        sent_bytes = 2 * (count - 1) / max(count, 1) * config.size
        ideal_s = sent_bytes * 8 / stage.fabric.nic_rate_bps
        super().__init__(stage, Collective("NCCL", ServiceLevel.NCCL, schedule, 1, ideal_s), config, ranks, address_of)
