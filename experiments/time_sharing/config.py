"""The keys of ``time_sharing``: the list, the policies that share it, and what is composed of what they cost."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Annotated

from pydantic import AfterValidator, Field, field_validator

from cluster.nodes import GROUP, Nodes
from cluster.placement import Placement
from cluster.platform.config import PlatformConfig, Quotas, UserConfig
from cluster.platform.kinds import PLATFORM
from cluster.platform.timers import Timers
from cluster.policies import POLICIES, Policy
from cluster.sharing.lists import FittedList, ListConfig, fitted_list
from cluster.sharing.submissions import ProgramConfig, submissions
from cluster.simulation.costs import Costs
from cluster.tasks import Task, Users, verify_submission
from fabric.config import Strict, TimeS
from fabric.errors import ConfigError
from fabric.model.identity import NodeId
from fabric.model.lanes import Queueing
from fabric.model.network import Fabric
from runs.config import QueueingConfig, each_once
from runs.phase_lengths import PhaseLengths

_MOST_JOBS = 10_000
Load = Annotated[float, Field(gt=0, le=100)]


SLURM = "slurm_"
"""How the names of policies begin that Slurm plays: ``slurm_easy``."""


def _known(name: str) -> str:
    if name.removeprefix(SLURM) not in POLICIES:
        known = ", ".join(POLICIES)
        raise ValueError(f"{name!r} is not one of {known}; with {SLURM} in front, Slurm plays it")
    return name


PolicyNames = Annotated[
    list[Annotated[str, AfterValidator(_known)]], Field(min_length=1, max_length=16), AfterValidator(each_once)
]


_fitted = lru_cache(maxsize=64)(fitted_list)  # A run asks for those of all its seeds, more than once.


class ComposedConfig(Strict):
    """Lists of more jobs on more nodes, composed of the costs that the run has measured."""

    jobs: ListConfig = Field(default_factory=ListConfig, description="The jobs; `loads` take the place of its `load`.")
    nodes: Annotated[int, Field(ge=2, le=10_000)] = Field(
        default=128,
        description="Nodes of the cluster: whole leaves of 16, as many in each of two zones, so that 100 make 128. "
        "Tables and figures state how many were played.",
    )
    loads: Annotated[list[Load], Field(min_length=1, max_length=32), AfterValidator(each_once)] = Field(
        default=[0.5, 0.9, 1.5], description="Work that comes per time, of what the nodes can do: a list for each."
    )
    repeat: Annotated[int, Field(ge=1, le=1000)] = Field(
        default=6, description="Seeds of each list, for intervals: 95 % takes 6 or more."
    )


class TimeSharingConfig(QueueingConfig):
    """A list of jobs on a small cluster under each policy with packets, and composed lists beside it.

    ``sample_period`` is longer than in other experiments: an hour has many samples of every queue, all in memory.
    """

    sample_period: Annotated[TimeS, Field(gt=0, le=60)] = Field(
        default=10.0,
        description="Time between two samples of every queue. Long here, since an hour of them is in memory.",
    )
    queueing: Annotated[Queueing, Field(strict=False)] = Field(
        default=Queueing.LANES, description="Queueing in which all phases play."
    )
    nodes: Annotated[int, Field(ge=1, le=10_000)] = Field(
        default=16, description="Compute nodes that jobs may get; one more has the scheduler."
    )
    policies: PolicyNames = Field(
        default_factory=lambda: list(POLICIES),
        description=(
            "Policies under which the list is played, in turn; with `slurm_` in front, as in `slurm_easy`, Slurm does."
        ),
    )
    placement: Annotated[Placement, Field(strict=False)] = Field(
        default=Placement.PACKED, description="How nodes of a zone are chosen."
    )
    job_list: ListConfig = Field(description="The jobs that are played with packets; `step` is how long a step takes.")
    list_seeds: Annotated[int, Field(ge=1, le=1000)] = Field(
        default=10,
        description=(
            "Seeds of `job_list`, from `seed` on, that are composed of the costs measured, for intervals: 95 % takes 6 "
            "or more. Only the first is played with packets."
        ),
    )
    quotas: Quotas = Field(
        default_factory=dict,
        description=(
            "How many nodes the jobs of a priority may have at once, of each user of the list that is played with "
            "packets, such as `{HIGH: 4}`."
        ),
    )
    users: dict[str, UserConfig] = Field(
        default_factory=dict, description="What single users of that list may have, by their names, such as `u000`."
    )
    program: ProgramConfig = Field(default_factory=ProgramConfig, description="What a job runs on each of its nodes.")
    timers: Timers = Field(default_factory=Timers, description="How long scheduler and agents wait for each other.")
    composed: ComposedConfig | None = Field(
        default=None, description="Longer lists, played by the simulation with the costs measured; `null`: none."
    )

    @field_validator("job_list")
    @classmethod
    def _steps(cls, value: ListConfig) -> ListConfig:
        if value.step is None:
            raise ValueError("step: is not there; jobs of the platform make steps, so state how long one takes")
        return value

    @property
    def commands(self) -> tuple[str, ...]:
        """The program of the jobs, as the config has it: others have the same files."""
        return (" ".join(self.program.command),)

    @property
    def step_s(self) -> float:
        """How long a step of a job takes."""
        assert self.job_list.step is not None, "_steps() verified it"
        return self.job_list.step

    def policy(self, name: str) -> Policy:
        """Return a policy with the placement of the config."""
        return POLICIES[name.removeprefix(SLURM)].placed(self.placement)

    @property
    def own_policies(self) -> tuple[str, ...]:
        """The policies that are not Slurm's: those that can be composed, too."""
        return tuple(name for name in self.policies if not name.startswith(SLURM))

    @property
    def listed(self) -> FittedList:
        """The list. Raises ConfigError if no job fits."""
        return self.listed_of(self.seed)

    def listed_of(self, seed: int) -> FittedList:
        """Return the list of a seed. Raises ConfigError if no job fits."""
        return _fitted(self.job_list, self.nodes, self.given_costs(), seed)

    @property
    def seeds(self) -> range:
        """The seeds of the list that are composed."""
        return range(self.seed, self.seed + self.list_seeds)

    def given_costs(self) -> Costs:
        """Return what is known of costs before the run: it decides what users state as limits, and nothing else."""
        program = self.program
        return Costs(
            start=program.start,
            restore=0.0,
            interval=program.checkpoint,
            save=0.0,
            durable=0.0,
            answer=min(self.step_s, 5.0),
            step=self.step_s,
            suspend_save=program.save,
        )

    def platform(self, policy: str) -> PlatformConfig:
        """Return the platform that plays the list under a policy. Raises ConfigError for a list that is too long."""
        return PlatformConfig(
            engine="slurm" if policy.startswith(SLURM) else "own",
            policy=policy.removeprefix(SLURM),
            placement=self.placement,
            users=self._users(),
            timers=self.timers,
            jobs=submissions(self.listed.jobs, self.step_s, self.program),
        )

    def _users(self) -> dict[str, UserConfig]:
        """Return what users may have, with `quotas` for all of them."""
        if not self.quotas:
            return self.users
        names = dict.fromkeys((*(job.user for job in self.listed.jobs), *self.users))
        known = {name: self.users.get(name, UserConfig()) for name in names}
        return {name: one.model_copy(update={"quotas": {**self.quotas, **one.quotas}}) for name, one in known.items()}

    @property
    def users_of(self) -> Users:
        """The users as the scheduler knows them."""
        return self.platform(self.policies[0]).users_of

    def hosts(self, fabric: Fabric) -> Sequence[NodeId]:
        """Return the scheduler's host, then those that jobs may get: of all zones alike, so that zones count."""
        zones: dict[int | None, list[NodeId]] = {}
        for node in fabric.computes[1:]:
            zones.setdefault(node.zone, []).append(node)
        dealt: list[NodeId] = []
        while len(dealt) < self.nodes and any(zones.values()):
            dealt += [nodes.pop(0) for nodes in zones.values() if nodes]
        return (fabric.computes[0], *sorted(dealt[: self.nodes], key=fabric.computes.index))

    def cluster_nodes(self, fabric: Fabric) -> Nodes:
        """Return the nodes that jobs may get as the scheduler sees them."""
        whole, names = Nodes.of(fabric), [node.name for node in self.hosts(fabric)[1:]]
        places = [whole.names.index(name) for name in names]
        return Nodes(
            tuple(names), whole.zones[places], whole.leaves[places], (GROUP,), whole.group_of[places] * 0,
            whole.ready[places],
        )  # fmt: skip

    def programs_of(self, fabric: Fabric) -> Mapping[str, Collection[str]] | None:
        """Return the scheduler and the agents of each policy's platform."""
        return {name: [node.name for node in self.hosts(fabric)] for name in self.policies}

    @property
    def phase_lengths(self) -> PhaseLengths:
        """As long as the list takes under a policy."""
        return PhaseLengths(until="all jobs of the list have ended")

    def faults(self, fabric: Fabric) -> Iterator[str]:
        """Yield what does not fit the fabric."""
        yield from super().faults(fabric)
        if self.nodes > (most := len(fabric.computes) - 1):
            yield f"nodes: {self.nodes}, but {fabric.name} has {most} beside the scheduler's; lower it"
            return
        try:
            jobs = len(self.listed.jobs)
        except ConfigError as error:
            yield from error.faults
        else:
            if jobs > _MOST_JOBS:
                yield f"job_list.count: {jobs} jobs, and a platform has {_MOST_JOBS:,} at most; lower it"
                return
            if unfit := [fault for seed in self.seeds for fault in self._unfit(seed, fabric)]:
                yield from unfit
                return
            for name in self.policies:
                yield from (f"policies: {name}: {fault}" for fault in self._platform_faults(name, fabric))

    def _unfit(self, seed: int, fabric: Fabric) -> Iterator[str]:
        """Yield which jobs of a seed's list could never start."""
        other = "" if seed == self.seed else f"list_seeds: seed {seed}: "
        users, nodes = self.users_of, self.cluster_nodes(fabric)
        try:
            jobs = self.listed_of(seed).jobs
        except ConfigError as error:
            yield from (f"{other}{fault}" for fault in error.faults)
            return
        for job in jobs:
            try:
                verify_submission(Task(job.number, job.user, job.nodes, job.priority, job.group), users, nodes)
            except ConfigError as error:
                yield from (f"{other or 'quotas: '}job {job.number}: {fault}" for fault in error.faults)

    def _platform_faults(self, name: str, fabric: Fabric) -> Iterator[str]:
        try:
            yield from PLATFORM.faults(self.platform(name), fabric)
        except ConfigError as error:
            yield from error.faults
