"""What a run and the ranks of a collective tell each other."""

from __future__ import annotations

from dataclasses import dataclass

from traffic.collectives.collective import ExpectedOf
from traffic.collectives.dataset import Dataset
from traffic.collectives.schedule import Node, Schedule
from traffic.stepped_job import StepOrder
from traffic.transport.connection import Endpoint, Transport


@dataclass(frozen=True)
class RankArguments:
    """What a rank needs to know. ``job``: its job in messages. ``addresses``: those of the rank's NICs, which its
    channels use in turn. ``expected``: what ranks' results are."""

    job: str
    rank: int
    hosts: tuple[str, ...]
    addresses: tuple[str, ...]
    transport: Transport
    schedule: Schedule
    dataset: Dataset
    expected: ExpectedOf
    timeout_s: float
    stall_s: float
    node: Node | None = None

    def name(self, rank: int) -> str:
        """Return a rank's name in messages."""
        return f"{self.job} rank {rank} ({self.hosts[rank]})"


@dataclass(frozen=True)
class RankListening:
    """A rank's report that peers can connect to it, at each of its addresses, and whether the link of each is up."""

    endpoints: tuple[Endpoint, ...]
    up: tuple[bool, ...]


@dataclass(frozen=True)
class Wiring:
    """The order to connect: the collective that is played, over which of the ranks' addresses (``places``, the same for
    all), and where each rank listens there."""

    schedule: Schedule
    places: tuple[int, ...]
    endpoints: tuple[tuple[Endpoint, ...], ...]


@dataclass(frozen=True)
class StepShape:
    """What a step is of: so many of the elements, with the result in the place of the input or elsewhere."""

    elements: int
    in_place: bool = False


@dataclass(frozen=True)
class ShapedStepOrder(StepOrder):
    """The order to carry out one step of a shape; None: of all elements, or to warm up of the first few."""

    shape: StepShape | None = None
