"""A collective's schedule: which ranks are connected, and what each of them does in a step."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from traffic.collectives.chunk_connection import ChunkConnection, Edge
from traffic.collectives.dataset import Buffer
from traffic.collectives.elements import Combine, Elements, ElementType, add
from traffic.transport.connection import Transport

DEFAULT_SLOTS = 8
"""Pieces that a rank holds at most between receiving and forwarding them, as NCCL's FIFO does."""

Finished = Callable[[slice, Elements], None]
"""Callback for each finished piece of a result, in any order. The buffer is reused after the call returns."""


class Worker(Protocol):
    """One rank's part in a collective."""

    def tasks(self, step: int) -> Sequence[Callable[[], None]]:
        """Return what the rank's threads do in a step, always equally many; each raises TrafficError if it fails."""

    def abort(self) -> None:
        """Wake every thread that waits for another of this rank."""


class Schedule(Protocol):
    """An algorithm over some ranks as a pure, picklable value: who is connected, and what each rank does."""

    @property
    def edges(self) -> tuple[Edge, ...]:
        """Every connection, sorted. Data goes from the dialer to the listener only."""

    @property
    def elements(self) -> int:
        """The elements of the size S of the collective."""

    @property
    def longest_piece(self) -> int:
        """The most elements that travel in one frame."""

    @property
    def dtype(self) -> ElementType:
        """The type of the elements."""

    def shortened(self, elements: int) -> Schedule:
        """Return the same collective, over the same connections, of the first ``elements``, if it has more."""

    def worker(self, context: RankContext, finished: Sequence[Finished]) -> Worker:
        """Return a rank's part, which gives each piece of a result to its callback: there is one per result."""


class NodeConnections(Protocol):
    """The connections inside a rank's node. Only the schedule that they were made for knows more of them."""

    @property
    def results(self) -> int:
        """How many results the node has: one per GPU, say."""

    def abort(self) -> None:
        """Wake the threads that wait on these connections, with PeerGoneError."""


class Node(Protocol):
    """The inside of a rank's node as a picklable value."""

    def connect(self, chunk_bytes: int, transport: Transport, name: str, timeout_s: float) -> NodeConnections:
        """Connect the node's parts, for chunks of up to ``chunk_bytes``. Raises UnreachableError."""


@dataclass(frozen=True)
class RankContext:
    """What a rank's worker works with: connections, input buffers, and how long its threads wait for each other.

    That time limits a step; a thread that waits for another rank detects whether that rank stalls. ``combine``: what
    takes the place of a sum; inside of nodes, CPUs and GPUs always add up.
    """

    rank: int
    links: Mapping[Edge, ChunkConnection]
    inputs: Sequence[Buffer]
    timeout_s: float
    node: NodeConnections | None = None
    """Of a node with an inside, in which data begins and ends."""
    combine: Combine = add
