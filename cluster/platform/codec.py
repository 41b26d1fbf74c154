"""Messages of the platform as values and as objects of JSON: one encoder and decoder, by what their classes declare.

An object has the ``kind`` of a message and a key per field, in their order. What is wrong with a node
(:class:`cluster.health.unwell.Unwell`) has keys of its own in it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields, is_dataclass
from enum import Enum
from functools import cache
from types import UnionType
from typing import Any, Generic, TypeVar, get_args, get_origin, get_type_hints

from cluster.health.checks import CheckResult
from cluster.health.unwell import Unwell
from cluster.platform.channel import BadMessageError, Message

M = TypeVar("M")
_ROWS, _UNLESS_NONE, _WRITTEN = "rows", "unless none", "written"
_NUMBERS = {float: (float, int), int: (int,)}


def rows() -> Any:
    """Return a field of values of a class, each of which is a list without names: there are many."""
    return field(metadata={_ROWS: True})


def unless_none() -> Any:
    """Return a field that an object lacks if it is None, as it is by default."""
    return field(default=None, metadata={_UNLESS_NONE: True})


def written(to_values: Callable[[Any], Any], of_values: Callable[[Any], Any]) -> Any:
    """Return a field of a tuple of values that have a form of their own in JSON. ``of_values`` raises KeyError,
    TypeError or ValueError for what is not that form."""
    return field(default=(), metadata={_WRITTEN: (to_values, of_values)})


@dataclass(frozen=True)
class Codec(Generic[M]):
    """The kinds of some messages: their classes, frozen dataclasses, by the names of the kinds."""

    kinds: Mapping[str, type[M]]

    def kind_of(self, kind: type[Any]) -> str:
        """Return the name of a class."""
        return next(name for name, one in self.kinds.items() if one is kind)

    def to_values(self, message: M) -> Message:
        """Return a message as the values of its object."""
        return {"kind": self.kind_of(type(message)), **json_values(message)}

    def of_values(self, values: Message) -> M | None:
        """Return the message of an object; None for another kind. Raises BadMessageError with what it lacks, or what is
        of another type."""
        kind = self.kinds.get(values["kind"])
        if kind is None:
            return None
        try:
            return kind(**_fields_of(kind, values))
        except KeyError as error:
            raise BadMessageError(f"{values['kind']}: came without {error}") from None
        except (TypeError, ValueError) as error:
            raise BadMessageError(f"{values['kind']}: came with a value of another type: {error}") from None


def json_values(message: Any) -> dict[str, Any]:
    """Return the fields of a message, or of a part of one, as JSON has them."""
    values: dict[str, Any] = {}
    for one in fields(message):
        value = getattr(message, one.name)
        if isinstance(value, Unwell):
            values |= value.message()
        elif _WRITTEN in one.metadata:
            values[one.name] = list(map(one.metadata[_WRITTEN][0], value))
        elif not (value is None and _UNLESS_NONE in one.metadata):
            values[one.name] = _plain(value, _ROWS in one.metadata)
    return values


def _plain(value: Any, in_rows: bool = False) -> Any:
    """Return a value of a message as JSON has it."""
    if isinstance(value, tuple):
        return [list(json_values(one).values()) if in_rows else _plain(one) for one in value]
    if isinstance(value, CheckResult):
        return value.message()
    if isinstance(value, Enum):
        return value.value
    return json_values(value) if is_dataclass(value) and not isinstance(value, type) else value


@cache
def _declared(kind: Any) -> tuple[tuple[Field[Any], Any], ...]:
    """Return the fields of a class with their types."""
    hints = get_type_hints(kind)
    return tuple((one, hints[one.name]) for one in fields(kind))


def _fields_of(kind: Any, values: Mapping[str, Any]) -> dict[str, Any]:
    return {
        one.name: Unwell.of_message(values) if hint is Unwell else _value(one, hint, values[one.name])
        for one, hint in _declared(kind)
        if one.name in values or one.default is MISSING
    }


def _value(one: Field[Any], hint: Any, given: Any) -> Any:
    """Return the value of a field from JSON. Raises TypeError if it is of another type."""
    if hint is Any:
        return given
    if _WRITTEN in one.metadata:
        return tuple(map(one.metadata[_WRITTEN][1], given))
    if get_origin(hint) is tuple:
        if not isinstance(given, list):
            raise TypeError(f"{one.name} is {given!r}, not a list")
        return tuple(_value(one, get_args(hint)[0], part) for part in given)
    if isinstance(hint, UnionType):
        return None if given is None else _value(one, get_args(hint)[0], given)
    if hint is CheckResult:
        return CheckResult.of_message("", given)
    if isinstance(hint, type) and issubclass(hint, Enum):
        return hint(given)
    if is_dataclass(hint):
        return _part(hint, given, _ROWS in one.metadata)
    if isinstance(given, bool) is not (hint is bool) or not isinstance(given, _NUMBERS.get(hint, hint)):
        raise TypeError(f"{one.name} is {given!r}, not {hint.__name__}")
    return given


def _part(kind: Any, given: Any, in_rows: bool) -> Any:
    """Return a value of a class, from its keys, or from its values in their order."""
    names = (one.name for one, _ in _declared(kind))
    return kind(**_fields_of(kind, dict(zip(names, given, strict=True)) if in_rows else given))
