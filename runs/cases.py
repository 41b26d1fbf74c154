"""Cases of a grid: every combination of the values on its axes, each with the name and the title of its phase.

A grid is a frozen dataclass whose fields are its axes::

    @dataclass(frozen=True)
    class Reads(Case, name="{queueing}_rts_{limit}", title="{limit}, {queueing}"):
        queueing: Queueing = axis("queueings")
        limit: int | None = axis("request_to_send", words=lambda limit: f"{limit or 'all'} at once")

    Reads.grid(config)     # a case per queueing and limit, queueing after queueing

An axis may say which key of the config a value stands for (``sets="storage.request_to_send"``): what plays takes it
from :meth:`Case.in_config`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from enum import Enum
from itertools import product
from typing import Any, ClassVar, TypeVar

from fabric.config import Model, changed
from fabric.metrics import first_part
from fabric.units import exact

OneCase = TypeVar("OneCase", bound="Case")


def name_of(value: object) -> str:
    """Return a value as names of phases have it: ``off`` for None, and no dot, which ends a phase's name in paths of
    metrics."""
    if value is None:
        return "off"
    text = str(value.value) if isinstance(value, Enum) else exact(value) if isinstance(value, float) else str(value)
    return text.replace(".", "p")


def words_of(value: object) -> str:
    """Return a value as people read it: its ``words``, if it has some."""
    if (words := getattr(value, "words", None)) is not None:
        return str(words)
    if isinstance(value, Enum):
        return str(value.value).replace("_", " ")
    return f"{value:g}" if isinstance(value, float) else str(value)


_AXIS = "axis"


@dataclass(frozen=True)
class Axis:
    """An axis of a grid, see :func:`axis`."""

    values: str | Callable[[Any], Iterable[Any]]
    name: Callable[[Any], object]
    words: Callable[[Any], str]
    sets: str | Callable[[Any], Mapping[str, Any]] = ""

    def of(self, config: object) -> tuple[Any, ...]:
        """Return the values that a config has."""
        found = getattr(config, self.values) if isinstance(self.values, str) else self.values(config)
        return tuple(range(1, found + 1)) if isinstance(found, int) else tuple(found)

    def keys_of(self, value: Any) -> Mapping[str, Any]:
        """Return the keys of the config that a value stands for, with what they are then."""
        return self.sets(value) if callable(self.sets) else {self.sets: value} if self.sets else {}


def axis(
    values: str | Callable[[Any], Iterable[Any]] = "",
    name: Callable[[Any], object] = name_of,
    words: Callable[[Any], str] = words_of,
    default: Any = MISSING,
    sets: str | Callable[[Any], Mapping[str, Any]] = "",
) -> Any:
    """Return a field that is an axis. ``values``: the key of the config that lists them, or that has a whole number for
    as many repeats, which count from 1, or a function of the config; none if cases are not made by :meth:`Case.grid`;
    ``name``: a value in names of phases; ``words``: in titles and tables; ``default``: of cases that do not give it;
    ``sets``: the key of the config that a value stands for, or a function of the value to such keys."""
    return field(default=default, metadata={_AXIS: Axis(values, name, words, sets)})


@dataclass(frozen=True)
class Case:
    """A case of a grid, which is a phase. Subclasses give the format of its ``name`` and ``title``, whose parts are
    fields and properties; ``alone``: the format of the name of the case in which its jobs play alone, or of several
    such, each by the part that plays there, such as a job or an operation."""

    _name = ""
    _title = ""
    _alone: ClassVar[Mapping[str, str]] = {}

    def __init_subclass__(cls, name: str = "", title: str = "", alone: str | Mapping[str, str] = "") -> None:
        cls._name, cls._title = name or cls._name, title or cls._title
        cls._alone = ({"": alone} if isinstance(alone, str) else alone) if alone else cls._alone

    @classmethod
    def grid(cls: type[OneCase], config: object) -> tuple[OneCase, ...]:
        """Return all cases of a config, in the order of the axes: the last one changes first."""
        return tuple(cls(*one) for one in product(*(axis.of(config) for axis in axes_of(cls).values())))

    @property
    def name(self) -> str:
        """The name of its phase."""
        return self._name.format_map(_Parts(self, "name"))

    @property
    def title(self) -> str:
        """The title of its phase."""
        return self.format(self._title)

    def alone(self, number: str = "") -> str:
        """Return the name of the case in which the job, or part, with a number of this name plays alone; empty without
        one."""
        text = self._alone.get(first_part(number), self._alone.get("", ""))
        return text.format_map(_Parts(self, "name"))

    @property
    def settings(self) -> dict[str, str]:
        """The words for each of its values, by field."""
        return {field: axis.words(getattr(self, field)) for field, axis in axes_of(type(self)).items()}

    def in_config(self, config: Model) -> Model:
        """Return a config with the values of the case at the keys for which they stand."""
        keys = [axis.keys_of(getattr(self, field)) for field, axis in axes_of(type(self)).items()]
        values = {key: value for of_axis in keys for key, value in of_axis.items()}
        return changed(config, values) if values else config

    def format(self, text: str) -> str:
        """Return a text with fields and properties in braces replaced by their words."""
        return text.format_map(_Parts(self, "words"))


@dataclass(frozen=True)
class Point:
    """A part of a case that figures show by itself, such as one of the sizes that it played: its settings in words, and
    its numbers, both beside those of the case."""

    settings: Mapping[str, str] = field(default_factory=dict)
    numbers: Mapping[str, float] = field(default_factory=dict)


class _Parts(dict[str, str]):
    """The parts of a case's name or title, by field or property."""

    def __init__(self, case: Case, what: str) -> None:
        self._case, self._what = case, what

    def __missing__(self, field: str) -> str:
        axis = axes_of(type(self._case)).get(field, _PROPERTY)
        value = getattr(self._case, field)
        return name_of(axis.name(value)) if self._what == "name" else axis.words(value)


_PROPERTY = Axis("", name_of, words_of)


def axes_of(kind: type[Case]) -> Mapping[str, Axis]:
    """Return the axes of a grid by field; other fields are not settings."""
    return {one.name: one.metadata[_AXIS] for one in fields(kind) if _AXIS in one.metadata}
