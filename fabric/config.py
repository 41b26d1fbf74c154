"""YAML files to frozen, checked values: unknown keys name the nearest valid one, and faults are reported together."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from operator import attrgetter
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, ClassVar, Literal, Protocol, TypeVar, Union, get_args, get_origin

import yaml
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    ValidationError,
)
from pydantic.fields import FieldInfo
from pydantic_core import PydanticKnownError, core_schema

from fabric.errors import ConfigError
from fabric.suggestions import nearest, one_of
from fabric.units import parse_rate_bps, parse_size_bytes, parse_time_s

MOST_RATE_BPS, MOST_BYTES, MOST_TIME_S = 10**15, 2**50, 1e6
"""Of any key: beyond a Pbit/s, a PiB and 11 days is nothing that a run could play."""
LEAST_RATE_BPS = 8_000
"""What a link has at least: a frame takes a second, and a lane with a thousandth of it has a byte per second, which is
the kernel's least rate."""
RateBps = Annotated[int, BeforeValidator(parse_rate_bps), Field(le=MOST_RATE_BPS)]
"""A rate in bit/s, written as ``20 Mbit/s`` or a whole number."""
SizeBytes = Annotated[int, BeforeValidator(parse_size_bytes), Field(le=MOST_BYTES)]
"""A size in bytes, written as ``4 MiB`` or a whole number."""
TimeS = Annotated[float, BeforeValidator(parse_time_s), Field(le=MOST_TIME_S)]
"""A time in seconds, written as ``50 ms`` or a number."""

_MERGED = "tag:yaml.org,2002:merge"
_END_OF_SCALAR = "\n...\n"
_SURROGATE = re.compile("[\ud800-\udfff]")
_SHOWN = 60
_SHOULD_BE = "Input should be "
_MOST_DEPTH = 100
_MOST_VALUES = 1_000_000


@dataclass(frozen=True)
class NoneAs:
    """Annotates a type whose None a config writes as a word of its own, such as ``off``."""

    text: str


OFF_IS_NONE = BeforeValidator(lambda value: None if value is False or value == "off" else value)
"""Takes ``off``, which YAML reads as False, for None."""


class Named(Protocol):
    """A value that configs call by its name."""

    @property
    def name(self) -> str:
        """The name."""


@dataclass(frozen=True)
class ByName:
    """Annotates a type of which a config names one of ``values``: an enumeration whose members have their own files."""

    values: tuple[Named, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """What a config may say."""
        return tuple(value.name for value in self.values)

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        """Return how pydantic reads the type ``source`` and writes it to JSON."""

        def named(given: Any) -> Any:
            if isinstance(given, source):
                return given
            for value in self.values:
                if isinstance(given, str) and given == value.name:
                    return value
            raise PydanticKnownError("enum", {"expected": one_of(map(repr, self.names))})

        written = core_schema.plain_serializer_function_ser_schema(attrgetter("name"))
        return core_schema.no_info_plain_validator_function(named, serialization=written)

    def __get_pydantic_json_schema__(self, schema: core_schema.CoreSchema, handler: GetJsonSchemaHandler) -> Any:
        """Return the choice as JSON Schema has it."""
        return {"type": "string", "enum": list(self.names)}


class Strict(BaseModel):
    """Base of every config: frozen, no unknown keys, no silent conversion of what is not a quantity, finite numbers."""

    # Of all configs that there are, a process reads a few: how the others are checked is not worked out.
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False, defer_build=True)

    called: ClassVar[str] = ""  # What tells it apart in paths of keys from others of a list, where no ``kind`` does.


class Fault(str):
    """A fault of a key, in words behind the key. ``path``: the key; ``is_missing``: there is none, and must be."""

    path: str
    is_missing: bool

    def __new__(cls, path: str, words: str, is_missing: bool = False) -> Fault:
        """Return the fault of a key; of no key in particular if ``path`` is empty."""
        found = super().__new__(cls, f"{path}: {words}" if path else words)
        found.path, found.is_missing = path, is_missing
        found._words = words
        return found

    @property
    def inside(self) -> Fault:
        """The same fault of what the first of its keys holds."""
        return Fault(self.path.partition(".")[2], self._words, self.is_missing)

    def __reduce__(self) -> tuple[Any, ...]:
        """Return what a copy in another process is made of."""
        return Fault, (self.path, self._words, self.is_missing)

    _words: str


