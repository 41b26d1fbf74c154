"""``jobs:`` of a config: what plays where, in which lane, and when; and the jobs and windows that this comes to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import islice
from typing import Annotated, Any, Literal, TypeVar, cast

from pydantic import Field

from controllers.planning.paths import nics_for, path_load
from controllers.planning.plan import RoutePlan
from fabric.config import Strict, TimeS
from fabric.model.identity import NodeId
from fabric.model.lanes import DATA_LEVELS, ServiceLevel
from fabric.model.network import Fabric, Port
from fabric.units import format_time
from runs.placement import Flow, RankOrder, order_ranks
from runs.timeline import JobWindow
from traffic.collectives.hfreduce import HFReduceConfig, HFReduceJob, trees_of
from traffic.collectives.job import zones_of
from traffic.collectives.nccl import NcclConfig, NcclJob, nccl_flows, rails_of
from traffic.collectives.trees import tree_flows
from traffic.flows.background import BackgroundConfig, BackgroundJob
from traffic.job import Job, Stage
from traffic.programs.job import ProgramConfig, ProgramJob
from traffic.storage.config import StorageConfig
from traffic.storage.job import StorageJob

Name = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]*$", max_length=40)]


class Repeat(Strict):
    """Windows in which a job plays again."""

    every: Annotated[TimeS, Field(gt=0)] = Field(description="Time from the begin of one window to the next.")
    times: Annotated[int, Field(ge=1, le=1000)] = Field(description="Windows after the first.")


class JobConfig(Strict):
    """What all kinds of jobs have."""

    name: Name = Field(description="Name of the job, by which its rows are told apart.")
    nodes: Annotated[int, Field(ge=1, le=65_536)] | list[str] = Field(
        description="How many compute nodes it gets of those that no job names, or their names."
    )
    service_level: str | None = Field(
        default=None,
        description="Service Level of its packets, which decides their lane. Without it, that of its kind.",
    )
    start: Annotated[TimeS, Field(ge=0)] = Field(
        default=0.0, description="When it begins, counted from the begin of the phase."
    )
    duration: Annotated[TimeS, Field(gt=0)] | None = Field(
        default=None, description="How long it plays. Without it, to the end of the phase."
    )
    repeat: Repeat | None = Field(default=None, description="Further windows in which it plays. Without it, one.")

    def windows(self) -> list[tuple[float, float | None]]:
        """Return when it plays, in seconds from the begin of a phase."""
        begins = [self.start]
        if self.repeat is not None:
            begins += [self.start + number * self.repeat.every for number in range(1, self.repeat.times + 1)]
        return [(at_s, None if self.duration is None else at_s + self.duration) for at_s in begins]


class HFReduceJobConfig(JobConfig, HFReduceConfig):
    """HFReduce over its nodes."""

    kind: Literal["hfreduce"] = Field(description="Which kind of job it is.")
    rank_order: Annotated[RankOrder, Field(strict=False)] = Field(
        default=RankOrder.ROUTES,
        description="Which node is which rank: so that static routes do not collide, or as `nodes` has them.",
    )


class NcclJobConfig(JobConfig, NcclConfig):
    """NCCL's rings or tree over its nodes."""

    kind: Literal["nccl"] = Field(description="Which kind of job it is.")
    rank_order: Annotated[RankOrder, Field(strict=False)] = Field(
        default=RankOrder.ROUTES,
        description="Which node is which rank: so that static routes do not collide, or as `nodes` has them.",
    )


class StorageJobConfig(JobConfig, StorageConfig):
    """Clients on its nodes; a service of its own on every storage node of the fabric."""

    kind: Literal["storage"] = Field(description="Which kind of job it is.")


class BackgroundJobConfig(JobConfig, BackgroundConfig):
    """Flows among its nodes."""

    kind: Literal["background"] = Field(description="Which kind of job it is.")


class ProgramJobConfig(JobConfig, ProgramConfig):
    """A program of the user's on each of its nodes, started at the begin of each window and ended with it, unless it
    has ended by itself."""

    kind: Literal["program"] = Field(description="Which kind of job it is.")


AnyJobConfig = Annotated[
    HFReduceJobConfig | NcclJobConfig | StorageJobConfig | BackgroundJobConfig | ProgramJobConfig,
    Field(discriminator="kind"),
]
_LEAST_NODES = {"hfreduce": 2, "nccl": 2, "storage": 1, "background": 2, "program": 1}
_OWN_LEVEL = {
    "hfreduce": ServiceLevel.HFREDUCE,
    "nccl": ServiceLevel.NCCL,
    "storage": ServiceLevel.STORAGE,
    "background": ServiceLevel.OTHER,
    "program": ServiceLevel.OTHER,
}


