"""Collectives in which nothing is added up, carried out directly: each block goes straight from rank to rank.

A rank sends to all of its peers side by side, as NCCL's grouped sends and receives do: each block is spread in pieces
over the whole time, so that long blocks and short ones end together, and no uplink carries several long ones at once.
Pieces have one order on all ranks, by how much of their block goes before them, so no ranks wait for each other in a
circle. Time is counted in slots, in each of which the longest block sends a piece.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple, Protocol

import numpy as np

from traffic.collectives.chunk_connection import ChunkConnection, Edge, FramesUnderWay
from traffic.collectives.chunk_program import BEHIND
from traffic.collectives.collective import (
    CollectiveAlgorithm,
    Flows,
    FlowsOf,
    Groups,
    Layout,
    ScheduleOptions,
    channel_between,
)
from traffic.collectives.dataset import pieces
from traffic.collectives.elements import Dtype, Elements, ElementType
from traffic.collectives.primitives import Primitive
from traffic.collectives.progress import EVERYTHING, Progress
from traffic.collectives.schedule import DEFAULT_SLOTS, Finished, RankContext

_MORE_SLOTS = 2
"""Time slots that a rank may be ahead of what it takes, besides those of the pieces that are on their way."""


class Block(NamedTuple):
    """What goes from a rank to another: elements of the source's input, and where in the target's result they begin."""

    own: slice
    place: int


class BlockOf(Protocol):
    """Says what goes from rank to rank: a module-level function or a frozen dataclass, so that it can be pickled."""

    def __call__(self, source: int, target: int, ranks: int, elements: int, /) -> Block:
        """Return it; an empty slice if nothing does. Of a rank to itself, too: that stays where it is."""


Pairs = Callable[[int], Sequence[tuple[int, int]]]
"""Gives all pairs of ranks that may exchange something, whatever the size: a rank with itself, too."""


@dataclass(frozen=True)
class Exchange:
    """A schedule in which each of some pairs of ranks has a connection from the first to the second."""

    pairs: Pairs
    block_of: BlockOf
    ranks: int
    elements: int
    piece_elements: int
    slots: int = DEFAULT_SLOTS
    dtype: ElementType = Dtype.FP32
    groups: Groups | None = None

    @property
    def edges(self) -> tuple[Edge, ...]:
        """The connections."""
        node_of = Layout(self.ranks, self.groups).node_of
        between = (pair for pair in self.pairs(self.ranks) if pair[0] != pair[1])
        return tuple(sorted(Edge(channel_between(node_of, *pair), *pair) for pair in between))

    @property
    def longest_piece(self) -> int:
        """The elements of a piece."""
        blocks = (self.block_of(*pair, self.ranks, self.elements).own for pair in self.pairs(self.ranks))
        return min(self.piece_elements, max((block.stop - block.start for block in blocks), default=0))

    def shortened(self, elements: int) -> Exchange:
        """Return the same of the first ``elements``."""
        return replace(self, elements=min(elements, self.elements))

    def primitives(self, rank: int) -> Iterator[Primitive]:
        """Yield what a rank does: its own block stays, then the pieces of all peers in their order."""
        yield from (primitive for _, primitive in self.in_slots(rank))

    @property
    def time_slots(self) -> int:
        """How many pieces the longest block has."""
        blocks = (self.block_of(*pair, self.ranks, self.elements).own for pair in self.pairs(self.ranks))
        return max((-(-(block.stop - block.start) // self.piece_elements) for block in blocks), default=0)

    def in_slots(self, rank: int) -> Iterator[tuple[int, Primitive]]:
        """Yield what a rank does, each with its time slot; its own block stays first of all."""
        pairs = set(self.pairs(self.ranks))
        if (rank, rank) in pairs:
            yield from ((0, primitive) for primitive in self._kept(rank))
        found: list[tuple[float, int, Primitive]] = []
        for distance in range(1, self.ranks):
            target, source = (rank + distance) % self.ranks, (rank - distance) % self.ranks
            if (rank, target) in pairs:
                sent = [Primitive(own=piece, target=target) for piece in self._sent(rank, target)]
                found += _spread(sent, distance)
            if (source, rank) in pairs:
                received = [Primitive(source, result=piece) for piece in self._received(rank, source)]
                found += _spread(received, distance)
        slots = self.time_slots
        yield from ((int(place * slots), one) for place, _, one in sorted(found, key=lambda one: one[:2]))

    def _kept(self, rank: int) -> Iterator[Primitive]:
        for own, result in zip(self._sent(rank, rank), self._received(rank, rank), strict=True):
            yield Primitive(own=own, result=result)

    def _sent(self, rank: int, target: int) -> Iterator[slice]:
        own, _ = self.block_of(rank, target, self.ranks, self.elements)
        return pieces(own.start, own.stop, self.piece_elements)

    def _received(self, rank: int, source: int) -> Iterator[slice]:
        own, place = self.block_of(source, rank, self.ranks, self.elements)
        return pieces(place, place + own.stop - own.start, self.piece_elements)

    def worker(self, context: RankContext, finished: Sequence[Finished]) -> ExchangeWorker:
        """Return a rank's part."""
        return ExchangeWorker(self, context, finished[0])


