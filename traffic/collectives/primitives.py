"""What a rank of most algorithms does, as a list of NCCL's primitives, and the two threads that carry it out.

NCCL builds its kernels of the same primitives (``send``, ``recvReduceSend``, ``recvReduceCopySend``, ``recvCopySend``,
``recv``; NVIDIA/nccl ``src/device/prims_simple.h``). A list of them is pure: what it moves and adds up can be computed
without a connection.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import NamedTuple, Protocol

from traffic.collectives.chunk_connection import ChunkConnection, Edge, Handoff, Slots
from traffic.collectives.elements import Elements, ElementType
from traffic.collectives.schedule import Finished, RankContext


class Primitive(NamedTuple):
    """What a rank does with one piece of data.

    ``source``: the rank that sends it; None: it is the rank's own. ``own``: elements of the rank's input, which are the
    piece or are added to what is received. ``result``: where in the rank's result the piece belongs; None: nowhere.
    ``target``: the rank to which the piece is sent; None: to nobody. A piece that is received and sent is the same one.
    """

    source: int | None = None
    own: slice | None = None
    result: slice | None = None
    target: int | None = None

    @property
    def elements(self) -> int:
        """How many elements the piece has."""
        found = self.own or self.result
        assert found is not None, "a piece without data: it is neither the rank's own nor of its result"
        return int(found.stop - found.start)


class ListedSchedule(Protocol):
    """A schedule that lists each rank's primitives.

    Several connections from a rank to another take turns. ``slots``: how many pieces a rank holds at most between
    receiving and sending on. All that a rank sends to another must be received there in that order.
    """

    @property
    def edges(self) -> tuple[Edge, ...]:
        """Every connection, sorted."""

    @property
    def longest_piece(self) -> int:
        """The most elements of a primitive."""

    @property
    def slots(self) -> int:
        """Pieces that a rank holds."""

    @property
    def dtype(self) -> ElementType:
        """The type of the elements."""

    def primitives(self, rank: int) -> Iterable[Primitive]:
        """Return what a rank does, in order."""


class _Transfer(NamedTuple):
    """A piece that comes or goes: by which connection, its number among those of that peer, its elements, and what the
    rank does with it."""

    link: ChunkConnection
    number: int
    elements: int
    primitive: Primitive


class PrimitivesWorker:
    """A rank's part in a :class:`ListedSchedule`: one thread receives and adds, one sends.

    A rank holds a few pieces at most between receiving and sending on, as NCCL's connections do (a FIFO of 8 slots, by
    default of 512 KiB each: ``NCCL_STEPS``, ``NCCL_BUFFSIZE``). When all are in use it takes no more, TCP's window
    closes, and the rank before it waits: a slow link holds up a whole ring, as it does in NCCL.
    """

    def __init__(self, schedule: ListedSchedule, context: RankContext, finished: Finished) -> None:
        (self._own,) = context.inputs
        self._finished = finished
        self._combine = context.combine
        edges = schedule.edges
        incoming = _Turns(context.links, [edge for edge in edges if edge.listener == context.rank], context.rank)
        outgoing = _Turns(context.links, [edge for edge in edges if edge.dialer == context.rank], context.rank)
        self._receives: list[_Transfer] = []
        self._sends: list[_Transfer | Primitive] = []
        for primitive in schedule.primitives(context.rank):
            if primitive.source is not None:
                self._receives.append(incoming.next(primitive.source, primitive))
            if primitive.target is not None:
                self._sends.append(outgoing.next(primitive.target, primitive))
            elif primitive.source is None:
                self._sends.append(primitive)
        name = f"rank {context.rank}"
        room = f"{name}: room for a slice"
        self._slots = Slots(schedule.longest_piece, schedule.dtype, schedule.slots, room, context.timeout_s)
        self._forward = Handoff(f"{name}: slice to forward", context.timeout_s)

    def tasks(self, step: int) -> Sequence[Callable[[], None]]:
        """Return the step's two tasks."""
        return [partial(self._receive, step), partial(self._send, step)]

    def abort(self) -> None:
        """Wake both threads, as far as they wait for each other."""
        self._forward.abort()
        self._slots.abort()

    def _receive(self, step: int) -> None:
        for link, number, elements, (_, own, result, target) in self._receives:
            slot = self._slots.take()
            part = slot[:elements]
            link.receive(step, number, part)
            if own is not None:
                self._combine(self._own[own], part, part)
            if result is not None:
                self._finished(result, part)
            if target is not None:
                self._forward.put(slot)
            else:
                self._slots.give_back(slot)

    def _send(self, step: int) -> None:
        for transfer in self._sends:
            if isinstance(transfer, Primitive):
                self._keep(transfer, self._own_piece(transfer))
                continue
            link, number, elements, primitive = transfer
            if primitive.source is None:
                piece = self._own_piece(primitive)
                link.send(step, number, piece)
                self._keep(primitive, piece)
            else:
                slot = self._forward.get()
                link.send(step, number, slot[:elements])
                self._slots.give_back(slot)

    def _own_piece(self, primitive: Primitive) -> Elements:
        assert primitive.own is not None, "what comes from nobody is the rank's own"
        return self._own[primitive.own]

    def _keep(self, primitive: Primitive, piece: Elements) -> None:
        """Hand over a piece of the rank's own that belongs in its result."""
        if primitive.result is not None:
            self._finished(primitive.result, piece)


class PrimitivesWorkers:
    """A rank's parts in several lists at the same time: two threads for each."""

    def __init__(self, workers: Sequence[PrimitivesWorker]) -> None:
        self._workers = workers

    def tasks(self, step: int) -> Sequence[Callable[[], None]]:
        """Return the tasks of all."""
        return [task for worker in self._workers for task in worker.tasks(step)]

    def abort(self) -> None:
        """Wake all threads, as far as they wait for each other."""
        for worker in self._workers:
            worker.abort()


class _Turns:
    """The connections of a rank with each peer, in one direction: they take turns, and their frames are numbered."""

    def __init__(self, links: Mapping[Edge, ChunkConnection], edges: Iterable[Edge], rank: int) -> None:
        self._links: dict[int, list[ChunkConnection]] = {}
        for edge in edges:
            self._links.setdefault(edge.peer(rank), []).append(links[edge])
        self._counts: Counter[int] = Counter()

    def next(self, peer: int, primitive: Primitive) -> _Transfer:
        """Return how the next piece comes from a peer, or goes there."""
        links, number = self._links[peer], self._counts[peer]
        self._counts[peer] += 1
        return _Transfer(links[number % len(links)], number, primitive.elements, primitive)
