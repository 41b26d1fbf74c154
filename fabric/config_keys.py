"""The keys of configs in a user's words: type with its limits, default, meaning; for ``fabric keys`` and the site."""

from __future__ import annotations

import contextlib
import math
import types
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin

from annotated_types import Ge, Gt, Le, Lt, MaxLen, MinLen
from pydantic import BaseModel, BeforeValidator
from pydantic.fields import FieldInfo

from fabric import units
from fabric.config import MOST_BYTES, MOST_RATE_BPS, MOST_TIME_S, ByName, NoneAs
from fabric.suggestions import one_of

Model = type[BaseModel]
ENTRY = "NAME"
"""Stands in a key's path for the name of an entry that the user chooses, such as a lane's."""
_LONGEST_VALUE = 60


class _Quantity(NamedTuple):
    """What a key is called that a parser reads, and how its value is written: ``others`` than by ``format`` are tried
    where that is not exact. ``most``: the limit of all such keys, which none need state."""

    name: str
    format: Callable[[float], str]
    unit: str
    most: float
    others: tuple[tuple[float, str], ...] = ()


_QUANTITIES: dict[Callable[..., Any], _Quantity] = {
    units.parse_time_s: _Quantity("time", units.format_time, "s", MOST_TIME_S),
    units.parse_size_bytes: _Quantity("size", units.format_size, "B", MOST_BYTES, ((1e9, "GB"), (1e6, "MB"))),
    units.parse_rate_bps: _Quantity("rate", units.format_rate, "bit/s", MOST_RATE_BPS),
}
_PLAIN = {str: "text", int: "integer", float: "number", bool: "true or false", Any: "any"}


@dataclass(frozen=True)
class Key:
    """A key of a config by its path from the top, as ``--set`` has it. ``is_entrys``: of an entry that this config
    has, whose key by :data:`ENTRY` comes as well."""

    path: str
    type: str
    default: str
    meaning: str
    is_entrys: bool = False