Model = TypeVar("Model", bound=BaseModel)


_NOTED: ContextVar[tuple[list[Path], ...]] = ContextVar("noted", default=())


@contextmanager
def files_noted() -> Iterator[list[Path]]:
    """Collect the paths of the files that a block reads by :func:`read_yaml` and its like: a guest, which reads them
    again, must see them, wherever they are."""
    files: list[Path] = []
    token = _NOTED.set((*_NOTED.get(), files))
    try:
        yield files
    finally:
        _NOTED.reset(token)


def note_file(path: Path) -> None:
    """Tell the blocks of :func:`files_noted` that a file is read."""
    for files in _NOTED.get():
        files.append(path)


_FLOAT = "tag:yaml.org,2002:float"
_POWER = re.compile(r"[-+]?[0-9]+(\.[0-9]*)?[eE][-+]?[0-9]+$")
"""Numbers as people and JSON write them, 1e14, and YAML 1.2 reads them; of YAML 1.1 they would be texts."""


class _Loader(yaml.SafeLoader):
    """YAML in which no mapping has a key twice: the first one would count for nothing. And 1e14 is a number."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.twice: list[str] = []

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        """Compose a mapping, and keep which of its keys are there more than once."""
        node = super().compose_mapping_node(anchor)
        lines: dict[tuple[str, str], int] = {}
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.tag != _MERGED:
                line = key.start_mark.line + 1
                first = lines.get((key.tag, key.value))
                lines.setdefault((key.tag, key.value), line)
                if first is not None:
                    self.twice.append(f"line {line}: {key.value} is on line {first}, too; keep one of them")
        return node

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        """Return a node's value. Raises ValueError naming a scalar that is not what its tag says."""
        try:
            return super().construct_object(node, deep)  # type: ignore[no-untyped-call]
        except (ValueError, IndexError, KeyError, AttributeError) as error:
            if not isinstance(node, yaml.ScalarNode):
                raise
            kind = node.tag.rpartition(":")[2]
            raise ValueError(
                f"line {node.start_mark.line + 1}: {node.value[:_SHOWN]!r} is not of type {kind}: {error}"
            ) from error


class _Dumper(yaml.SafeDumper):
    """Puts texts into quotes that the loader would take for numbers."""


for _either in (_Loader, _Dumper):
    _either.add_implicit_resolver(_FLOAT, _POWER, list("-+0123456789"))  # type: ignore[no-untyped-call]


def yaml_of(value: Any, *, in_a_line: bool = False) -> str:
    """Return a value as YAML that :func:`parse_yaml` reads as the same, in one line if that is asked for."""
    width = float("inf") if in_a_line else None
    text: str = yaml.dump(value, Dumper=_Dumper, default_flow_style=in_a_line, width=width, sort_keys=False)
    return text


def parse_yaml(text: str, source: str) -> Any:
    """Return what YAML says. Raises ConfigError if it is none, or has a key twice, or more than could be meant."""
    try:
        loader = _Loader(text)
        value = loader.get_single_data()
    except yaml.YAMLError as error:
        raise ConfigError(source, [f"is not YAML: {error}"]) from error
    except ValueError as error:  # A date or a number that is none.
        raise ConfigError(source, [f"is not YAML that can be read: {error}"]) from error
    except RecursionError as error:
        raise ConfigError(source, [f"is nested too deep; {_MOST_DEPTH} levels can be read"]) from error
    if faults := loader.twice or list(_no_config(value)):
        raise ConfigError(source, faults)
    return value


