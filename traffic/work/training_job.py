"""Training jobs: the graph of a model's step on a layout, played as any graph of work is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Annotated

from pydantic import Field

from fabric.model.identity import NodeId
from fabric.model.lanes import ServiceLevel
from fabric.model.network import Fabric
from traffic.job import Stage
from traffic.work.checks import require_playable
from traffic.work.generators.config import TrainingConfig, training_graph
from traffic.work.graph import WorkGraph
from traffic.work.job import PlayConfig, WorkJob, work_faults


class PlayedTrainingConfig(PlayConfig, TrainingConfig):
    """A training job: a model, its layout, what its ranks do in a step, and how that is played."""

    ranks_per_node: Annotated[int, Field(ge=1, le=64)] | None = Field(
        default=None, description="Ranks on each node. Without it, `layout.gpus_per_node`, or all if they are fewer."
    )

    def loaded(self) -> WorkGraph:
        """Return the graph of a step. Raises ConfigError if it cannot be played."""
        return _loaded(self.model_dump_json())

    def placed_by_node(self) -> PlayedTrainingConfig:
        """Return it with a number of ranks on each node."""
        if self.ranks_per_node is not None:
            return self
        return self.model_copy(update={"ranks_per_node": min(self.layout.gpus_per_node, self.ranks)})

    @property
    def is_synchronous(self) -> bool:
        """Whether a step has the gradients of all: collectives, or servers that wait for all."""
        return self.parameter_server is None or self.parameter_server.delay == 0


PlayedTrainingConfig.model_rebuild()  # Here, where modules are loaded: else each rank, which is forked, would do it.


def recorded_last_ranks(config: PlayedTrainingConfig) -> list[int]:
    """Return the ranks of the pipelines' last stages of which operations are rows."""
    last = [pipeline[-1] for pipeline in config.layout.groups("pp")]
    if not config.recorded_steps:
        return []
    return [rank for rank in last if config.recorded_ranks is None or rank in config.recorded_ranks]


@lru_cache(maxsize=4)
def _loaded(text: str) -> WorkGraph:
    config = PlayedTrainingConfig.model_validate_json(text)
    graph = training_graph(config)
    require_playable(graph)
    return graph


def training_faults(config: PlayedTrainingConfig, fabric: Fabric) -> Iterator[str]:
    """Yield what of a config cannot be played on a fabric."""
    needs_time = config.compute.flops_per_s is None and config.compute.forward is None
    if needs_time:
        yield "compute: says not how long computing takes; give flops_per_s or forward"
        return
    yield from _faults_of_rows(config)
    on_node = config.placed_by_node().ranks_per_node or 1
    if config.layout.gpus_per_node < config.ranks and on_node != config.layout.gpus_per_node:
        yield (
            f"ranks_per_node: {on_node}, but layout.gpus_per_node is {config.layout.gpus_per_node}, by which groups "
            "are made; give both the same"
        )
    if fabric.inside is not None and on_node > fabric.inside.gpus:
        yield (
            f"layout.gpus_per_node: {on_node}, but nodes of {fabric.name} have {fabric.inside.gpus} GPUs; "
            f"use {fabric.inside.gpus}"
        )
    yield from work_faults(config.placed_by_node(), fabric, key="")


def _faults_of_rows(config: PlayedTrainingConfig) -> Iterator[str]:
    """Yield which numbers need rows of operations that are not recorded."""
    if config.steady.played < config.micro_batches and not recorded_last_ranks(config):
        yield (
            f"played: {config.steady.played} of {config.micro_batches} micro-batches, and the time of a whole step "
            "follows from rows of a last stage's operations; set recorded_steps to 1 or more"
        )
    steps = config.goal.steps_function
    are_recorded = config.recorded_steps > 0 and config.recorded_ranks is None
    if steps is not None and "staleness" in steps.uses and not (config.is_synchronous or are_recorded):
        yield (
            f"goal.steps: {steps.said}: staleness is measured on the rows of all ranks' operations; set "
            "recorded_steps to 1 or more, and leave recorded_ranks out"
        )


class TrainingJob(WorkJob):
    """A job that plays a training job's step again and again, on ``nodes``. Raises ConfigError for what cannot be."""

    def __init__(
        self, stage: Stage, config: PlayedTrainingConfig, nodes: Sequence[NodeId], *, level: ServiceLevel, name: str
    ) -> None:
        super().__init__(stage, config.placed_by_node(), nodes, level=level, name=name)
