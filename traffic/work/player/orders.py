"""What a run and the ranks that play a graph tell each other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from traffic.collectives.dataset import Dataset
from traffic.collectives.operations.all_to_all_v import Counts
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
    """What a rank does: in a step, and to warm up. ``groups``: the number and the ranks of those that it is in;
    ``counts``: of each all-to-all-v by its place, elements from each rank to each; ``senders``: the ranks that send it
    messages."""

    operations: tuple[Operation, ...]
    warm_up: tuple[Operation, ...]
    groups: Mapping[str, tuple[int, tuple[int, ...]]]
    counts: Mapping[int, Counts]
    senders: tuple[int, ...]


@dataclass(frozen=True)
class WorkArguments:
    """What a rank needs to know. ``addresses``: the last is for its own node; ``hosts``: of all ranks;
    ``relays``: the address of a neighbour from which it dials a rank that it does not reach from its own."""

    job: str
    rank: int
    hosts: tuple[str, ...]
    addresses: tuple[str, ...]
    relays: Mapping[int, str]
    transport: Transport
    work: WorkOfRank
    choice: ScheduleChoice
    data: Mapping[DataKey, Dataset]
    patience: Patience
    recording: Recording = field(default_factory=Recording)
    files: FileAccess | None = None

    def name(self, rank: int) -> str:
        """Return a rank's name in messages."""
        return f"{self.job} rank {rank} ({self.hosts[rank]})"


@dataclass(frozen=True)
class WorkWiring:
    """The order to connect: where each rank listens, by its addresses."""

    endpoints: tuple[tuple[Endpoint, ...], ...]
