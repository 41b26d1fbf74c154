"""What the scheduler and agents tell each other, as values."""

from __future__ import annotations

from dataclasses import dataclass

from cluster.health.messages import (
    Checked,
    CheckNode,
    HealthOrder,
    HealthWord,
    MeasureNic,
    NicMeasured,
    NodeRepaired,
    Progress,
)
from cluster.health.unwell import Unwell
from cluster.platform.codec import Codec, rows

# What the scheduler says ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RankOrder:
    """What one node does of a life: ``rank`` of ``world`` nodes, and where rank 0 is. ``step``: that of the last
    checkpoint that a former life told of; ``directory``: where the command runs, empty: in the rank's own folder."""

    life: int
    job: int
    rank: int
    world: int
    master: str
    command: tuple[str, ...]
    step: int | None = None
    directory: str = ""


@dataclass(frozen=True)
class Acknowledged:
    """A hello or a heartbeat has come. ``at``: when its agent sent it, by that one's clock (``time.monotonic()``)."""

    at: float


@dataclass(frozen=True)
class AskReady:
    """Can the node take a life? ``turn``: the question's number, which its answer bears."""

    life: int
    turn: int


@dataclass(frozen=True)
class StartRank:
    """Start a rank."""

    order: RankOrder


@dataclass(frozen=True)
class SuspendRank:
    """Let the rank of a life see the suspend command."""

    life: int


@dataclass(frozen=True)
class StopRank:
    """Kill the rank of a life."""

    life: int


@dataclass(frozen=True)
class Noted:
    """The end of a life is in the journal: its agent need not tell it any more."""

    life: int


Order = Acknowledged | AskReady | StartRank | SuspendRank | StopRank | Noted | HealthOrder

# What agents say ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RankEnd:
    """A rank has ended. ``suspended``: by ``go_suspend()``; ``step``: that of its last checkpoint; ``fenced``: its
    agent killed it since it did not hear the scheduler; ``why``: what its agent could not do with it, so that it was
    killed or did not start."""

    life: int
    code: int
    step: int | None = None
    suspended: bool = False
    fenced: bool = False
    why: str = ""


@dataclass(frozen=True)
class StepSaved:
    """A rank of a life has told of a checkpoint, which is complete since ``age_s``."""

    life: int
    step: int
    age_s: float


@dataclass(frozen=True)
class Hello:
    """An agent dials, at ``at`` by its clock (``time.monotonic()``): what is wrong with its node, the lives of which a
    rank runs here, and what the scheduler has not noted yet."""

    node: str
    unwell: Unwell
    at: float
    running: tuple[int, ...]
    ended: tuple[RankEnd, ...]
    saved: tuple[StepSaved, ...] = rows()


@dataclass(frozen=True)
class Beat:
    """A heartbeat: as :class:`Hello`, and for how long its agent has not heard the scheduler."""

    unwell: Unwell
    at: float
    unheard_s: float


@dataclass(frozen=True)
class Answered:
    """Rank 0 of a life has seen the suspend command."""

    life: int


@dataclass(frozen=True)
class Ready:
    """The node can take a life, unless it is unwell."""

    life: int
    turn: int
    unwell: Unwell


Word = Hello | Beat | RankEnd | Answered | Ready | StepSaved | HealthWord

# As JSON --------------------------------------------------------------------------------------------------------------

HELLO = "hello"
"""The kind of the word that an agent says first."""
_KINDS: dict[str, type[Order | Word]] = {
    "heard": Acknowledged,
    "ask": AskReady,
    "start": StartRank,
    "suspend": SuspendRank,
    "stop": StopRank,
    "noted": Noted,
    "check": CheckNode,
    "measure": MeasureNic,
    "repaired": NodeRepaired,
    HELLO: Hello,
    "beat": Beat,
    "ended": RankEnd,
    "answered": Answered,
    "ready": Ready,
    "saved": StepSaved,
    "progress": Progress,
    "checked": Checked,
    "measured": NicMeasured,
}
_CODEC = Codec[Order | Word](_KINDS)
to_values, of_values = _CODEC.to_values, _CODEC.of_values