@dataclass(frozen=True)
class PlacedJob:
    """A job that can be started: ``loads`` is how much of what it sends each port sends, by the routes in use; of a
    program that is not known, and there are none."""

    config: Any
    nodes: tuple[NodeId, ...]
    job: Job
    loads: Mapping[Port, float]

    @property
    def name(self) -> str:
        """Its name."""
        return self.job.name

    def windows(self) -> list[JobWindow]:
        """Return when it plays in a phase."""
        return [JobWindow(self.job, from_s, until_s) for from_s, until_s in self.config.windows()]


def job_faults(
    jobs: Sequence[JobConfig], fabric: Fabric, together_s: float, levels: Sequence[ServiceLevel] = DATA_LEVELS
) -> Iterator[str]:
    """Yield what of ``jobs`` cannot be on a fabric within a phase. ``levels``: the Service Levels of data."""
    for name, count in Counter(job.name for job in jobs).items():
        if count > 1:
            yield f"jobs: {name}: {count} jobs have this name; rows are told apart by it, so give each its own"
    for job in jobs:
        yield from _own_faults(job, fabric, together_s)
        yield from _level_faults(job, levels)
    free = len(fabric.computes) - len({name for job in jobs if isinstance(job.nodes, list) for name in job.nodes})
    wanted = sum(job.nodes for job in jobs if isinstance(job.nodes, int))
    if wanted > free:
        yield f"jobs: ask for {wanted} nodes, and {free} compute nodes have no job by name; ask for fewer"


def _own_faults(job: Any, fabric: Fabric, together_s: float) -> Iterator[str]:
    key = f"jobs.{job.name}"
    least = _LEAST_NODES[job.kind]
    count = job.nodes if isinstance(job.nodes, int) else len(job.nodes)
    if count < least:
        yield f"{key}.nodes: {count}; {job.kind} needs {least} or more"
    if isinstance(job.nodes, list):
        known = {str(node) for node in fabric.computes}
        if unknown := [name for name in job.nodes if name not in known]:
            yield f"{key}.nodes: {', '.join(unknown)}: no compute node of {fabric.name}; they run to {max(known)}"
        if len(set(job.nodes)) < len(job.nodes):
            yield f"{key}.nodes: names a node twice; name each once"
    if job.kind == "storage" and not fabric.storages:
        yield f"{key}: {fabric.name} has no storage nodes; give it some (topology.storage)"
    last_s, _ = job.windows()[-1]
    if last_s >= together_s:
        yield (
            f"{key}: plays last from {format_time(last_s)}, and the phase lasts {format_time(together_s)}; "
            "start it sooner or raise together_time"
        )
    if job.repeat is not None and (job.duration is None or job.duration > job.repeat.every):
        yield f"{key}.repeat: begins again every {format_time(job.repeat.every)}; give it a duration that is shorter"


def _level_faults(job: JobConfig, levels: Sequence[ServiceLevel]) -> Iterator[str]:
    labels = [level.label for level in levels]
    if job.service_level is not None and job.service_level not in labels:
        own = "or add it to queues.service_levels"
        yield f"jobs.{job.name}.service_level: {job.service_level!r}; use one of {', '.join(labels)}, {own}"


class Allocation(str, Enum):
    """How jobs that ask for a number of nodes get them: each the next ones, or one after the other a node at a time, so
    that they share leaves."""

    PACKED = "packed"
    SPREAD = "spread"


def allocate(configs: Sequence[Any], fabric: Fabric, allocation: Allocation) -> dict[str, tuple[NodeId, ...]]:
    """Return the nodes of each job by its name. Those given by name are theirs; the others get what is left."""
    found = {
        config.name: [fabric.host_named(name) for name in config.nodes] if isinstance(config.nodes, list) else []
        for config in configs
    }
    taken = {node for nodes in found.values() for node in nodes}
    free = (node for node in fabric.computes if node not in taken)
    asking = [config for config in configs if isinstance(config.nodes, int)]
    if allocation is Allocation.PACKED:
        for config in asking:
            found[config.name] += islice(free, config.nodes)
    while missing := [config for config in asking if len(found[config.name]) < config.nodes]:
        for config in missing:
            found[config.name].append(next(free))
    return {name: tuple(nodes) for name, nodes in found.items()}


