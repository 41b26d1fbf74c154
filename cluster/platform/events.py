"""What happens to jobs and nodes, as values and as lines of JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass, field, fields
from enum import Enum
from typing import Any

from cluster.health.checks import CheckResult, Occasion, Verdict
from cluster.platform import old_words
from cluster.platform.reasons import Why, of_values, values_of
from cluster.tasks import Priority
from fabric.errors import ConfigError
from fabric.suggestions import one_of


class EndKind(str, Enum):
    """How a life was told to end, and so what becomes of the job."""

    SUSPEND = "suspend"
    """It may save, and the job waits again."""
    RESTART = "restart"
    """A node of it is lost; the job waits again."""
    CANCEL = "cancel"
    """Its user stops it: the job ends."""
    TIMEOUT = "timeout"
    """It has run for its limit: the job ends."""
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
    comes again is the same job. ``faults``: what is wrong with the spec of a line from before specs were checked, which
    is read as far as it goes; no new line has any."""

    at_s: float
    number: int
    spec: JobSpec
    token: str = ""
    faults: tuple[str, ...] = ()


@dataclass(frozen=True)
class Asked:
    """A life got nodes, by their names in the order of ranks, and these are asked whether they can take it. No rank
    runs."""

    at_s: float
    life: int
    nodes: tuple[str, ...]
    why: Why


@dataclass(frozen=True)
class Started:
    """All nodes of a life have said that they take it; its ranks start."""

    at_s: float
    life: int
    nodes: tuple[str, ...]
    why: Why


@dataclass(frozen=True)
class Requeued:
    """A life that was asked for gives its nodes back before a rank has started, and waits where it was."""

    at_s: float
    life: int
    why: Why


@dataclass(frozen=True)
class Saved:
    """A checkpoint of a life that runs is complete. ``earlier_s``: how long before it was told of."""

    at_s: float
    life: int
    step: int
    earlier_s: float = 0.0


@dataclass(frozen=True)
class EndOrdered:
    """A life was told to end."""

    at_s: float
    life: int
    how: EndKind
    why: Why


@dataclass(frozen=True)
class Left:
    """No rank of a life is left. ``step``: the step that its last checkpoint has, None if it said none; ``code``: its
    exit code, 0 if all ranks ended well; ``finished``: whether they ended by themselves, whatever they were told;
    ``why``: what an agent could not do with its rank, so that it killed or did not start it."""

    at_s: float
    life: int
    step: int | None = None
    code: int = 0
    finished: bool = False
    why: str = ""


@dataclass(frozen=True)
class Held:
    """A job is not to be started until it is released."""

    at_s: float
    number: int
    why: str = ""


@dataclass(frozen=True)
class Released:
    """A job that was held may be started again."""

    at_s: float
    number: int
    why: str = ""


@dataclass(frozen=True)
class NodeOut:
    """A node is not to be used any more. One that was :class:`Silent` comes back once it is heard, one that said that
    it is :class:`Unwell` once it says that it is well, where nobody keeps health."""

    at_s: float
    node: str
    why: Why


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


OfLife = Asked | Started | Requeued | Saved | EndOrdered | Left
OfJob = Submitted | Held | Released
Event = OfLife | OfJob | NodeOut | NodeBack | Demanded | Validated
_KINDS: dict[str, type[Event]] = {
    "submitted": Submitted,
    "asked": Asked,
    "started": Started,
    "requeued": Requeued,
    "saved": Saved,
    "told": EndOrdered,
    "left": Left,
    "held": Held,
    "released": Released,
    "node_out": NodeOut,
    "node_back": NodeBack,
    "demanded": Demanded,
    "validated": Validated,
}
_NAMES = {kind: name for name, kind in _KINDS.items()}
_RESULT_KEYS = ("check", "verdict", "measured", "limit", "unit", "reason", "xids")


def to_line(event: Event) -> str:
    """Return an event as a line of JSON, without its end."""
    return json.dumps(to_values(event), separators=(",", ":"), allow_nan=False)


def to_values(event: Event) -> dict[str, Any]:
    """Return an event as values of JSON."""
    data = asdict(event)
    data.pop("faults", None)
    if isinstance(event, Asked | Started | Requeued | EndOrdered | NodeOut):
        data["why"] = values_of(event.why)
    if isinstance(event, Validated):
        data["results"] = [[one.node, *one.message().values()] for one in event.results]
    plain = {key: value.value if isinstance(value, Enum) else value for key, value in data.items()}
    return {"event": name_of(event), **plain}


def name_of(event: Event) -> str:
    """Return the name of an event's kind."""
    return _NAMES[type(event)]


def from_line(line: str, source: str) -> Event:
    """Return the event of a line. Raises ConfigError if it is none."""
    try:
        data = json.loads(line)
        return event_of(data)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigError(source, [f"is not an event of the platform ({type(error).__name__}: {error})"]) from None


