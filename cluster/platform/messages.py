"""What the scheduler and agents tell each other, as values and as objects of JSON (:mod:`cluster.platform.channel`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, is_dataclass
from functools import cache
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

from cluster.health.checks import CheckResult
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
from cluster.platform.channel import BadMessageError, Message

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
class Heard:
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


Order = Heard | AskReady | StartRank | SuspendRank | StopRank | Noted | HealthOrder

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
    saved: tuple[StepSaved, ...]


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
    "heard": Heard,
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
_NAMES = {kind: name for name, kind in _KINDS.items()}
_NUMBERS = {float: (float, int), int: (int,)}


def to_values(message: Order | Word) -> Message:
    """Return a message as the values of its object, with its kind."""
    values: Message = {"kind": _NAMES[type(message)]}
    for one in fields(message):
        value = getattr(message, one.name)
        values |= value.message() if isinstance(value, Unwell) else {one.name: _plain(value)}
    return values


def _plain(value: Any) -> Any:
    """Return a value of a message as JSON has it; what is told of many lives at once has no names."""
    if isinstance(value, tuple):
        return [list(asdict(one).values()) if isinstance(one, StepSaved) else _plain(one) for one in value]
    if isinstance(value, CheckResult):
        return value.message()
    return asdict(value) if is_dataclass(value) and not isinstance(value, type) else value


def of_values(values: Message) -> Order | Word | None:
    """Return the message of an object; None for a kind that neither scheduler nor agents have. Raises BadMessageError
    with what it lacks, or what is of another type."""
    kind = _KINDS.get(values["kind"])
    if kind is None:
        return None
    try:
        return kind(**_fields_of(kind, values))
    except KeyError as error:
        raise BadMessageError(f"{values['kind']}: came without {error}") from None
    except (TypeError, ValueError) as error:
        raise BadMessageError(f"{values['kind']}: came with a value of another type: {error}") from None


@cache
def _hints(kind: type) -> Mapping[str, Any]:
    return get_type_hints(kind)


def _fields_of(kind: type, values: Mapping[str, Any]) -> dict[str, Any]:
    hints = _hints(kind)
    return {
        name: Unwell.of_message(values) if hint is Unwell else _value(hint, name, values[name])
        for name, hint in hints.items()
    }


def _value(hint: Any, name: str, given: Any) -> Any:
    """Return the value of a field from JSON. Raises TypeError if it is of another type."""
    if get_origin(hint) is tuple:
        if not isinstance(given, list):
            raise TypeError(f"{name} is {given!r}, not a list")
        return tuple(_value(get_args(hint)[0], name, one) for one in given)
    if isinstance(hint, UnionType):
        return None if given is None else _value(get_args(hint)[0], name, given)
    if hint is CheckResult:
        return CheckResult.of_message("", given)
    if hint is StepSaved:
        return StepSaved(**_fields_of(hint, dict(zip(_hints(hint), given, strict=True))))
    if is_dataclass(hint) and isinstance(hint, type):
        return hint(**_fields_of(hint, given))
    if isinstance(given, bool) is not (hint is bool) or not isinstance(given, _NUMBERS.get(hint, hint)):
        raise TypeError(f"{name} is {given!r}, not {hint.__name__}")
    return given
