"""The page of all configs: each experiment's defaults as its YAML file, and the type and default of every key."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import types
from collections.abc import Iterable, Iterator
from enum import Enum
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, BeforeValidator
from pydantic.fields import FieldInfo

import topologies
from experiments.registry import EXPERIMENTS
from experiments.run.config import RunConfig
from fabric import units

_QUANTITIES = {
    units.parse_time_s: ("time", units.format_time),
    units.parse_size_bytes: ("size", units.format_size),
    units.parse_rate_bps: ("rate", units.format_rate),
}
"""What a key that one of these reads is called, and how its default is written."""

Model = type[BaseModel]


def config_page() -> Iterator[str]:
    """Yield the configs of all experiments as lines of Markdown."""
    yield from ("# Configs", "", "Set a key with `--set a.b=value`, or in a YAML file of your own that names its")
    yield from ("`experiment`. Times, sizes and rates are written with their units: `50 ms`, `4 MiB`, `20 Mbit/s`.", "")
    yield from ("## Keys of every experiment", "", *_table(RunConfig.model_fields))
    models = _models_in(RunConfig)
    for experiment in EXPERIMENTS.values():
        yield from (f"## {experiment.name}", "", experiment.question, "", "```yaml")
        yield from (experiment.file.read_text().rstrip(), "```", "")
        fields = experiment.load_config().model_fields
        own = {name: field for name, field in fields.items() if name not in RunConfig.model_fields}
        yield from _table(own)
        models.update(_models_in(experiment.load_config()))
    yield from ("## Topologies", "", "A topology is a file of its own, or the value of `topology`.", "")
    for spec in _topologies():
        yield from (*_prose(spec), "", *_table(spec.model_fields))
        models.update(_models_in(spec))
    yield from ("## Parts of configs", "")
    for name in sorted(models):
        yield from (f"### {name}", "", *_prose(models[name]), "", *_table(models[name].model_fields))


def _topologies() -> Iterator[Model]:
    """Yield what topology files of each ``builder`` may have."""
    for found in pkgutil.walk_packages(topologies.__path__, "topologies."):
        module = importlib.import_module(found.name)
        for value in vars(module).values():
            is_own = isinstance(value, type) and issubclass(value, BaseModel) and value.__module__ == found.name
            if is_own and "builder" in value.model_fields:
                yield value


def _prose(model: Model) -> list[str]:
    return inspect.cleandoc(model.__doc__ or "").replace("``", "`").splitlines()


def _table(fields: dict[str, FieldInfo]) -> Iterator[str]:
    yield from ("| key | type | default |", "|---|---|---|")
    for name, field in fields.items():
        yield f"| `{field.alias or name}` | {_type(field.annotation, field.metadata)} | {_default(field)} |"
    yield ""


def _parser(metadata: Iterable[Any]) -> Any:
    return next((part.func for part in metadata if isinstance(part, BeforeValidator)), None)


def _type(annotation: Any, metadata: Iterable[Any] = ()) -> str:
    """Return a type in a user's words: quantities by what they measure, choices by their values, parts by name."""
    parser, origin, parts = _parser(metadata), get_origin(annotation), get_args(annotation)
    if parser in _QUANTITIES:
        return _QUANTITIES[parser][0]
    if origin is Annotated:
        return _type(parts[0], parts[1:])
    if origin is Literal:
        return " or ".join(f"`{part}`" for part in parts)
    if origin in (Union, types.UnionType):
        return " or ".join(_type(part) for part in parts if part is not type(None))
    if origin is dict:
        return f"mapping of {_type(parts[0])} to {_type(parts[1])}"
    if origin in (list, tuple):
        return f"list of {_type(parts[0])}"
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return ", ".join(f"`{choice.value}`" for choice in annotation)
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return f"[{annotation.__name__}](#{annotation.__name__.lower()})"
    return {str: "text", int: "whole number", float: "number", bool: "`true` or `false`", Any: "any"}[annotation]


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    default = field.get_default(call_default_factory=True)
    if isinstance(default, BaseModel) or (default and isinstance(default, (list, tuple, dict))):
        return "see the YAML file" if not isinstance(default, BaseModel) else "its own defaults"
    if default is None or default in ("", [], (), {}):
        return "none"
    if (parser := _parser(field.metadata)) in _QUANTITIES:
        return f"`{_QUANTITIES[parser][1](default)}`"
    value = getattr(default, "value", default)
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


def _models_in(model: Model) -> dict[str, Model]:
    found: dict[str, Model] = {}
    for field in model.model_fields.values():
        for kind in _models_of(field.annotation):
            found[kind.__name__] = kind
            found.update(_models_in(kind))
    return found


def _models_of(annotation: Any) -> Iterator[Model]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in get_args(annotation):
        yield from _models_of(part)
