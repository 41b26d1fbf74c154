"""Responses of a cluster to its users, as values. Times: seconds since it first came up, without those in which it was
down."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from cluster.platform.codec import Codec, unless_none, written
from cluster.platform.events import EndKind, Event, event_of, to_values
from cluster.platform.state import JobState

COMING_UP, UP, GOING_DOWN = "coming up", "up", "going down"
"""How far a cluster is."""

# In short -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class JobTaken:
    """The number of a job that was submitted."""

    number: int


@dataclass(frozen=True)
class Done:
    """It is done, or will be."""


@dataclass(frozen=True)
class Refused:
    """A question has faults."""

    faults: tuple[str, ...]


@dataclass(frozen=True)
class Failed:
    """Nobody has answered."""

    why: str


@dataclass(frozen=True)
class AboutCluster:
    """What a cluster says of itself. ``sees``: of directories that a guest has of its own, those of the host that
    programs see all the same; None where they see all. ``scheduler``, ``login``: their hosts; ``nodes``: how many there
    are beside the scheduler's; ``state``: ``coming up``, ``up`` or ``going down``."""

    sees: tuple[str, ...] | None
    folder: str
    fabric: str
    engine: str
    policy: str
    scheduler: str
    login: str
    nodes: int
    state: str = COMING_UP


# Jobs -----------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class JobBrief:
    """A job in brief. ``asks``: how many nodes it asks for; ``lives``: how many it has had; ``nodes``: those that it
    has, by rank; ``why``: why its last life ended; ``waits``, ``reason``: why it waits, in words, and the name of the
    reason; ``began_s``: when its life got its nodes."""

    number: int
    name: str
    user: str
    priority: str
    group: str
    state: JobState
    asks: int
    lives: int
    nodes: tuple[str, ...]
    step: int | None
    code: int | None
    why: str
    waits: str
    reason: str
    is_held: bool
    is_leaving: bool
    began_s: float | None
    submitted_s: float
    ended_s: float | None


@dataclass(frozen=True)
class JobInFull(JobBrief):
    """A job with what it runs."""

    command: tuple[str, ...]
    directory: str


@dataclass(frozen=True)
class LifeOfJob:
    """A life of a job: its nodes by rank, and when and why it started, was asked to end (``told``: how) and left."""

    life: int
    nodes: tuple[str, ...] = ()
    code: int | None = None
    step: int | None = None
    started_s: float | None = unless_none()
    started_why: str | None = unless_none()
    told_s: float | None = unless_none()
    told: EndKind | None = unless_none()
    told_why: str | None = unless_none()
    left_s: float | None = unless_none()
    finished: bool | None = unless_none()


@dataclass(frozen=True)
class JobsListed:
    """Jobs by their numbers. ``more``: there are more."""

    now_s: float
    jobs: tuple[JobBrief, ...]
    more: bool


@dataclass(frozen=True)
class JobDescribed:
    """A job with its lives and events, the latest if there are very many; the nodes of events are those of lives."""

    now_s: float
    job: JobInFull
    lives: tuple[LifeOfJob, ...]
    lives_left_out: int
    events: tuple[Event, ...] = written(to_values, event_of)
    events_left_out: int = 0


@dataclass(frozen=True)
class LogPiece:
    """What a rank printed up to the byte ``offset``, as text with a character per byte. ``is_all``: it will print no
    more; ``life``: None: its job has had no nodes yet."""

    life: int | None
    rank: int
    node: str
    state: JobState
    is_over: bool
    text: str
    offset: int
    is_all: bool

    @property
    def data(self) -> bytes:
        """Its bytes."""
        return self.text.encode("latin-1")


# Nodes, quotas, failures ----------------------------------------------------------------------------------------------


class NodeUse(str, Enum):
    """How a node is used."""

    FREE = "free"
    BUSY = "busy"
    OUT = "out"


@dataclass(frozen=True)
class NodeListed:
    """A node. ``out``: why it is out, empty if it is not; ``life``, ``job``, ``user``: who has it; ``validated_s``:
    when it was validated last."""

    name: str
    zone: int
    group: str
    state: NodeUse
    out: str
    life: int | None
    job: int | None
    user: str
    validated_s: float | None


@dataclass(frozen=True)
class NodesListed:
    """All nodes."""

    now_s: float
    nodes: tuple[NodeListed, ...]


@dataclass(frozen=True)
class QuotaUse:
    """Nodes that a user holds and waits for at a priority in a group, beside the quota. ``quota``: None: unlimited."""

    user: str
    priority: str
    group: str
    holds: int
    waits: int
    quota: int | None


@dataclass(frozen=True)
class QuotasListed:
    """What users hold of their quotas."""

    quotas: tuple[QuotaUse, ...]


@dataclass(frozen=True)
class HandFailure:
    """What fails by hand. ``key``: the kind of its target, as in ``failures`` of configs; ``hits``: the targets that it
    touches; ``until_s``: None: it lasts until it is healed."""

    target: str
    key: str
    state: str
    since_s: float
    until_s: float | None
    hits: tuple[str, ...]


@dataclass(frozen=True)
class FailuresListed:
    """What fails by hand, and what an order has just touched."""

    now_s: float
    touched: tuple[HandFailure, ...] = ()
    failures: tuple[HandFailure, ...] = ()


# As messages ----------------------------------------------------------------------------------------------------------

Document = JobsListed | JobDescribed | LogPiece | NodesListed | QuotasListed | FailuresListed
Response = JobTaken | Done | Refused | Failed | AboutCluster | Document
RESPONSES = Codec[Response](
    {
        "submitted": JobTaken,
        "done": Done,
        "refused": Refused,
        "failed": Failed,
        "cluster": AboutCluster,
        "jobs": JobsListed,
        "job": JobDescribed,
        "log": LogPiece,
        "nodes": NodesListed,
        "quotas": QuotasListed,
        "failures": FailuresListed,
    }
)
