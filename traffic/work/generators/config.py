"""A training job: its keys, checked together, and the graph of its step."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from pydantic import model_validator

from fabric.config import require_none
from fabric.errors import ConfigError
from traffic.work.generators.costs import Costs, costs_of
from traffic.work.generators.faults import faults_of, layers_per_stage
from traffic.work.generators.keys import TrainingKeys
from traffic.work.generators.plan import Choices, StepPlan
from traffic.work.generators.routing import Routed, RoutingRule, route
from traffic.work.generators.servers import server_graph
from traffic.work.generators.stages import parts_of, stages_of, with_tied_copy
from traffic.work.generators.steady import SteadyPart
from traffic.work.generators.step import RankStep, step_graph
from traffic.work.graph import WorkGraph
from traffic.work.models.listing import Model, forward_flops
from traffic.work.models.transformer import Transformer

MOST_OPERATIONS = 20_000_000


class TrainingConfig(TrainingKeys):
    """A training job: a model, its layout, and what its ranks do in a step."""

    @model_validator(mode="after")
    def _verify(self) -> TrainingConfig:
        try:
            model = self.shapes
        except ConfigError as error:
            raise ValueError(str(error)) from error
        require_none([*faults_of(self, model), *self._faults_of_played()])
        return self

    @property
    def steady(self) -> SteadyPart:
        """Which part of a step is played."""
        part = self._part
        return replace(part, busiest_s=self._busiest_s()) if part.uneven else part

    @property
    def _part(self) -> SteadyPart:
        interleaved = self.pipeline.schedule == "interleaved"
        played = self.micro_batches if self.played is None else self.played
        uneven = len({*(self.pipeline.stage_layers or ())}) > 1
        return SteadyPart(self.micro_batches, played, self.layout.pipeline, interleaved, uneven)

    def _busiest_s(self) -> float:
        """Return how long the busiest stage computes a micro-batch; 0 if that is not known."""
        model = self.shapes
        costs = _costs(self, model)
        if not costs.flops_per_s:
            return 0.0
        stages = stages_of(model.all_layers(), layers_per_stage(self, model))
        most = max(
            sum(costs.forward(part) for stage in stages[place :: self.layout.pipeline] for part in parts_of(stage))
            for place in range(self.layout.pipeline)
        )
        return most * (1 + costs.backward) / costs.flops_per_s

    @property
    def ranks(self) -> int:
        """Ranks of the job, servers included."""
        return self.layout.ranks + (self.parameter_server.servers if self.parameter_server else 0)

    @property
    def samples_per_step(self) -> int:
        """Sequences or images of a step, over all copies of the model."""
        return self.layout.data * self.micro_batches * self.micro_batch

    @property
    def steps_per_graph(self) -> int:
        """Steps that the graph has: a parameter server's job has several."""
        return self.parameter_server.steps if self.parameter_server else 1

    @property
    def flops_per_step(self) -> float:
        """FLOPs of a step by the model, without what is computed again: three forward passes, which MFU counts."""
        return 3 * forward_flops(self.shapes) * self.samples_per_step

    def _faults_of_played(self) -> Iterator[str]:
        part = self._part
        if part.played > part.micro_batches:
            yield f"played: {part.played} micro-batches, of {part.micro_batches}; play at most these"
        elif part.played < part.least:
            of = f" of {part.stages} stages of unequal length" if part.uneven else ""
            yield f"played: {part.played} micro-batches{of} have no steady part; play {part.least} or more"
        elif self.played is not None and part.interleaved and part.played % part.stages:
            yield (
                f"played: {part.played} is not a multiple of the {part.stages} stages, which interleaved needs; "
                f"play {-(-part.played // part.stages) * part.stages}"
            )


def plan_of(config: TrainingConfig) -> StepPlan:
    """Return all that makers of the step know."""
    model, layout = config.shapes, config.layout
    choices = Choices(config.pipeline, config.data_parallel, config.experts)
    plan = StepPlan(
        name=f"{config.model} on {layout.ranks} ranks",
        model=model,
        layout=layout,
        choices=choices,
        costs=_costs(config, model),
        stages=stages_of(model.all_layers(), layers_per_stage(config, model)),
        micro_batches=config.steady.played,
        samples=config.micro_batch,
        routed=_routed(config, model),
    )
    return replace(plan, stages=with_tied_copy(plan.stages)) if plan.has_tied_copy else plan


def _costs(config: TrainingConfig, model: Model) -> Costs:
    layout = config.layout
    return costs_of(config.compute, forward_flops(model), config.micro_batch, layout.tensor * layout.context)


def _routed(config: TrainingConfig, model: Model) -> Routed | None:
    layout, options = config.layout, config.experts
    if layout.expert == 1 or not isinstance(model, Transformer) or model.experts is None:
        return None
    rule = RoutingRule(
        experts=model.experts.routed,
        top=model.experts.top,
        groups=options.groups or model.experts.groups,
        top_groups=options.top_groups or model.experts.top_groups,
        best=2 if options.score == "top_two" else 1,
        seed=options.seed,
        skew=options.skew,
    )
    group = layout.groups("ep")[0]
    per_node = [layout.node_of(rank) for rank in group].count(layout.node_of(group[0]))
    tokens = config.micro_batch * model.sequence // (layout.context * layout.tensor)
    return route(rule, layout.expert, per_node, tokens)


def training_graph(config: TrainingConfig) -> WorkGraph:
    """Return the graph of a step, or of as many as a parameter server's job has. Raises ConfigError if it would have
    more operations than any job plays."""
    if config.parameter_server:
        return server_graph(config, config.parameter_server)
    plan = plan_of(config)
    about = len(RankStep(plan, 0).written().operations) * config.layout.ranks
    if about > MOST_OPERATIONS:
        raise ConfigError(
            "training",
            [
                f"{config.model}: some {about:,} operations, and {MOST_OPERATIONS:,} is the most; "
                f"set played ({config.steady.least} micro-batches or more), or larger buckets"
            ],
        )
    return step_graph(plan)