def event_of(values: Mapping[str, Any]) -> Event:
    """Return the event of values of JSON. Raises KeyError, TypeError, ValueError or AttributeError if they are none."""
    data = dict(values)
    kind = _KINDS[data.pop("event")]
    if kind is Submitted:
        data["spec"], data["faults"] = _spec_of_line(data["spec"])
    if kind is EndOrdered:
        data["how"] = EndKind(data["how"])
    if kind in (Asked, Started, Requeued, EndOrdered, NodeOut):
        data["why"] = _why(kind, data)
    if kind in (Asked, Started, Demanded, Validated):
        data["nodes"] = tuple(data["nodes"])
    if kind is Validated:
        data["occasion"] = Occasion(data["occasion"])
        data["results"] = tuple(_result(*values) for values in data["results"])
    return kind(**data)


def _why(kind: type[Event], data: dict[str, Any]) -> Why:
    """Return the reason of a line of any age. Those of older ones are sentences, beside which some of a node have how
    long it was not heard, and what took it out."""
    why = data["why"]
    if not isinstance(why, str):
        return of_values(why)
    if kind is NodeOut:
        return old_words.why_out(why, float(data.pop("unheard_s", 0.0)), str(data.pop("by", "")))
    return old_words.why_ended(why) if kind in (Requeued, EndOrdered) else why


def _result(node: str, *values: Any) -> CheckResult:
    return CheckResult.of_message(node, dict(zip(_RESULT_KEYS, values, strict=False)))


# Specs ---------------------------------------------------------------------------------------------------------------

_TEXTS = {"name": 255, "user": 255, "group": 255, "directory": 4096}
"""Of a job's texts, the most characters: all users are told them, in messages that have an end."""
_NEEDED = tuple(one.name for one in fields(JobSpec) if one.default is MISSING)


def spec_of(data: Mapping[str, Any]) -> JobSpec:
    """Return a job from the values of a message. Raises ConfigError with every key whose value is of another type than
    a job's: once it is in the journal, each scheduler that reads it would meet it again."""
    if faults := list(_spec_faults(data)):
        raise ConfigError("submission", faults)
    return _spec(data)


def _spec(data: Mapping[str, Any]) -> JobSpec:
    priority = Priority(data.get("priority", Priority.NORMAL))
    return JobSpec(**{**data, "command": tuple(data["command"]), "priority": priority})


def _spec_faults(data: object) -> Iterator[str]:
    if not isinstance(data, Mapping):
        yield f"spec: {data!r} is not a mapping; give {', '.join(_NEEDED)}"
        return
    known = [one.name for one in fields(JobSpec)]
    yield from (f"{key}: is not a key of a job; use {one_of(known)}" for key in data if key not in known)
    yield from (f"{key}: is missing; add it" for key in _NEEDED if key not in data)
    for key, value in data.items():
        if key in known and (fault := _value_fault(key, value)):
            yield f"{key}: {fault}"


def _value_fault(key: str, value: Any) -> str:
    """Return the fault of a job's value in words; empty if there is none."""
    if (most := _TEXTS.get(key)) is not None:
        if isinstance(value, str) and "\0" not in value:
            return "" if len(value) <= most else f"has {len(value)} characters; the most is {most}"
        return f"{value!r} is not text; give one without a NUL"
    if key == "command":
        return words_fault(value)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    is_whole = is_number and isinstance(value, int)
    if key == "nodes":
        return "" if is_whole else f"{value!r} is not a whole number; give 1 or more"
    if key == "limit_s":
        is_limit = value is None or (is_number and math.isfinite(value) and value > 0)
        return "" if is_limit else f"{value!r} is not a time; give seconds, more than 0, or null for none"
    levels = one_of(f"{one.value} ({one.name})" for one in Priority)
    return "" if is_whole and value in list(Priority) else f"{value!r} is not a priority; use {levels}"


def words_fault(words: object) -> str:
    """Return why words are not a program and its arguments; empty: they are. A NUL would end a word for the kernel."""
    if not isinstance(words, Sequence) or isinstance(words, str) or not words:
        return f"{words!r} is not a list of texts; give a program and its arguments"
    for place, word in enumerate(words):
        if not isinstance(word, str):
            return f"word {place + 1}, {word!r}, is not text; put it in quotes"
        if "\0" in word:
            return f"word {place + 1}, {word!r}, has a NUL in it, which no program can be given; leave it out"
    return ""


def _spec_of_line(data: Any) -> tuple[JobSpec, tuple[str, ...]]:
    """Return the job of a journal's line, and what is wrong with it. Values of other types have got into journals: such
    a job is read with others in their place, so that what else is there can be gone on with; it is not to run."""
    faults = tuple(_spec_faults(data))
    if not faults:
        return _spec(data), ()
    given = data if isinstance(data, Mapping) else {}
    sound = {key: value for key, value in given.items() if not _value_fault(key, value)}
    texts = {key: str(given.get(key)).replace("\0", "?") for key in _TEXTS if key in _NEEDED or key in given}
    count = given.get("nodes")
    nodes = max(1, int(count)) if isinstance(count, int | float) and math.isfinite(count) else 1
    words = given.get("command")
    stand_in = {"nodes": nodes, "command": (str(words),), **texts}
    keys = {one.name for one in fields(JobSpec)}
    return _spec({key: value for key, value in {**stand_in, **sound}.items() if key in keys}), faults
