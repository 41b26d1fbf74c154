"""The keys of a training job. What they cannot be together is in :mod:`traffic.work.generators.faults`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, Field

from fabric.config import Strict
from traffic.work.generators.layout import Layout
from traffic.work.generators.options import (
    MOST_MICRO_BATCHES,
    Compute,
    DataParallel,
    Experts,
    Goal,
    ParameterServer,
    Pipeline,
)
from traffic.work.models.listing import Model, is_path, model_of
from traffic.work.models.transformer import Transformer


def _absolute(model: str) -> str:
    """Return a path as an absolute one: a run may play elsewhere."""
    return str(Path(model).absolute()) if is_path(model) else model


class TrainingKeys(Strict):
    """The keys of a training job: a model, its layout, and what its ranks do in a step."""

    model: Annotated[str, Field(min_length=1, max_length=1000), AfterValidator(_absolute)] = Field(
        description="A model that is shipped, or the path of a YAML file (ends in .yaml)."
    )
    layout: Layout = Field(Layout(), description="Ranks by dimension of parallelism.")
    sequence: int | None = Field(None, gt=0, le=10**8, description="Tokens of a sequence; None: the model's.")
    micro_batches: int = Field(
        1, gt=0, le=MOST_MICRO_BATCHES, description="Micro-batches of a step, per copy of the model."
    )
    micro_batch: int = Field(1, gt=0, le=1_000_000, description="Sequences or images of a micro-batch.")
    played: int | None = Field(
        None,
        gt=0,
        le=MOST_MICRO_BATCHES,
        description="Micro-batches that are played; the time of the others is that of the steady part; None: all.",
    )
    pipeline: Pipeline = Field(Pipeline(), description="Schedule of the pipeline.")
    data_parallel: DataParallel = Field(DataParallel(), description="Parameters and gradients of data-parallel ranks.")
    experts: Experts = Field(Experts(), description="How tokens get to experts.")
    parameter_server: ParameterServer | None = Field(
        None, description="Servers that add gradients up, in place of data_parallel's collectives."
    )
    compute: Compute = Field(Compute(), description="How long computing takes.")
    goal: Goal = Field(Goal(), description="The goal of training: its samples, and the steps to an accuracy.")

    @property
    def shapes(self) -> Model:
        """The model, for sequences of the job's length. Raises ConfigError if there is none."""
        model = model_of(self.model)
        if self.sequence is not None and isinstance(model, Transformer):
            return model.with_sequence(self.sequence)
        return model
