"""``jobs:`` of a config: what plays where, in which lane, and when; and the jobs and windows that this comes to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import Field, create_model

from controllers.planning.paths import all_nics_for, nics_for, path_load
from controllers.planning.plan import RoutePlan
from fabric.config import Strict, TimeS
from fabric.model.identity import NodeId
from fabric.model.lanes import DATA_LEVELS, ServiceLevel
from fabric.model.network import Fabric, Port
from fabric.units import format_time
from runs.allocation import Allocation, allocate
from runs.kinds import KINDS
from runs.placement import RankOrder, order_ranks
from runs.timeline import JobWindow
from traffic.job import Job, Stage
from traffic.job_kind import DataFlow, JobKind, Measures

Name = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]*$", max_length=40)]


class Repeat(Strict):
    """Windows in which a job plays again."""

    every: Annotated[TimeS, Field(gt=0)] = Field(description="Time from the start of one window to the next.")
    times: Annotated[int, Field(ge=1, le=1000)] = Field(description="Windows after the first.")


class JobConfig(Strict):
    """What all kinds of jobs have. :func:`config_of` adds the keys of a kind."""

    of_kind: ClassVar[JobKind]

    name: Name = Field(description="Name of the job, which distinguishes its rows.")
    nodes: Annotated[int, Field(ge=1, le=65_536)] | list[str] = Field(
        description="How many compute nodes it gets of those that no job names, or their names."
    )
    service_level: str | None = Field(
        default=None,
        description="Service Level of its packets, which decides their lane. Without it, that of its kind.",
    )
    start: Annotated[TimeS, Field(ge=0)] = Field(
        default=0.0, description="When it begins, counted from the start of the phase."
    )
    duration: Annotated[TimeS, Field(gt=0)] | None = Field(
        default=None, description="How long it plays. Without it, to the end of the phase."
    )
    repeat: Repeat | None = Field(default=None, description="Further windows in which it plays. Without it, one.")

    def windows(self) -> list[tuple[float, float | None]]:
        """Return when it plays, in seconds from the start of a phase."""
        begins = [self.start]
        if self.repeat is not None:
            begins += [self.start + number * self.repeat.every for number in range(1, self.repeat.times + 1)]
        return [(at_s, None if self.duration is None else at_s + self.duration) for at_s in begins]

    def own(self) -> Any:
        """Return what its kind's programs are given of it: the keys of the kind's config, in a value of that class."""
        config = self.of_kind.config
        return config.model_construct(**{name: getattr(self, name) for name in config.model_fields})


def config_of(kind: JobKind) -> type[JobConfig]:
    """Return what a job of a kind is in a config: the keys of all jobs, the kind's own, ``kind`` itself, and
    ``rank_order`` if its ranks may be ordered. Raises ValueError if the kind has a key of all jobs."""
    if twice := JobConfig.model_fields.keys() & kind.config.model_fields.keys():
        raise ValueError(f"kind of job {kind.name}: all jobs have the key {', '.join(sorted(twice))}; rename its own")
    more: dict[str, Any] = {"kind": (Literal[kind.name], Field(description="Which kind of job it is."))}
    if kind.data.orders_ranks:
        what = "Which node is which rank: so that static routes do not collide, or as `nodes` has them."
        order = Annotated[RankOrder, Field(strict=False)]
        more["rank_order"] = (order, Field(default=RankOrder.ROUTES, description=what))
    name = f"{kind.config.__name__.removesuffix('Config')}JobConfig"
    both: Any = (JobConfig, kind.config)
    found: type[JobConfig] = create_model(name, __base__=both, __module__=__name__, **more)
    found.__doc__ = kind.meaning
    found.of_kind = kind
    return found


def any_job_of(kinds: Sequence[JobKind]) -> Any:
    """Return the type of a job of any of two or more kinds, told apart by ``kind``."""
    return Annotated[reduce(or_, map(config_of, kinds)), Field(discriminator="kind")]


if TYPE_CHECKING:
    AnyJobConfig = JobConfig
else:
    AnyJobConfig = any_job_of(KINDS)


@dataclass(frozen=True)
class PlacedJob:
    """A job that can be started: ``loads`` is how much of what it sends each port sends, by the routes in use; of a
    program that is not known, and there are none."""

    config: JobConfig
    nodes: tuple[NodeId, ...]
    job: Job
    loads: Mapping[Port, float]

    @property
    def name(self) -> str:
        """Its name."""
        return self.job.name

    @property
    def measures(self) -> Measures:
        """What experiments report of it."""
        return self.config.of_kind.measures

    def windows(self) -> list[JobWindow]:
        """Return when it plays in a phase."""
        return [JobWindow(self.job, from_s, until_s) for from_s, until_s in self.config.windows()]


def job_faults(
    jobs: Sequence[JobConfig], fabric: Fabric, together_s: float, levels: Sequence[ServiceLevel] = DATA_LEVELS
) -> Iterator[str]:
    """Yield what of ``jobs`` cannot be on a fabric within a phase. ``levels``: the Service Levels of data."""
    for name, count in Counter(job.name for job in jobs).items():
        if count > 1:
            yield f"jobs: {name}: {count} jobs have this name, which distinguishes their rows; give each its own"
    for job in jobs:
        yield from _own_faults(job, fabric, together_s)
        yield from _level_faults(job, levels)
    free = len(fabric.computes) - len({name for job in jobs if isinstance(job.nodes, list) for name in job.nodes})
    wanted = sum(job.nodes for job in jobs if isinstance(job.nodes, int))
    if wanted > free:
        yield f"jobs: ask for {wanted} nodes, and {free} compute nodes have no job by name; ask for fewer"


def _own_faults(job: JobConfig, fabric: Fabric, together_s: float) -> Iterator[str]:
    key, kind = f"jobs.{job.name}", job.of_kind
    count = job.nodes if isinstance(job.nodes, int) else len(job.nodes)
    if count < kind.least_nodes:
        yield f"{key}.nodes: {count}; {kind.name} needs {kind.least_nodes} or more"
    if isinstance(job.nodes, list):
        known = {str(node) for node in fabric.computes}
        if unknown := [name for name in job.nodes if name not in known]:
            yield f"{key}.nodes: {', '.join(unknown)}: no compute node of {fabric.name}; they run to {max(known)}"
        if len(set(job.nodes)) < len(job.nodes):
            yield f"{key}.nodes: names a node twice; name each once"
    faults = list(kind.faults(job.own(), fabric))
    yield from (f"{key}: {fault}" for fault in faults)
    fixed = None if faults else kind.data.fixed_nodes(job.own(), fabric)
    if fixed is not None and fixed[0] != count:
        yield f"{key}.nodes: {count}, but {fixed[1]}; give it {fixed[0]}"
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


def asked_nodes(configs: Sequence[JobConfig]) -> dict[str, int | list[str]]:
    """Return what jobs ask for, by their names."""
    return {config.name: config.nodes for config in configs}


def place_jobs(
    configs: Sequence[JobConfig],
    stage: Stage,
    plan: RoutePlan,
    allocation: Allocation,
    levels: Sequence[ServiceLevel] = DATA_LEVELS,
) -> list[PlacedJob]:
    """Return jobs on the nodes that :func:`runs.allocation.allocate` gives them, with what they send where.

    ``levels``: the Service Levels of data, of which configs name some.
    """
    nodes = allocate(asked_nodes(configs), stage.fabric, allocation, stage.seed)
    named = {level.label: level for level in levels}
    return [
        _placed(
            config,
            nodes[config.name],
            named[config.service_level] if config.service_level else config.of_kind.level,
            stage,
            plan,
        )
        for config in configs
    ]


def _placed(
    config: JobConfig, nodes: tuple[NodeId, ...], level: ServiceLevel, stage: Stage, plan: RoutePlan
) -> PlacedJob:
    kind, own, fabric = config.of_kind, config.own(), stage.fabric
    ranks = _ranks(config, own, nodes, fabric, plan)
    flows, rails = kind.data.flows(own, fabric, ranks), kind.data.rails(own, fabric, ranks)
    job = kind.make(stage, own, ranks, level=level, name=config.name)
    return PlacedJob(config, ranks, job, _loads(flows, rails, fabric, plan))


def _ranks(
    config: JobConfig, own: Any, nodes: tuple[NodeId, ...], fabric: Fabric, plan: RoutePlan
) -> tuple[NodeId, ...]:
    """Return a job's nodes in the order of its ranks: best for the routes, if it may be chosen, and the config does not
    say otherwise."""
    data = config.of_kind.data
    order = getattr(config, "rank_order", RankOrder.NODES)
    if order is RankOrder.NODES or len(nodes) < 2:
        return nodes
    places = {node: place for place, node in enumerate(nodes)}
    flows = [(places[source], places[target], share) for source, target, share in data.flows(own, fabric, nodes)]
    return order_ranks(fabric, plan, nodes, flows)


def _loads(
    flows: Sequence[DataFlow], rails: Sequence[int | None], fabric: Fabric, plan: RoutePlan
) -> dict[Port, float]:
    """Return what part of all data each port sends, divided evenly over NICs by their numbers (see ``rails`` of
    :class:`traffic.job_kind.DataOfJob`)."""
    loads: dict[Port, float] = {}
    for source, destination, share in flows:
        pairs = [nics_for(fabric, source, destination, rail) for rail in rails]
        pairs = pairs or all_nics_for(fabric, source, destination)
        for pair in pairs:
            for port, part in path_load(plan, fabric, *pair).items():
                loads[port] = loads.get(port, 0.0) + share * part / len(pairs)
    return loads