def place_jobs(
    configs: Sequence[Any],
    stage: Stage,
    plan: RoutePlan,
    allocation: Allocation,
    levels: Sequence[ServiceLevel] = DATA_LEVELS,
) -> list[PlacedJob]:
    """Return jobs on the nodes that :func:`allocate` gives them, with what they send where. ``levels``: the Service
    Levels of data, of which configs name some."""
    nodes = allocate(configs, stage.fabric, allocation)
    named = {level.label: level for level in levels}
    return [
        _placed(config, nodes[config.name], named.get(config.service_level, _OWN_LEVEL[config.kind]), stage, plan)
        for config in configs
    ]


def _placed(config: Any, nodes: tuple[NodeId, ...], level: ServiceLevel, stage: Stage, plan: RoutePlan) -> PlacedJob:
    make = {"storage": _storage, "background": _background, "program": _program}.get(config.kind, _collective)
    job, nodes, pairs = make(config, nodes, level, stage, plan)
    several = config.kind == "nccl" and config.channels > 1
    rails = rails_of(stage.fabric, nodes[0], config.channels) if several else [None]
    return PlacedJob(config, nodes, job, _loads(pairs, rails, stage.fabric, plan))


_Made = tuple[Job, tuple[NodeId, ...], list[tuple[NodeId, NodeId, float]]]
"""A job, its nodes in the order of its ranks, and what part of its data goes from which node to which."""


def _collective(config: Any, nodes: tuple[NodeId, ...], level: ServiceLevel, stage: Stage, plan: RoutePlan) -> _Made:
    flows = _rank_flows(config, stage, nodes)
    as_listed = config.rank_order is RankOrder.NODES
    ranks = nodes if as_listed else order_ranks(stage.fabric, plan, nodes, flows)
    kind = HFReduceJob if config.kind == "hfreduce" else NcclJob
    pairs = [(ranks[source], ranks[target], share) for source, target, share in flows]
    return kind(stage, config, ranks, None, config.name, level), ranks, pairs


def _storage(config: Any, nodes: tuple[NodeId, ...], level: ServiceLevel, stage: Stage, _: RoutePlan) -> _Made:
    both = [(client, server) for client in nodes for server in stage.fabric.storages]
    pairs = [(a, b, 1 / len(both)) for pair in both for a, b in (pair, pair[::-1])]
    return StorageJob(stage, _plain(StorageConfig, config), nodes, None, level, config.name), nodes, pairs


def _background(config: Any, nodes: tuple[NodeId, ...], level: ServiceLevel, stage: Stage, _: RoutePlan) -> _Made:
    zone = {node: stage.fabric.nics_of[node][0].zone for node in nodes}
    both = [(a, b) for a in nodes for b in nodes if a != b and (zone[a] == zone[b] or not config.within_zone)]
    job = BackgroundJob(stage, _plain(BackgroundConfig, config), nodes, level=level, name=config.name)
    return job, nodes, [(a, b, 1 / len(both)) for a, b in both]


def _program(config: Any, nodes: tuple[NodeId, ...], level: ServiceLevel, stage: Stage, _: RoutePlan) -> _Made:
    """Return a program's job. Nobody knows whom it sends to."""
    return ProgramJob(stage, _plain(ProgramConfig, config), nodes, level, config.name), nodes, []


Plain = TypeVar("Plain", bound=Strict)


def _plain(kind: type[Plain], config: Strict) -> Plain:
    """Return what of a job's config its programs are given: no class of experiments reaches them."""
    return cast(Plain, kind.model_construct(**{name: getattr(config, name) for name in kind.model_fields}))


def _rank_flows(config: Any, stage: Stage, nodes: Sequence[NodeId]) -> list[Flow]:
    if config.kind == "nccl":
        return nccl_flows(config.algorithm, len(nodes))
    return tree_flows(trees_of(config.tree, zones_of(stage, nodes)))


def _loads(
    pairs: Sequence[tuple[NodeId, NodeId, float]], rails: Sequence[int | None], fabric: Fabric, plan: RoutePlan
) -> dict[Port, float]:
    """Return what part of all data each port sends, divided evenly over NICs by their numbers; None: those by which two
    hosts talk."""
    loads: dict[Port, float] = {}
    for source, destination, share in pairs:
        for rail in rails:
            for port, part in path_load(plan, fabric, *nics_for(fabric, source, destination, rail)).items():
                loads[port] = loads.get(port, 0.0) + share * part / len(rails)
    return loads
