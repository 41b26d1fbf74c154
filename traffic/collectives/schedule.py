"""A collective's schedule: which ranks are connected, and what each of them does in a step."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from traffic.collectives.chunk_connection import ChunkConnection, Edge
from traffic.collectives.dataset import Buffer
from traffic.collectives.elements import Dtype, Elements
from traffic.collectives.gpu_copies import GpuLinks, NodeParts

DEFAULT_SLOTS = 8
"""Pieces that a rank holds at most between receiving and forwarding them, as NCCL's FIFO does."""

Finished = Callable[[slice, Elements], None]
"""Callback for each finished piece of the result, in any order. The buffer is reused after the call returns."""


class Worker(Protocol):
    """One rank's part in a collective."""

    def tasks(self, step: int) -> Sequence[Callable[[], None]]:
        """Return what the rank's threads do in a step, always equally many; each raises TrafficError if it fails."""

    def abort(self) -> None:
        """Wake every thread that waits for another of this rank."""


class Schedule(Protocol):
    """A collective as a pure, picklable value: who is connected, and what each rank does."""

    @property
    def edges(self) -> tuple[Edge, ...]:
        """Every connection, sorted. Data goes from the dialer to the listener only."""

    @property
    def elements(self) -> int:
        """Number of elements that are added up."""

    @property
    def longest_piece(self) -> int:
        """The most elements that travel in one frame."""

    @property
    def dtype(self) -> Dtype:
        """The type of the elements."""

    def shortened(self, elements: int) -> Schedule:
        """Return the same collective, over the same connections, of the first ``elements``, if it has more."""

    def worker(self, seat: Seat, finished: Finished) -> Worker:
        """Return a rank's part; it gives its result to ``finished``, piece by piece."""


@dataclass(frozen=True)
class Seat:
    """A rank's place in a collective: its connections, its input buffers, how long its threads wait for each other.

    That time limits a step; a thread that waits for another rank detects whether that rank stalls.
    """

    rank: int
    links: Mapping[Edge, ChunkConnection]
    inputs: Sequence[Buffer]
    timeout_s: float
    parts: NodeParts | None = None
    gpu_links: Sequence[Sequence[GpuLinks]] = ()
    """Of a node with an inside: its parts, and the connections of each GPU, tree by tree."""
    others_finished: Sequence[Finished] = ()
    """Callbacks for the results of all GPUs but the first, whose is the rank's."""