class Words:
    """How types and values are written: as plain text here."""

    def code(self, text: str) -> str:
        """Return a text that is to be written as it is."""
        return text

    def part(self, model: Model) -> str:
        """Return the type of a mapping with keys of its own."""
        return "mapping"

    def type_of(self, field: FieldInfo) -> str:
        """Return the type of a key, with its limits."""
        return self._type(field.annotation, field.metadata)

    def _type(self, annotation: Any, metadata: Iterable[Any] = ()) -> str:
        """Return quantities by what they measure, choices by their values, parts by name."""
        origin, parts = get_origin(annotation), get_args(annotation)
        if origin is Annotated:
            return self._type(parts[0], [*_flat(parts[1:]), *metadata])
        if origin in (Union, types.UnionType):
            kinds = [self._type(part, metadata) for part in parts if part is not type(None)]
            if none := _none_as(metadata):
                kinds.append(self.code(none))
            return " or ".join(dict.fromkeys(kinds))
        return self._name(annotation, metadata) + self._limits(metadata, _is_sized(annotation))

    def _name(self, annotation: Any, metadata: Iterable[Any]) -> str:
        origin, parts = get_origin(annotation), get_args(annotation)
        if quantity := _quantity(metadata):
            return quantity.name
        if named := _by_name(metadata):
            return self._choice(named.names)
        if origin is Literal:
            return self._choice(map(str, parts))
        if origin is dict:
            return f"mapping of {self._type(parts[0])} to {self._type(parts[1])}"
        if origin in (list, tuple):
            return f"list of {self._type(parts[0])}"
        if isinstance(annotation, type) and issubclass(annotation, Enum):
            return self._choice(str(one.value) for one in annotation)
        if isinstance(annotation, type) and issubclass(annotation, BaseModel):
            return self.part(annotation)
        return "a mapping of its own" if origin else _PLAIN[annotation]

    def _choice(self, values: Iterable[str]) -> str:
        return one_of(self.code(value) for value in values)

    def _limits(self, metadata: Iterable[Any], is_sized: bool) -> str:
        """Return the limits of a value, or of how many there are of them: ``1..64``, ``> 0, <= 1``."""
        least, most, pattern = _tightest(metadata, is_sized)
        quantity = _quantity(metadata)
        if quantity is not None and most[1] == quantity.most:
            most = ("", None)
        numbers = [_number(limit, metadata) for sign, limit in (least, most) if sign]
        signs = [f"{sign} {number}" for sign, number in zip(filter(None, (least[0], most[0])), numbers, strict=True)]
        if (least[0], most[0]) == (">=", "<="):
            signs = ["..".join(numbers)]
        if is_sized and signs:
            return f", {' '.join(signs)} of them" if most[0] else f", {numbers[0]} or more"
        signs += [f"like {self.code(pattern)}"] if pattern else []
        return f" {', '.join(signs)}" if signs else ""

    def value(self, value: Any, annotation: Any, metadata: Iterable[Any] = ()) -> str:
        """Return a value as YAML has it; mappings with keys of their own, by their names only."""
        annotation, metadata = _stripped(annotation, metadata, value)
        if value is None or isinstance(value, BaseModel):
            return "" if value is not None else self.code(_none_as(metadata) or "none")
        if isinstance(value, Enum):
            return self.code(str(value.value))
        if _by_name(metadata):
            return self.code(value.name)
        if isinstance(value, bool):
            return self.code(str(value).lower())
        if isinstance(value, (list, tuple)):
            return self._several(value, annotation)
        if isinstance(value, Mapping):
            plain = [name if isinstance(one, BaseModel) else f"{name}: {one}" for name, one in value.items()]
            return self.code(_shortened("{" + ", ".join(plain) + "}"))
        text = _quantity_text(value, metadata) if isinstance(value, (int, float)) else value
        return self.code(_shortened(str(text))) if text != "" else "none"

    def _several(self, values: list[Any] | tuple[Any, ...], annotation: Any) -> str:
        if any(isinstance(one, BaseModel) for one in values):
            return f"{len(values)} entries"
        inner = (get_args(annotation) or (Any,))[0]
        plain = Words()
        return self.code(_shortened("[" + ", ".join(plain.value(one, inner) for one in values) + "]"))

    def default_of(self, field: FieldInfo) -> str:
        """Return the default of a key where no config says otherwise."""
        if field.is_required():
            return "required"
        return self.value(field.get_default(call_default_factory=True), field.annotation, field.metadata)


def keys_of(
    model: Model, value: BaseModel | None, parts: Mapping[str, BaseModel], path: str = "", is_entrys: bool = False
) -> Iterator[Key]:
    """Yield the keys of a config and of all that is in it, with the values of ``value`` as their defaults (None: those
    of the model). ``parts``: what stands behind keys whose type does not tell, by path."""
    words = Words()
    for name, field in model.model_fields.items():
        key = path + (field.alias or name)
        own = None if value is None else getattr(value, name)
        default = words.default_of(field) if value is None else words.value(own, field.annotation, field.metadata)
        if key in parts:
            yield Key(key, "mapping, or the name or path of one", "", field.description or "", is_entrys)
            yield from keys_of(type(parts[key]), parts[key], {}, f"{key}.", is_entrys)
            continue
        yield Key(key, words.type_of(field), default, field.description or "", is_entrys)
        for inner, one, place in _inner(field.annotation, own, key):
            yield from keys_of(inner, one, {}, place, is_entrys or (isinstance(own, dict) and one is not None))


def models_in(annotation: Any) -> Iterator[Model]:
    """Yield the models that a type names."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in get_args(annotation):
        yield from models_in(part)


def _inner(annotation: Any, value: Any, path: str) -> Iterator[tuple[Model, BaseModel | None, str]]:
    """Yield what is inside a key: models, their values, and what their keys' paths begin with."""
    models = list(models_in(annotation))
    origins = set(_origins(annotation))
    for model in models:
        if dict in origins:
            yield model, None, f"{path}.{ENTRY}."
        elif list in origins:
            yield model, None, f"{path}[{_called(model) if len(models) > 1 else ''}]."
        else:
            yield model, value if isinstance(value, model) else None, f"{path}."
    if dict in origins and isinstance(value, Mapping):
        for name, one in value.items():
            if isinstance(one, BaseModel):
                yield type(one), one, f"{path}.{name}."