class _Move(NamedTuple):
    """A piece that comes or goes: in which time slot, by which connection, its number there, and what it is."""

    time_slot: int
    link: ChunkConnection
    number: int
    primitive: Primitive


class ExchangeWorker:
    """A rank's part in an :class:`Exchange`: one thread takes pieces in their order; one sends, to no peer so far ahead
    that queues fill at others, and waits for no peer that takes its own slowly while others have room."""

    def __init__(self, schedule: Exchange, context: RankContext, finished: Finished) -> None:
        (self._own,) = context.inputs
        self._finished = finished
        self._kept: list[Primitive] = []
        self._sends: list[_Move] = []
        self._takes: list[_Move] = []
        edges = {(edge.dialer, edge.listener): edge for edge in context.links}
        numbers = Counter[Edge]()
        for time_slot, one in schedule.in_slots(context.rank):
            if one.target is not None:
                edge, moves = edges[context.rank, one.target], self._sends
            elif one.source is not None:
                edge, moves = edges[one.source, context.rank], self._takes
            else:
                self._kept.append(one)
                continue
            moves.append(_Move(time_slot, context.links[edge], numbers[edge], one))
            numbers[edge] += 1
        in_a_slot = max(1.0, len(self._sends) / max(1, schedule.time_slots))
        self._lead = math.ceil(schedule.slots / in_a_slot) + _MORE_SLOTS
        self._memory = np.empty(schedule.longest_piece, schedule.dtype.numpy)
        self._progress = Progress(f"rank {context.rank}", context.timeout_s)

    def tasks(self, step: int) -> Sequence[Callable[[], None]]:
        """Return the step's two tasks."""
        self._progress.begin()
        return [partial(self._take_all, step), partial(self._send_all, step)]

    def abort(self) -> None:
        """Wake the thread that sends, if it waits for the other."""
        self._progress.abort()

    def _send_all(self, step: int) -> None:
        for one in self._kept:
            self._keep(one)
        frames, last = FramesUnderWay(), -1
        for time_slot, link, number, one in self._sends:
            if time_slot != last:
                last = time_slot
                frames.finish(before=time_slot - BEHIND)
                if not self._progress.is_taking_after(time_slot - self._lead):
                    frames.finish()  # What peers have of this rank may be what they wait for.
                    self._progress.await_taking_after(time_slot - self._lead)
            assert one.own is not None, "what is sent is the rank's own"
            frames.send(link, step, number, self._own[one.own], time_slot)
        frames.finish()

    def _keep(self, one: Primitive) -> None:
        assert one.own is not None and one.result is not None, "what stays is the rank's own, and of its result"
        self._finished(one.result, self._own[one.own])

    def _take_all(self, step: int) -> None:
        for time_slot, link, number, one in self._takes:
            self._progress.taking(time_slot)
            part: Elements = self._memory[: one.elements]
            link.receive(step, number, part)
            assert one.result is not None, "what is taken is of the rank's result"
            self._finished(one.result, part)
        self._progress.taking(EVERYTHING)


def _spread(block: Sequence[Primitive], distance: int) -> list[tuple[float, int, Primitive]]:
    """Return the pieces of a block with their place in the order of all: how much of it goes before their middle."""
    return [((number + 0.5) / len(block), distance, piece) for number, piece in enumerate(block)]


def all_pairs(ranks: int) -> list[tuple[int, int]]:
    """Return that each rank may send to each."""
    return [(source, target) for source in range(ranks) for target in range(ranks)]


def exchange_algorithm(pairs: Pairs, block_of: BlockOf, flows: FlowsOf) -> CollectiveAlgorithm:
    """Return a direct exchange of blocks as an algorithm."""
    return CollectiveAlgorithm(partial(_exchange, pairs, block_of), flows)


def _exchange(pairs: Pairs, block_of: BlockOf, options: ScheduleOptions) -> Exchange:
    return Exchange(
        pairs,
        block_of,
        options.ranks,
        options.elements,
        options.piece_elements,
        options.slots,
        options.dtype,
        options.groups,
    )


def equal_flows(pairs: Pairs, ranks: int) -> Flows:
    """Return that a block of n goes from rank to rank wherever they are not the same."""
    return [(source, target, 1 / ranks) for source, target in pairs(ranks) if source != target]
