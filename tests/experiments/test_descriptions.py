"""Every key of a config says what it means, once: in its description, which ``fabric keys`` and the site show."""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Iterator

import pytest
from pydantic import BaseModel

import topologies.load
from app.sweeps.config import SweepConfig
from fabric.config_keys import models_in
from fabric.model.lanes import QueueConfig
from runs.config import RunConfig
from runs.registry import EXPERIMENTS

MOST_CHARACTERS = 260


def within(model: type[BaseModel]) -> Iterator[type[BaseModel]]:
    yield model
    for field in model.model_fields.values():
        for inner in models_in(field.annotation):
            yield from within(inner)


def models() -> list[type[BaseModel]]:
    of_experiments = [one.load_config() for one in EXPERIMENTS.values()]
    tops: list[type[BaseModel]] = [RunConfig, QueueConfig, SweepConfig, *of_experiments]
    tops += [spec for spec, *_ in topologies.load._BUILDERS.values()]
    return sorted({model for top in tops for model in within(top)}, key=lambda one: one.__name__)


def test_the_parts_of_configs_are_found() -> None:
    names = {model.__name__ for model in models()}
    assert {"LaneConfig", "ProgramJobConfig", "DiskFailureConfig", "InterZoneSpec", "DataloaderConfig"} <= names


@pytest.mark.parametrize("model", models(), ids=lambda model: model.__name__)
def test_every_key_has_a_description(model: type[BaseModel]) -> None:
    missing = [name for name, field in model.model_fields.items() if not field.description]
    assert not missing, f"{model.__name__}: {', '.join(missing)}: say what it means, Field(description=...)"
    for name, field in model.model_fields.items():
        text = field.description or ""
        assert text.endswith("."), f"{model.__name__}.{name}: {text!r} is not a sentence"
        assert len(text) <= MOST_CHARACTERS, f"{model.__name__}.{name}: {len(text)} characters; shorten it"


def written(model: type[BaseModel]) -> Iterator[ast.ClassDef]:
    """Yield the source of a model and of ours that it builds on; a model of a kind of job is made of those."""
    for one in model.__mro__:
        if (
            issubclass(one, BaseModel)
            and not one.__module__.startswith("pydantic")
            and one.__name__ in vars(sys.modules[one.__module__])
        ):
            (tree,) = ast.parse(inspect.getsource(one)).body
            assert isinstance(tree, ast.ClassDef)
            yield tree


@pytest.mark.parametrize("model", models(), ids=lambda model: model.__name__)
def test_keys_are_not_described_a_second_time(model: type[BaseModel]) -> None:
    """A text under a key would be another description, and one that nothing shows."""
    under = [
        ast.unparse(before.target)
        for one in written(model)
        for before, after in zip(one.body, one.body[1:], strict=False)
        if isinstance(before, ast.AnnAssign) and isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
    ]
    assert not under, f"{model.__name__}: {', '.join(under)}: move the text to the description"