def _called(model: Model) -> str:
    """Return what tells a model apart from others that stand in the same list."""
    kind = model.model_fields.get("kind")
    return str(get_args(kind.annotation)[0]) if kind else str(getattr(model, "called", ""))


def _origins(annotation: Any) -> Iterator[Any]:
    yield get_origin(annotation)
    for part in get_args(annotation):
        yield from _origins(part)


def _flat(metadata: Iterable[Any]) -> Iterator[Any]:
    for part in metadata:
        yield from part.metadata if isinstance(part, FieldInfo) else [part]


def _stripped(annotation: Any, metadata: Iterable[Any], value: Any) -> tuple[Any, list[Any]]:
    """Return a type without what is annotated to it, of a union the member that a value is of, and all annotations."""
    found = list(metadata)
    while True:
        origin, parts = get_origin(annotation), get_args(annotation)
        if origin is Annotated:
            annotation, found = parts[0], [*_flat(parts[1:]), *found]
        elif origin in (Union, types.UnionType):
            others = [part for part in parts if part is not type(None)]
            is_list = isinstance(value, (list, tuple))
            annotation = next((part for part in others if (get_origin(part) in (list, tuple)) == is_list), others[0])
        else:
            return annotation, found


def _quantity(metadata: Iterable[Any]) -> _Quantity | None:
    parsers = [part.func for part in metadata if isinstance(part, BeforeValidator)]
    return next((_QUANTITIES[parser] for parser in parsers if parser in _QUANTITIES), None)


def _by_name(metadata: Iterable[Any]) -> ByName | None:
    return next((part for part in metadata if isinstance(part, ByName)), None)


def _none_as(metadata: Iterable[Any]) -> str:
    return next((part.text for part in metadata if isinstance(part, NoneAs)), "")


def _is_sized(annotation: Any) -> bool:
    return get_origin(annotation) in (list, tuple, dict)


def _tightest(metadata: Iterable[Any], is_sized: bool) -> tuple[tuple[str, Any], tuple[str, Any], str]:
    """Return the lower and the upper limit, each with its sign, and the pattern of a text."""
    least: tuple[str, Any] = ("", None)
    most: tuple[str, Any] = ("", None)
    pattern = ""
    for part in metadata:
        low = (">=", part.ge) if isinstance(part, Ge) else (">", part.gt) if isinstance(part, Gt) else None
        high = ("<=", part.le) if isinstance(part, Le) else ("<", part.lt) if isinstance(part, Lt) else None
        if is_sized and isinstance(part, MinLen):
            low = (">=", part.min_length)
        if is_sized and isinstance(part, MaxLen):
            high = ("<=", part.max_length)
        if low and (least[1] is None or low[1] > least[1]):
            least = low
        if high and (most[1] is None or high[1] < most[1]):
            most = high
        pattern = getattr(part, "pattern", None) or pattern
    return least, most, pattern


def _number(limit: Any, metadata: Iterable[Any]) -> str:
    quantity = _quantity(metadata)
    if quantity is not None and limit:
        return quantity.format(limit)
    return f"{limit:,}" if isinstance(limit, int) else f"{limit:g}"


def _quantity_text(value: float, metadata: Iterable[Any]) -> str:
    """Return a number with its unit if it has one: rounded for a reader only where that is the same number."""
    quantity = _quantity(metadata)
    if quantity is None or not value:
        return units.exact(value) if isinstance(value, float) else str(value)
    parse = next(parser for parser, one in _QUANTITIES.items() if one is quantity)
    for text in (quantity.format(value), *(f"{value / factor:g} {unit}" for factor, unit in quantity.others)):
        with contextlib.suppress(ValueError):
            if math.isclose(parse(text), value, rel_tol=1e-9):
                return text
    return f"{value} {quantity.unit}"


def _shortened(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST_VALUE else f"{line[: _LONGEST_VALUE - 1]}…"