def _no_config(value: Any) -> Iterator[str]:
    """Yield that a value has more in it, by its aliases, than a config could have, or has itself in it, or a text that
    cannot be written to a file."""
    left, count = [(value, 0)], 0
    while left:
        inner, depth = left.pop()
        count += 1
        if depth > _MOST_DEPTH:
            yield f"is nested too deep, or holds itself by an alias; {_MOST_DEPTH} levels can be read"
            return
        if count > _MOST_VALUES:
            yield f"holds more than {_MOST_VALUES:,} values, its aliases written out; use fewer"
            return
        if isinstance(inner, str) and _SURROGATE.search(inner):
            yield f"{inner[:_SHOWN]!r}: has half of a character in it; write the whole one as \\U and eight digits"
        parts = inner.values() if isinstance(inner, dict) else inner if isinstance(inner, list) else ()
        left += [(part, depth + 1) for part in parts]


def read_text(path: Path, what: str) -> str:
    """Return a file's text, which is UTF-8. ``what``: the kind of file that is to be given. Raises ConfigError if it
    cannot be read."""
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(str(path), [f"cannot be read: {error.strerror}; give the path of {what}"]) from error
    except UnicodeDecodeError as error:
        byte = f"byte {error.start}, 0x{error.object[error.start]:02x}"
        raise ConfigError(str(path), [f"is not UTF-8 ({byte}); give the path of {what}, saved as UTF-8"]) from error


def read_yaml(path: Path) -> dict[str, Any]:
    """Return the mapping in a YAML file. Raises ConfigError if it cannot be read or is not a mapping."""
    note_file(path)
    data = parse_yaml(read_text(path, "a YAML file"), str(path))
    if not isinstance(data, dict):
        raise ConfigError(str(path), [f"holds a {type(data).__name__}; expected a mapping of keys to values"])
    return data


def setting(key: str, value: Any) -> str:
    """Return a value as the setting ``key=value`` that :func:`with_overrides` reads.

    Not as JSON: YAML takes two escapes of one character for two.
    """
    if isinstance(value, str) and value.isascii():
        return f"{key}={json.dumps(value)}"  # The same, for texts that may be whole files a hundred times as fast.
    plain = json.loads(json.dumps(value))
    text = yaml_of(plain, in_a_line=True)
    return f"{key}={text.removesuffix(_END_OF_SCALAR).rstrip()}"


def checked(model: type[Model], data: Mapping[str, Any], source: str) -> Model:
    """Return ``data`` as a ``model``. Raises ConfigError with every fault, each with its key's path."""
    try:
        return model.model_validate(data)
    except ValidationError as error:
        raise ConfigError(source, [_fault(model, item) for item in _of_choices(model, error.errors())]) from error


def _of_choices(model: type[BaseModel], items: Sequence[Any]) -> Iterator[Any]:
    """Yield faults; of a value that may be one of several types, what is wrong by the type that it is of, or one fault
    that says all. pydantic has one for each type, with a name of its own for it in the location."""
    found: dict[tuple[Any, ...], list[Any]] = {}
    for item in items:
        place = _place_of_choice(model, item["loc"])
        location = item["loc"] if place is None else (*item["loc"][:place], *item["loc"][place + 1 :])
        key = location if place is None else item["loc"][:place]
        found.setdefault((place is None, *key), []).append({**item, "loc": location})
    for (is_plain, *_), of_value in found.items():
        of_type = [one for one in of_value if not (one["type"] == "enum" or one["type"].endswith("_type"))]
        deeper = [one for one in of_value if len(one["loc"]) > min(len(other["loc"]) for other in of_value)]
        if is_plain or of_type or deeper:
            yield from of_value if is_plain else of_type or deeper
            continue
        choices = [one["msg"].removeprefix(_SHOULD_BE) for one in of_value]
        yield {**of_value[0], "msg": _SHOULD_BE + ", or ".join(dict.fromkeys(choices))}


