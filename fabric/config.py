"""YAML files to frozen, checked values: unknown keys name the nearest valid one, and faults are reported together."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Annotated, Any, TypeVar

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError

from fabric.errors import ConfigError
from fabric.units import parse_rate_bps, parse_size_bytes, parse_time_s

RateBps = Annotated[int, BeforeValidator(parse_rate_bps)]
"""A rate in bit/s, written as ``20 Mbit/s`` or a whole number."""
SizeBytes = Annotated[int, BeforeValidator(parse_size_bytes)]
"""A size in bytes, written as ``4 MiB`` or a whole number."""
TimeS = Annotated[float, BeforeValidator(parse_time_s)]
"""A time in seconds, written as ``50 ms`` or a number."""


class Strict(BaseModel):
    """Base of every config: frozen, no unknown keys, no silent conversion of what is not a quantity, finite numbers."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


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


def read_yaml(path: Path) -> dict[str, Any]:
    """Return the mapping in a YAML file. Raises ConfigError if it cannot be read or is no mapping."""
    note_file(path)
    try:
        data = yaml.safe_load(path.read_text())
    except OSError as error:
        raise ConfigError(str(path), [f"cannot be read: {error.strerror}; give the path of a YAML file"]) from error
    except yaml.YAMLError as error:
        raise ConfigError(str(path), [f"is not YAML: {error}"]) from error
    if not isinstance(data, dict):
        raise ConfigError(str(path), [f"holds a {type(data).__name__}; expected a mapping of keys to values"])
    return data


def checked(model: type[Model], data: Mapping[str, Any], source: str) -> Model:
    """Return ``data`` as a ``model``. Raises ConfigError with every fault, each with its key's path."""
    try:
        return model.model_validate(data)
    except ValidationError as error:
        raise ConfigError(source, [_fault(model, item) for item in error.errors()]) from error


def _fault(model: type[BaseModel], item: Any) -> str:
    path = ".".join(str(part) for part in item["loc"])
    if item["type"] == "extra_forbidden":
        return unknown_key(path, _keys_beside(model, item["loc"]))
    if item["type"] == "missing":
        return f"{path}: is missing; add it"
    message = item["msg"].removeprefix("Value error, ")
    got = "" if item["type"] == "value_error" else f" (got {item.get('input')!r})"
    return f"{path}: {message}{got}" if path else f"{message}{got}"


def unknown_key(path: str, valid: Iterable[str]) -> str:
    """Return the fault for a key that nothing reads, with the nearest valid one."""
    *parents, key = path.split(".")
    names = sorted(valid)
    near = difflib.get_close_matches(key, names, n=1, cutoff=0.5)
    prefix = ".".join([*parents, ""])
    if near:
        return f"{path}: unknown key; did you mean {prefix + near[0]!r}?"
    return f"{path}: unknown key; valid here: {', '.join(names)}"


def _keys_beside(model: type[BaseModel], location: tuple[Any, ...]) -> list[str]:
    """Return the valid keys of the mapping that holds the key at ``location``."""
    current: Any = model
    for part in location[:-1]:
        current = _model_in(current.model_fields[part].annotation) if _has_field(current, part) else current
        if current is None:
            return []
    return [field.alias or name for name, field in current.model_fields.items()]


def _has_field(model: Any, name: Any) -> bool:
    return isinstance(name, str) and name in getattr(model, "model_fields", {})


def _model_in(annotation: Any) -> Any:
    """Return the first config model inside an annotation such as ``dict[str, Lane]`` or ``Lane | None``."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((found for part in getattr(annotation, "__args__", ()) if (found := _model_in(part))), None)


def with_overrides(data: Mapping[str, Any], overrides: Iterable[str]) -> dict[str, Any]:
    """Return ``data`` with ``a.b=value`` settings applied; values are YAML: ``true`` and ``3`` are what they look like.

    Raises ConfigError for text that is no setting or that goes through a value which is no mapping.
    """
    result: dict[str, Any] = _copied(data)
    for text in overrides:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise ConfigError("--set", [f"{text!r} is no setting; write it like duration=5s or topology.mtu=1500"])
        _assign(result, key.split("."), _yaml_value(value, text), text)
    return result


def _yaml_value(value: str, setting: str) -> Any:
    try:
        return yaml.safe_load(value)
    except yaml.YAMLError as error:
        raise ConfigError("--set", [f"{setting!r}: {value!r} is not YAML; put it in quotes"]) from error


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
