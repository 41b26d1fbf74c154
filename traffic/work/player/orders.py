"""What a run and the ranks that play a graph tell each other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from traffic.collectives.dataset import Dataset
from traffic.collectives.gpu_copies import NodeParts
from traffic.collectives.operations.all_to_all_v import Counts
from traffic.stepped_job import StepDone
from traffic.transport.connection import Endpoint, Transport
from traffic.work.files import FileAccess
from traffic.work.operations import Operation
from traffic.work.player.communicator import DataKey
from traffic.work.player.loop import Patience
from traffic.work.schedules import ScheduleChoice


@dataclass(frozen=True)
class Recording:
    """Which operations a rank tells of, each in a row: those of the first ``steps`` of each phase, if it is asked."""

    steps: int = 0


@dataclass(frozen=True)
class WorkOfRank:
    """What a rank does: in ``steps`` equal steps in a row, and to warm up. ``groups``: the number and the ranks of
    those that it is in; ``counts``: of each all-to-all-v by its place, elements from each rank to each; ``senders``:
    the ranks that send it messages; ``holds_back``: whether messages are taken only once their receives have started,
    and those of each tag have a connection of their own."""

    operations: tuple[Operation, ...]
    steps: int
    warm_up: tuple[Operation, ...]
    groups: Mapping[str, tuple[int, tuple[int, ...]]]
    counts: Mapping[int, Counts]
    senders: tuple[int, ...]
    holds_back: bool = False


@dataclass(frozen=True)
class Reach:
    """How a rank reaches others. ``addresses``: to other nodes, then in its own if that has another, then its CPU's if
    ``node`` says where the parts of its node are, whose CPU then adds up; ``relays``: the address of a neighbour from
    which it dials a rank that it does not reach from its own."""

    addresses: tuple[str, ...]
    relays: Mapping[int, str]
    node: NodeParts | None = None


@dataclass(frozen=True)
class WorkArguments:
    """What a rank needs to know. ``hosts``: of all ranks."""

    job: str
    rank: int
    hosts: tuple[str, ...]
    reach: Reach
    transport: Transport
    work: WorkOfRank
    choice: ScheduleChoice
    data: Mapping[DataKey, Dataset]
    patience: Patience
    recording: Recording = field(default_factory=Recording)
    files: FileAccess | None = None

    @property
    def addresses(self) -> tuple[str, ...]:
        """Where the rank listens."""
        return self.reach.addresses

    def name(self, rank: int) -> str:
        """Return a rank's name in messages."""
        return f"{self.job} rank {rank} ({self.hosts[rank]})"


@dataclass(frozen=True)
class PlayDone(StepDone):
    """A rank's report of the steps that it played in a row: when each started and ended."""

    spans: tuple[tuple[float, float], ...]


@dataclass(frozen=True)
class WorkWiring:
    """The order to connect: where each rank listens, by its addresses."""

    endpoints: tuple[tuple[Endpoint, ...], ...]
