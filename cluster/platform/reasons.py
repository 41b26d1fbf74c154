"""Reasons of events, as values: what a program asks of one is a field or its class, its text is made by ``str``.

A reason that nothing depends on is its text. In a journal each is an object of one key, its kind.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from cluster.decisions import Because, Reason
from cluster.health.unwell import Unwell


@dataclass(frozen=True)
class Silent:
    """A node was not heard for ``for_s`` seconds. ``asked``: what it left unanswered, where it was taken out for that
    and not for the time alone."""

    for_s: float
    asked: str = ""

    def __str__(self) -> str:
        return f"not heard: {self.asked}" if self.asked else f"not heard for {self.for_s:.1f} s"


@dataclass(frozen=True)
class FailedChecks:
    """Checks of a validation that a node did not pass, in words, and the Xids that they name. ``is_again``: it had been
    repaired."""

    words: str
    xids: tuple[int, ...] = ()
    is_again: bool = False

    def __str__(self) -> str:
        return f"validator{' after a repair' if self.is_again else ''}: {self.words}"


@dataclass(frozen=True)
class Lemon:
    """A node is out for good, by the signals that have reached their limits."""

    signals: str

    def __str__(self) -> str:
        return f"lemon, out for good: {self.signals}"


@dataclass(frozen=True)
class OfNodes:
    """An event on nodes (``on``), such as the loss of a rank."""

    on: tuple[str, ...]
    words: str

    def __str__(self) -> str:
        return f"{', '.join(self.on)}: {self.words}"


@dataclass(frozen=True)
class NoAnswer:
    """Nodes (``on``) were asked whether they can take a life, and did not answer in time."""

    on: tuple[str, ...]
    within_s: float

    def __str__(self) -> str:
        return f"{', '.join(self.on)}: no answer within {self.within_s:g} s"


Why = str | Because | Silent | Unwell | FailedChecks | Lemon | OfNodes | NoAnswer
_CLASSES: dict[str, type] = {
    "decided": Because,
    "silent": Silent,
    "unwell": Unwell,
    "checks": FailedChecks,
    "lemon": Lemon,
    "of_nodes": OfNodes,
    "no_answer": NoAnswer,
}
_NAMES = {one: name for name, one in _CLASSES.items()}
_TEXT = "said"
KINDS = (_TEXT, *_CLASSES)
"""The names of all kinds."""


def kind_of(why: Why) -> str:
    """Return the name of a reason's kind; ``said``: a text."""
    return _NAMES.get(type(why), _TEXT)


def blamed_by(why: Why) -> tuple[str, ...]:
    """Return the nodes that a reason of a life's end or return to the queue blames; none if it blames no node."""
    return why.on if isinstance(why, Because | OfNodes | NoAnswer) else ()


def values_of(why: Why) -> dict[str, Any]:
    """Return a reason as values of JSON."""
    if isinstance(why, str):
        return {_TEXT: why}
    fields = asdict(why)
    if isinstance(why, Because):
        fields["reason"] = why.reason.name
    return {kind_of(why): fields}


def of_values(values: Mapping[str, Any]) -> Why:
    """Return the reason of values of JSON. Raises KeyError, TypeError or ValueError if they are none."""
    ((kind, given),) = values.items()
    if kind == _TEXT:
        return str(given)
    fields = {name: tuple(one) if isinstance(one, list) else one for name, one in given.items()}
    if _CLASSES[kind] is Because:
        fields["reason"] = Reason[given["reason"]]
    why: Why = _CLASSES[kind](**fields)
    return why
