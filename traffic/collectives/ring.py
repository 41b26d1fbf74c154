"""The ring."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise

import numpy as np

from traffic.collectives.chunk_connection import Edge, Handoff, Slots
from traffic.collectives.dataset import pieces
from traffic.collectives.elements import Dtype
from traffic.collectives.schedule import DEFAULT_SLOTS, Finished, Seat


@dataclass(frozen=True)
class RingAllreduce:
    """A ring as a schedule. ``slots``: how many slices a rank holds between receiving and sending on. ``first``: where
    its part of the data begins; ``channels``: its connections from a rank to the next, which take turns.

    ``order``: the ranks of each node by their numbers in it, in the order in which the ring goes through them.
    ``inner_channel``: the connection to the next rank in the same node, if that is another than between nodes.

    The data is added up in loops of as much as gives each rank a segment of half its slots, as NCCL does: with all
    slots free a rank can take in a whole segment while it still sends its own, so no two ranks wait for each other.
    """

    ranks: int
    elements: int
    slice_elements: int
    slots: int = DEFAULT_SLOTS
    first: int = 0
    channels: Sequence[int] = (0,)
    dtype: Dtype = Dtype.FP32
    order: tuple[int, ...] = (0,)
    inner_channel: int | None = None

    @property
    def edges(self) -> tuple[Edge, ...]:
        """The connections from each rank to the next."""
        return tuple(sorted(edge for rank in range(self.ranks) for edge in self.edges_from(rank)))

    def edges_from(self, rank: int) -> tuple[Edge, ...]:
        """Return the connections from a rank to the next, in the order of their turns."""
        following = self.rank_at(self.place_of(rank) + 1)
        is_inside = following // len(self.order) == rank // len(self.order)
        if self.inner_channel is not None and is_inside:
            return (Edge(self.inner_channel, rank, following),)
        return tuple(Edge(channel, rank, following) for channel in self.channels)

    def rank_at(self, place: int) -> int:
        """Return the rank at a place of the ring; places go round."""
        node, within = divmod(place % self.ranks, len(self.order))
        return node * len(self.order) + self.order[within]

    def place_of(self, rank: int) -> int:
        """Return a rank's place in the ring."""
        node, within = divmod(rank, len(self.order))
        return node * len(self.order) + self.order.index(within)

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
        end = self.first + self.elements
        return pieces(self.first, end, self.ranks * (self.slots // 2) * self.slice_elements)

    def slices(self, loop: slice, segment: int) -> Iterator[slice]:
        """Yield the elements of each slice of a segment; none if the loop has fewer elements than ranks."""
        start, stop = (loop.start + (loop.stop - loop.start) * place // self.ranks for place in (segment, segment + 1))
        return pieces(start, stop, self.slice_elements)

    def sent(self, rank: int) -> Iterator[tuple[int, slice]]:
        """Yield (round, elements) of all slices that a rank sends, in order: in each loop its own segment first, then
        in each round what it received in the round before."""
        place = self.place_of(rank)
        for loop in self.loops():
            for round_number in range(self.rounds):
                for elements in self.slices(loop, (place - round_number) % self.ranks):
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
        before = schedule.rank_at(schedule.place_of(seat.rank) - 1)
        self._from = [seat.links[edge] for edge in schedule.edges_from(before)]
        self._to = [seat.links[edge] for edge in schedule.edges_from(seat.rank)]
        self._rounds = schedule.rounds
        self._receives, self._sends = list(schedule.sent(before)), list(schedule.sent(seat.rank))
        name = f"rank {seat.rank}"
        room = f"{name}: room for a slice"
        self._slots = Slots(schedule.longest_piece, schedule.dtype, schedule.slots, room, seat.timeout_s)
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
            self._from[number % len(self._from)].receive(step, number, part)
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
            to = self._to[number % len(self._to)]
            if round_number == 0:
                to.send(step, number, self._own[elements])
                continue
            slot = self._forward.get()
            to.send(step, number, slot[: elements.stop - elements.start])
            self._slots.give_back(slot)


@dataclass(frozen=True)
class Rings:
    """Several rings as a schedule: each adds up its own part of the data, at the same time. Channels of the same
    remainder by ``rings`` are one ring's. Of ranks that a switch joins, ``orders`` are those in which rings go through
    each node, which take turns, and ring c has channel c of those behind all others inside nodes."""

    ranks: int
    elements: int
    slice_elements: int
    slots: int
    rings: int
    queue_pairs: int = 1
    dtype: Dtype = Dtype.FP32
    orders: tuple[tuple[int, ...], ...] | None = None

    @property
    def parts(self) -> tuple[RingAllreduce, ...]:
        """The rings, of parts that differ by an element at most."""
        bounds = [self.elements * number // self.rings for number in range(self.rings + 1)]
        outer, orders = self.rings * self.queue_pairs, self.orders or ((0,),)
        return tuple(
            RingAllreduce(
                self.ranks,
                end - first,
                self.slice_elements,
                self.slots,
                first,
                range(number, outer, self.rings),
                self.dtype,
                orders[number % len(orders)],
                None if self.orders is None else outer + number,
            )
            for number, (first, end) in enumerate(pairwise(bounds))
        )

    @property
    def edges(self) -> tuple[Edge, ...]:
        """The connections of all rings."""
        return tuple(sorted(edge for ring in self.parts for edge in ring.edges))

    @property
    def longest_piece(self) -> int:
        """The elements of a slice."""
        return max(ring.longest_piece for ring in self.parts)

    def shortened(self, elements: int) -> Rings:
        """Return the same rings of the first ``elements``."""
        return replace(self, elements=min(elements, self.elements))

    def worker(self, seat: Seat, finished: Finished) -> RingsWorker:
        """Return a rank's part."""
        return RingsWorker([RingWorker(ring, seat, finished) for ring in self.parts])


class RingsWorker:
    """A rank's part in :class:`Rings`: two threads for each ring."""

    def __init__(self, rings: Sequence[RingWorker]) -> None:
        self._rings = rings

    def tasks(self, step: int) -> Sequence[Callable[[], None]]:
        """Return the tasks of all rings."""
        return [task for ring in self._rings for task in ring.tasks(step)]

    def abort(self) -> None:
        """Wake all threads, as far as they wait for each other."""
        for ring in self._rings:
            ring.abort()
