"""What a training job's keys cannot be together: each fault names the key, the value, the limit and the next step."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fabric.suggestions import one_of
from traffic.work.generators.keys import TrainingKeys
from traffic.work.generators.layout import Layout
from traffic.work.generators.stages import inner_layers
from traffic.work.models.listing import Model
from traffic.work.models.transformer import Transformer

_SHOWN = 8
_BUCKETED, _SHARDED = ("ddp", "zero1", "zero2"), ("zero3", "fsdp")
OF_STRATEGIES = {
    "first_bucket": _BUCKETED,
    "bucket": _BUCKETED,
    "overlap": _BUCKETED,
    "algorithm": ("ddp",),
    "parameter_bytes": ("zero1", "zero2", *_SHARDED),
    "prefetch": _SHARDED,
    "reshard": ("fsdp",),
    "no_sync": ("fsdp",),
}
"""Keys of ``data_parallel`` that some strategies alone have."""


def layers_per_stage(config: TrainingKeys, model: Model) -> tuple[int, ...]:
    """Return how many layers each stage of each chunk has."""
    if config.pipeline.stage_layers is not None:
        return config.pipeline.stage_layers
    stages = config.layout.pipeline * config.pipeline.chunks
    return (inner_layers(model.all_layers()) // stages,) * stages


def faults_of(config: TrainingKeys, model: Model) -> Iterator[str]:
    """Yield what cannot be."""
    yield from _faults_of_stages(config, model)
    yield from _faults_of_strategy(config)
    if isinstance(model, Transformer):
        yield from _faults_of_shapes(config, model)
        yield from _faults_of_experts(config, model)
    else:
        yield from _faults_of_modules(config)
    yield from _faults_of_servers(config)


def _faults_of_stages(config: TrainingKeys, model: Model) -> Iterator[str]:
    pipeline, stages = config.pipeline, config.layout.pipeline
    layers, places = inner_layers(model.all_layers()), stages * pipeline.chunks
    given = pipeline.stage_layers
    if given is None and layers % places:
        yield (
            f"layout.pipeline: {layers} layers of {config.model} are not divisible by {places} stages "
            f"({stages} x {pipeline.chunks} chunks); use a divisor, or give each stage's in pipeline.stage_layers"
        )
    if given is not None and (len(given), sum(given)) != (places, layers):
        yield (
            f"pipeline.stage_layers: {len(given)} stages with {sum(given)} layers; there are {places} stages and "
            f"{layers} layers of {config.model}; give {places} numbers that add up to {layers}"
        )
    if pipeline.schedule != "1f1b" and stages == 1:
        yield f"pipeline.schedule: {pipeline.schedule} needs layout.pipeline of 2 or more (got 1); use 1f1b"
        return
    yield from _faults_of_put_off(config, stages)
    if pipeline.schedule == "interleaved" and config.micro_batches % stages:
        yield (
            f"micro_batches: {config.micro_batches} is not a multiple of the {stages} stages, which interleaved needs; "
            f"use {-(-config.micro_batches // stages) * stages}"
        )


def _faults_of_put_off(config: TrainingKeys, stages: int) -> Iterator[str]:
    """Yield what schedules need that put gradients of weights off."""
    schedule, batches = config.pipeline.schedule, config.micro_batches
    if schedule == "zb1p" and batches < stages:
        yield f"micro_batches: {batches}, and zb1p over {stages} stages needs as many at least; raise it, or use 1f1b"
    if schedule != "dualpipe":
        return
    if stages % 2:
        yield f"layout.pipeline: {stages} stages, and dualpipe needs an even number; use {stages + 1}, or 1f1b"
    elif batches % 2 or batches < 2 * stages:
        least = max(2 * stages, batches + batches % 2)
        needed = f"dualpipe over {stages} stages needs an even number from {2 * stages}"
        yield f"micro_batches: {batches}; {needed}; use {least}"
    if config.played is not None:
        yield "played: dualpipe's two directions have no steady part to extrapolate; leave it out"


def _faults_of_strategy(config: TrainingKeys) -> Iterator[str]:
    layout, chosen = config.layout, config.data_parallel
    if chosen.strategy in ("zero2", "zero3", "fsdp") and layout.pipeline > 1:
        yield (
            f"data_parallel.strategy: {chosen.strategy} spreads what each micro-batch needs again, and with "
            f"layout.pipeline {layout.pipeline} that is not done; use zero1 or ddp"
        )
    if chosen.strategy in ("zero3", "fsdp") and layout.expert > 1:
        yield (
            f"data_parallel.strategy: {chosen.strategy} with layout.expert {layout.expert}: experts are spread "
            "already; use zero1 or ddp"
        )
    for key, strategies in OF_STRATEGIES.items():
        default = type(chosen).model_fields[key].default
        if chosen.strategy not in strategies and getattr(chosen, key) != default:
            yield (
                f"data_parallel.{key}: is of {one_of(strategies)}, and the strategy is {chosen.strategy}; leave it out"
            )
    if layout.context == 1 and layout.context_exchange != "ring":
        yield f"layout.context_exchange: {layout.context_exchange}, and layout.context is 1; leave it out"


def _faults_of_shapes(config: TrainingKeys, model: Transformer) -> Iterator[str]:
    layout = config.layout
    sizes = {
        "heads": model.attention.heads,
        "key_value_heads": model.attention.groups,
        "inner size": model.mlp.inner,
        "vocabulary": model.vocabulary,
    }
    for what, size in sizes.items():
        if size % layout.tensor:
            hint = "; Megatron-LM pads it: write a model file with a larger one" if what == "vocabulary" else ""
            yield (
                f"layout.tensor: {config.model} has {what} {size}, not divisible by {layout.tensor}; "
                f"use a divisor{hint}"
            )
    parts = layout.context * (layout.tensor if layout.sequence_parallel else 1)
    if model.sequence % parts:
        yield (
            f"layout.context: a sequence of {model.sequence} tokens is not divisible by {parts}; use a divisor, or "
            "change sequence"
        )


def _faults_of_experts(config: TrainingKeys, model: Transformer) -> Iterator[str]:
    layout, options = config.layout, config.experts
    if layout.expert == 1:
        if options != type(options)():
            yield "experts: says how tokens get to experts on other ranks, and layout.expert is 1; leave it out"
        return
    if model.experts is None:
        yield f"layout.expert: {config.model} has no experts to spread over {layout.expert} ranks; set it to 1"
        return
    if model.experts.routed % layout.expert:
        yield (
            f"layout.expert: {model.experts.routed} experts are not divisible by {layout.expert} ranks; use a divisor"
        )
    if layout.tensor > 1 and not layout.sequence_parallel:
        yield (
            f"layout.expert: with layout.tensor {layout.tensor} all its ranks would send the same tokens; set "
            "layout.sequence_parallel"
        )
    groups, top = options.groups or model.experts.groups, options.top_groups or model.experts.top_groups
    if model.experts.routed % groups:
        yield f"experts.groups: {model.experts.routed} experts are not in {groups} equal groups; use a divisor"
    if top > groups or model.experts.top > top * (model.experts.routed // groups):
        yield (
            f"experts.top_groups: {top} of {groups} groups do not have the {model.experts.top} experts of a token; "
            "use more of them, and at most all"
        )
    yield from _faults_of_expert_nodes(layout)


def _faults_of_expert_nodes(layout: Layout) -> Iterator[str]:
    """Yield that groups of experts lie differently on nodes: all have the routing of the first one."""
    step = "change layout.expert, layout.order or layout.gpus_per_node"
    groups = layout.groups("ep")
    first = None
    for group in groups:
        nodes = [layout.node_of(rank) for rank in group]
        per_node = {nodes.count(node) for node in nodes}
        if len(per_node) > 1 or nodes != sorted(nodes):
            yield f"layout.expert: ranks of a group are not evenly on nodes of {layout.gpus_per_node} GPUs; {step}"
            return
        if first is not None and per_node != first:
            what = f"ranks {_listed(groups[0])} are {max(first)} per node of {layout.gpus_per_node} GPUs"
            yield f"layout.expert: {what}, and ranks {_listed(group)} are {max(per_node)}; {step}"
            return
        first = per_node


def _listed(ranks: Sequence[int]) -> str:
    """Return the first ranks of a group in words."""
    return f"{', '.join(map(str, ranks[:_SHOWN]))}{', ...' if len(ranks) > _SHOWN else ''}"


def _faults_of_modules(config: TrainingKeys) -> Iterator[str]:
    layout = config.layout
    for name in ("tensor", "pipeline", "context", "expert"):
        if (ranks := getattr(layout, name)) > 1:
            yield (
                f"layout.{name}: {ranks}, but {config.model} is a network of modules, which only data parallelism "
                "spreads; set it to 1"
            )
    if config.sequence is not None:
        yield f"sequence: {config.model} has no sequences; leave it out"


def _faults_of_servers(config: TrainingKeys) -> Iterator[str]:
    servers, layout = config.parameter_server, config.layout
    if servers is None:
        return
    if config.data_parallel.strategy != "ddp":
        yield (
            f"data_parallel.strategy: {config.data_parallel.strategy} besides a parameter server, which is in place of "
            "that; leave it out"
        )
    if layout.ranks != layout.data:
        yield (
            f"parameter_server: workers are copies of the model, and the layout has {layout.ranks // layout.data} "
            "ranks a copy; set all but data to 1"
        )
    if config.played is not None:
        yield "played: a parameter server's job has no steady part to extrapolate; leave it out"
    if servers.share == "colocated" and not (layout.data >= 2 and servers.servers <= layout.data):
        yield (
            f"parameter_server.servers: {servers.servers} spare machines beside {layout.data} workers; colocated "
            "shares need 2 workers or more, and at most as many spare machines; use equal shares for more"
        )
    if slow := [worker for worker in servers.slow_workers if not 0 <= worker < layout.data]:
        yield f"parameter_server.slow_workers: unknown worker {slow[0]}; there are 0 to {layout.data - 1}"