def _place_of_choice(model: type[BaseModel], location: Sequence[Any]) -> int | None:
    """Return the place in a location of the name that pydantic gives one of several types; None if there is none."""
    current: Any = model
    for place, part in enumerate(location):
        models = [current] if isinstance(current, type) and issubclass(current, BaseModel) else _models_in(current)
        fields = [one.model_fields[part] for one in models if _has_field(one, part)]
        if fields:
            current = fields[0].annotation
        elif isinstance(part, str) and len(_types_of_choice(current)) > 1 and not models:
            return place
    return None


def _types_of_choice(annotation: Any) -> list[Any]:
    """Return the types of which a value may be one, without None."""
    if get_origin(annotation) is Annotated:
        return _types_of_choice(get_args(annotation)[0])
    if get_origin(annotation) in (Union, UnionType):
        return [one for one in get_args(annotation) if one is not type(None)]
    return [annotation]


def _fault(model: type[BaseModel], item: Any) -> Fault:
    location, beside = _followed(model, item["loc"])
    path = ".".join(str(part) for part in location)
    if item["type"] == "extra_forbidden":
        return unknown_key(path, [field.alias or name for one in beside for name, field in one.model_fields.items()])
    if item["type"] == "missing":
        fields = [field for one in beside for name, field in one.model_fields.items() if name == location[-1]]
        choices = [str(choice) for field in fields for choice in _literals(field)]
        return Fault(path, "is missing; " + (f"give {one_of(choices)}" if choices else "add it"), is_missing=True)
    message = item["msg"].removeprefix("Value error, ")
    got = "" if item["type"] == "value_error" else f" (got {item.get('input')!r})"
    return Fault(path, f"{message}{got}")


def require_none(faults: Iterable[str]) -> None:
    """Raise ValueError with all faults, in the order in which they come; nothing if there are none."""
    if listed := list(faults):
        raise ValueError("; ".join(listed))


def unknown_key(path: str, valid: Iterable[str]) -> Fault:
    """Return the fault for a key that nothing reads, with the nearest valid one."""
    *parents, key = path.split(".")
    names = sorted(valid)
    near = nearest(key, names)
    prefix = ".".join([*parents, ""])
    if near:
        return Fault(path, f"unknown key; did you mean {prefix + near!r}?")
    return Fault(path, f"unknown key; valid here: {', '.join(names)}")


def _followed(model: type[BaseModel], location: Sequence[Any]) -> tuple[list[Any], list[type[BaseModel]]]:
    """Return the keys and places in lists that lead to a value, and the models that the last of them may be a key of.

    Where a model is one of several, pydantic's locations name its kind or its class, too; nobody has written it as a
    key.
    """
    path: list[Any] = []
    current = [model]
    for part in location[:-1]:
        fields = [one.model_fields[part] for one in current if _has_field(one, part)]
        of_kind = [one for one in current if part in _kinds(one)]
        if fields:
            current = [found for field in fields for found in _models_in(field.annotation)]
        elif of_kind:
            current = of_kind
        if fields or not of_kind:
            path.append(part)
    is_of_class = any(part == one.__name__ for part in location[-1:] for one in current)
    return [*path, *([] if is_of_class else location[-1:])], current


def _has_field(model: type[BaseModel], name: Any) -> bool:
    return isinstance(name, str) and name in model.model_fields


def _kinds(model: type[BaseModel]) -> list[Any]:
    """Return the values by which a model is told apart from others in its place, and the name of its class."""
    return [model.__name__, *(kind for field in model.model_fields.values() for kind in _literals(field))]


def _literals(field: FieldInfo) -> tuple[Any, ...]:
    return get_args(field.annotation) if get_origin(field.annotation) is Literal else ()


