"""A model by its name, or by the path of a YAML file."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Annotated

from pydantic import Field

from fabric.config import Fault, Strict, checked, read_yaml
from fabric.errors import ConfigError
from fabric.suggestions import nearest
from traffic.work.models.convolutional import Convolutional
from traffic.work.models.transformer import Transformer

FOLDER = Path(__file__).parent
Model = Transformer | Convolutional


class _File(Strict):
    model: Annotated[Model, Field(discriminator="family")]


def model_names() -> tuple[str, ...]:
    """Return the names of the models that are shipped."""
    return tuple(sorted(path.stem for path in FOLDER.glob("*.yaml")))


def is_path(name: str) -> bool:
    """Whether a model's name is the path of its file."""
    return name.endswith((".yaml", ".yml"))


def model_of(name: str) -> Model:
    """Return a model by its name, or by the path of its YAML file, which ends in ``.yaml``.

    Raises ConfigError if there is none, or if the file is none of a model's.
    """
    if is_path(name):
        return _read(Path(name))
    if name not in model_names():
        near = nearest(name, model_names())
        meant = f"did you mean {near!r}?" if near else f"use one of {', '.join(model_names())}."
        raise ConfigError("model", [f"unknown model {name!r}; {meant} Or give the path of a YAML file"])
    return _shipped(name)


@lru_cache(maxsize=32)
def _shipped(name: str) -> Model:
    return _read(FOLDER / f"{name}.yaml")


def _read(path: Path) -> Model:
    data = read_yaml(path)
    try:
        return checked(_File, {"model": data}, str(path)).model
    except ConfigError as error:
        inside = [fault.inside if isinstance(fault, Fault) else fault for fault in error.faults]
        raise ConfigError(error.source, inside) from error


def parameters_of(model: Model) -> int:
    """Return how many numbers a model's tensors have."""
    return sum(layer.parameters for layer in model.all_layers())


def forward_flops(model: Model) -> float:
    """Return the FLOPs of a forward pass over one sample."""
    return sum(layer.flops for layer in model.all_layers())


def active_parameters(model: Model) -> int:
    """Return how many numbers a token meets: of experts, those that it takes."""
    total = parameters_of(model)
    if not isinstance(model, Transformer) or model.experts is None:
        return total
    experts = model.experts
    unused = (experts.routed - experts.top) * 3 * model.hidden * experts.inner
    return total - (model.layers - experts.dense_layers) * unused
