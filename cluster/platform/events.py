"""What happens to jobs and nodes, as values and as lines of JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import Enum
from typing import Any

from cluster.health.checks import CheckResult, Occasion, Verdict
from cluster.tasks import Priority
from fabric.errors import ConfigError


class Told(str, Enum):
    """How a life was told to end, and so what becomes of the job."""

    SUSPEND = "suspend"
    """It may save, and the job waits again."""
    RESTART = "restart"
    """A node of it is lost; the job waits again."""
    CANCEL = "cancel"
    """Its user stops it: the job ends."""
    FAIL = "fail"
    """A rank of it failed: the job ends."""


@dataclass(frozen=True)
class JobSpec:
    """What a user submits: a command that is run on every one of its nodes, in ``directory``; empty: in a folder of
    each rank's own."""

    name: str
    user: str
    nodes: int
    command: tuple[str, ...]
    priority: Priority = Priority.NORMAL
    group: str = "training"
    limit_s: float | None = None
    directory: str = ""


@dataclass(frozen=True)
class Submitted:
    """A job was taken; its number is that of its first life. ``token``: what its user calls this submission; one that
    comes again is the same job."""

    at_s: float
    number: int
    spec: JobSpec
    token: str = ""


@dataclass(frozen=True)
class Asked:
    """A life got nodes, by their names in the order of ranks, and these are asked whether they can take it. No rank
    runs."""

    at_s: float
    life: int
    nodes: tuple[str, ...]
    why: str


@dataclass(frozen=True)
class Started:
    """All nodes of a life have said that they take it; its ranks start."""

    at_s: float
    life: int
    nodes: tuple[str, ...]
    why: str


@dataclass(frozen=True)
class Requeued:
    """A life that was asked for gives its nodes back before a rank has started, and waits where it was."""

    at_s: float
    life: int
    why: str


@dataclass(frozen=True)
class Saved:
    """A checkpoint of a life that runs is complete. ``earlier_s``: how long before it was told of."""

    at_s: float
    life: int
    step: int
    earlier_s: float = 0.0


@dataclass(frozen=True)
class ToldToEnd:
    """A life was told to end."""

    at_s: float
    life: int
    how: Told
    why: str


@dataclass(frozen=True)
class Left:
    """No rank of a life is left. ``step``: the step that its last checkpoint has, None if it said none; ``code``: its
    exit code, 0 if all ranks ended well; ``finished``: whether they ended by themselves, whatever they were told."""

    at_s: float
    life: int
    step: int | None = None
    code: int = 0
    finished: bool = False


@dataclass(frozen=True)
class NodeOut:
    """A node is not to be used any more."""

    at_s: float
    node: str
    why: str


@dataclass(frozen=True)
class NodeBack:
    """A node may be used again."""

    at_s: float
    node: str
    why: str = field(default="")


@dataclass(frozen=True)
class Demanded:
    """A user has nodes validated, once they are idle. It is done with the next :class:`Validated` on demand of the same
    nodes."""

    at_s: float
    nodes: tuple[str, ...]


@dataclass(frozen=True)
class Validated:
    """A validation of nodes is over: why they were validated, and what each check found of each."""

    at_s: float
    occasion: Occasion
    nodes: tuple[str, ...]
    results: tuple[CheckResult, ...]

    def failed(self) -> tuple[CheckResult, ...]:
        """Return what did not pass."""
        return tuple(one for one in self.results if one.verdict is not Verdict.PASSED)


Event = Submitted | Asked | Started | Requeued | Saved | ToldToEnd | Left | NodeOut | NodeBack | Demanded | Validated
_KINDS: dict[str, type[Event]] = {
    "submitted": Submitted,
    "asked": Asked,
    "started": Started,
    "requeued": Requeued,
    "saved": Saved,
    "told": ToldToEnd,
    "left": Left,
    "node_out": NodeOut,
    "node_back": NodeBack,
    "demanded": Demanded,
    "validated": Validated,
}
_NAMES = {kind: name for name, kind in _KINDS.items()}
_RESULT_KEYS = ("check", "verdict", "measured", "limit", "unit", "reason")


def to_line(event: Event) -> str:
    """Return an event as a line of JSON, without its end."""
    data = asdict(event)
    if isinstance(event, Validated):
        data["results"] = [[one.node, *one.message().values()] for one in event.results]
    return json.dumps({"event": _NAMES[type(event)], **data}, separators=(",", ":"), allow_nan=False)


def from_line(line: str, source: str) -> Event:
    """Return the event of a line. Raises ConfigError if it is none."""
    try:
        data = json.loads(line)
        return _event(data)
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigError(source, [f"is no event of the platform ({type(error).__name__}: {error})"]) from None


def _event(data: dict[str, Any]) -> Event:
    kind = _KINDS[data.pop("event")]
    if kind is Submitted:
        data["spec"] = spec_of(data["spec"])
    if kind is ToldToEnd:
        data["how"] = Told(data["how"])
    if kind in (Asked, Started, Demanded, Validated):
        data["nodes"] = tuple(data["nodes"])
    if kind is Validated:
        data["occasion"] = Occasion(data["occasion"])
        data["results"] = tuple(_result(*values) for values in data["results"])
    return kind(**data)


def _result(node: str, *values: Any) -> CheckResult:
    return CheckResult.of_message(node, dict(zip(_RESULT_KEYS, values, strict=True)))


def spec_of(data: Mapping[str, Any]) -> JobSpec:
    """Return a job from the values of a message or a line. Raises TypeError, KeyError or ValueError if it is none."""
    return JobSpec(**{**data, "command": tuple(data["command"]), "priority": Priority(data["priority"])})