def _models_in(annotation: Any) -> list[type[BaseModel]]:
    """Return the config models inside an annotation such as ``dict[str, Lane]`` or ``Lane | None``."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [found for part in get_args(annotation) for found in _models_in(part)]


def with_overrides(data: Mapping[str, Any], overrides: Iterable[str]) -> dict[str, Any]:
    """Return ``data`` with ``a.b=value`` settings applied; values are YAML: ``true`` and ``3`` are what they look like.

    Raises ConfigError for text that is not a setting or that goes through a value which is not a mapping.
    """
    result: dict[str, Any] = _copied(data)
    for text in overrides:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise ConfigError("--set", [f"{text!r} is not a setting; write it like duration=5s or topology.mtu=1500"])
        _assign(result, key.split("."), _yaml_value(value, text), text)
    return result


def _yaml_value(value: str, text: str) -> Any:
    try:
        return parse_yaml(value, "--set")
    except ConfigError as error:
        if isinstance(error.__cause__, yaml.YAMLError):
            raise ConfigError("--set", [f"{text!r}: {value!r} is not YAML; put it in quotes"]) from error
        raise ConfigError("--set", [f"{text!r}: {fault}" for fault in error.faults]) from error


def _copied(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _copied(inner) for key, inner in value.items()}
    return value


def _assign(target: dict[str, Any], path: list[str], value: Any, text: str) -> None:
    for part in path[:-1]:
        inner = target.setdefault(part, {})
        if not isinstance(inner, dict):
            raise ConfigError("--set", [f"{text!r}: {part!r} is {inner!r}, not a mapping; set {part!r} itself"])
        target = inner
    target[path[-1]] = value


def changed(config: Model, values: Mapping[str, Any]) -> Model:
    """Return a config with other values at keys of it, such as ``storage.restore.size``; they are taken as they are."""
    update = {key: value for key, value in values.items() if "." not in key}
    below: dict[str, dict[str, Any]] = {}
    for key, value in values.items():
        first, dot, rest = key.partition(".")
        if dot:
            below.setdefault(first, {})[rest] = value
    inner = {first: changed(getattr(config, first), found) for first, found in below.items()}
    return config.model_copy(update={**update, **inner})


Checked = TypeVar("Checked")


class SaidElsewhere(str):
    """A setting ``a.b=value`` that did not come by ``--set``; ``by``: what messages name in its place, ``option``: the
    same without its value."""

    by: str
    option: str

    def __new__(cls, text: str, by: str, option: str = "") -> SaidElsewhere:
        """Return a setting that ``by`` says."""
        found = super().__new__(cls, text)
        found.by, found.option = by, option or by
        return found

    def __reduce__(self) -> tuple[Any, ...]:
        """Return what a copy in another process is made of."""
        return SaidElsewhere, (str(self), self.by, self.option)


def checked_with_settings(
    check: Callable[[dict[str, Any]], Checked],
    data: Mapping[str, Any],
    settings: Sequence[str],
    *,
    prefix: str = "",
    applied: Callable[[Mapping[str, Any], Sequence[str]], dict[str, Any]] = with_overrides,
) -> Checked:
    """Return what ``check`` makes of ``data`` with settings ``applied``. ``prefix``: what was taken off their keys.

    Raises ConfigError; faults that ``data`` alone has not are the settings', not the file's, and name them.
    """
    changed = applied(data, settings)
    try:
        return check(changed)
    except ConfigError as error:
        if not settings:
            raise
        known, own = _without_settings(check, data, applied)
        theirs = [fault for fault in error.faults if fault not in own]
        if not theirs:
            raise
        suspects = _suspects(check, data, settings, applied, theirs)

        @cache
        def left_without(setting: str) -> Sequence[str]:
            return _faults_of(check, applied(data, [one for one in settings if one != setting]))

        found = _causing(theirs, suspects, left_without)
        if len(theirs) < len(error.faults):
            by = found[0].option if isinstance(found[0], SaidElsewhere) else "--set"
            faults = [fault if fault in own else f"{fault} (by {by})" for fault in error.faults]
            raise ConfigError(error.source, faults) from error
        named = [_with_near_names(fault, known, settings, prefix) for fault in theirs]
        raise ConfigError(_settings_named(found, prefix), list(dict.fromkeys(named))) from error


def _faults_of(check: Callable[[dict[str, Any]], Any], data: dict[str, Any]) -> Sequence[str]:
    """Return the faults of a config; none if it has none."""
    try:
        check(data)
    except ConfigError as error:
        return error.faults
    return ()


def _suspects(
    check: Callable[[dict[str, Any]], Any],
    data: Mapping[str, Any],
    settings: Sequence[str],
    applied: Callable[[Mapping[str, Any], Sequence[str]], dict[str, Any]],
    faults: Sequence[str],
) -> Sequence[str]:
    """Return the settings that may have brought faults about: those of ``--set``, unless all faults are there without
    them, too."""
    elsewhere = [text for text in settings if isinstance(text, SaidElsewhere)]
    if not elsewhere:
        return settings
    there = _faults_of(check, applied(data, elsewhere))
    written = [text for text in settings if not isinstance(text, SaidElsewhere)]
    return written if written and set(faults) - set(there) else elsewhere


def _without_settings(
    check: Callable[[dict[str, Any]], Any],
    data: Mapping[str, Any],
    applied: Callable[[Mapping[str, Any], Sequence[str]], dict[str, Any]],
) -> tuple[Mapping[str, Any], tuple[str, ...]]:
    """Return the keys that there are without settings, defaults included if they can be known, and the faults."""
    try:
        alone = check(applied(data, ()))
    except ConfigError as error:
        return data, error.faults
    return (alone.model_dump(mode="json", by_alias=True) if isinstance(alone, BaseModel) else data), ()


def _causing(
    faults: Sequence[str], settings: Sequence[str], left_without: Callable[[str], Sequence[str]]
) -> Sequence[str]:
    """Return the setting that has all the faults, if one alone can have them, else all settings. ``left_without``: the
    faults that there are without a setting."""
    if len(settings) == 1:
        return settings
    found = [text for text in settings if all(_may_cause(text, fault, left_without) for fault in faults)]
    return found if len(found) == 1 else settings


def _settings_named(settings: Sequence[str], prefix: str) -> str:
    """Return ``--set``, with the setting if it is one; of settings that came otherwise, what said them."""
    if all(isinstance(text, SaidElsewhere) for text in settings):
        return ", ".join(dict.fromkeys(text.by for text in settings if isinstance(text, SaidElsewhere)))
    if len(settings) != 1:
        return "--set"
    key, _, value = settings[0].partition("=")
    return f"--set {prefix}{key}={value}" if len(value) <= _SHOWN else f"--set {prefix}{key}"


def _may_cause(setting: str, fault: str, left_without: Callable[[str], Sequence[str]]) -> bool:
    """Whether a fault is of the key of a setting, or of what is around it or in it. One that is of several keys, such
    as of what the fabric lacks, says none of them: it is the setting's if it is not there without that."""
    if not isinstance(fault, Fault):
        return fault not in left_without(setting)
    key = setting.partition("=")[0]
    return f"{key}.".startswith(f"{fault.path}.") or f"{fault.path}.".startswith(f"{key}.")


def _with_near_names(fault: str, known: Mapping[str, Any], settings: Sequence[str], prefix: str) -> str:
    """Return a fault of a mapping that exists only since a setting has a typing error in its key as that error."""
    if not isinstance(fault, Fault):
        return fault
    for text in settings:
        parts = text.partition("=")[0].split(".")
        around: Any = known
        for place, part in enumerate(parts[:-1]):
            if not isinstance(around, Mapping):
                break
            if part not in around:
                near = nearest(part, map(str, around))
                if near and fault.path.startswith(".".join(parts[: place + 1])):
                    return _mistyped(fault, parts[: place + 1], near, prefix)
                break
            around = around[part]
    return fault


def _mistyped(fault: Fault, path: Sequence[str], near: str, prefix: str) -> str:
    needs = f" (a new one needs {fault.path.rpartition('.')[2]}, too)" if fault.is_missing else ""
    where = f"{prefix}{'.'.join(path[:-1])}".rstrip(".") or "the config"
    return f"{where} has no {path[-1]!r}; did you mean {near!r}?{needs}"
