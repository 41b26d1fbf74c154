"""The config of a platform in a run: its policy, its users and groups of nodes, its timers, and who submits what."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Annotated, ClassVar, Literal

import numpy as np
from pydantic import AfterValidator, Field, field_validator, model_validator

from cluster.health.config import HealthConfig
from cluster.nodes import GROUP, Nodes
from cluster.placement import Placement
from cluster.platform.events import JobSpec, words_fault
from cluster.platform.graph_jobs import GraphKeys
from cluster.platform.programs import Submission
from cluster.platform.timers import Timers
from cluster.policies import POLICIES, Policy
from cluster.tasks import LEVELS, Key, Priority, Task, Users, verify_submission
from fabric.config import Strict, TimeS
from fabric.errors import ConfigError
from fabric.failures.kinds.gpu import GpuTarget
from fabric.model.identity import NodeId
from fabric.model.network import Fabric
from fabric.suggestions import one_of

Level = Literal["EXTREME_HIGH", "VERY_HIGH", "HIGH", "ABOVE_NORMAL", "NORMAL", "UNDER_NORMAL", "AUTO"]
NodeCount = Annotated[int, Field(ge=0, le=65_000)]
GPUS = 8
"""Of a node, as errors of them are given."""
_LEVEL_NAMES = tuple(level.name for level in LEVELS)


class SubmittedJob(GraphKeys):
    """A job that a user submits in a phase: a program, a graph or a collective."""

    name: str = Field(min_length=1, max_length=100, description="What the job is called.")
    user: str = Field(min_length=1, max_length=100, description="Whose it is.")
    nodes: Annotated[int, Field(ge=1, le=65_000)] = Field(description="How many whole nodes it asks for.")
    command: tuple[str, ...] = Field(
        default=(),
        strict=False,
        description="The program and its arguments, run on each of its nodes; or give `graph` or `collective`.",
    )
    priority: Level = Field(default="NORMAL", description="Its priority, by HAI's names.")
    at: Annotated[TimeS, Field(ge=0)] = Field(default=0.0, description="When, from the start of the phase on.")
    group: str = Field(default=GROUP, min_length=1, description="The group of nodes that it runs on; see `groups`.")
    limit: Annotated[TimeS, Field(gt=0)] | None = Field(
        default=None,
        description=(
            "How long one life of it runs at most, as its user says. Under a policy with EASY backfill "
            f"({', '.join(name for name, policy in POLICIES.items() if policy.passes_by_limit)}) jobs with a limit may "
            "pass others. See `ends_at_limit`."
        ),
    )

    @model_validator(mode="after")
    def _is_one(self) -> SubmittedJob:
        given = [key for key in ("command", "graph", "collective") if getattr(self, key)]
        if len(given) != 1:
            told = f"{' and '.join(given)} are given" if given else "none is given"
            raise ValueError(f"command, graph, collective: {told}; give one of them, which is what the job does")
        if self.command and (fault := words_fault(self.command)):
            raise ValueError(f"command: {fault}")
        return self

    @property
    def program(self) -> tuple[str, ...]:
        """The program and its arguments, of a graph or a collective, too."""
        return self.command if self.stepped is None else self.stepped.command

    @property
    def submission(self) -> Submission:
        """The job as the scheduler takes it."""
        priority = Priority[self.priority]
        return Submission(
            self.at, JobSpec(self.name, self.user, self.nodes, self.program, priority, self.group, self.limit)
        )


def _of_levels(quotas: dict[str, int]) -> dict[str, int]:
    if unknown := [name for name in quotas if name not in _LEVEL_NAMES]:
        raise ValueError(f"{', '.join(unknown)}: no priority that has a quota; use {one_of(_LEVEL_NAMES)}")
    return quotas


Quotas = Annotated[dict[str, NodeCount], AfterValidator(_of_levels)]
"""Nodes by priority."""


class UserConfig(Strict):
    """What a user may have."""

    quota: NodeCount | None = Field(
        default=None,
        description=(
            "How many nodes of a group the user's jobs of one priority may have at once, of every priority that "
            "`quotas` does not name. Without it, the platform's `quota`."
        ),
    )
    quotas: Quotas = Field(default_factory=dict, description="The same by priority, such as `{HIGH: 4}`.")
    share: Annotated[float, Field(gt=0, le=1e6)] = Field(
        default=1.0,
        description=(
            "The user's share, in proportion to the others', under a policy that orders by usage "
            f"({', '.join(name for name, policy in POLICIES.items() if policy.order.by_usage)})."
        ),
    )


class PlatformConfig(Strict):
    """A platform: its policy, its users, its timers and its users' jobs. ``comes_back``: programs on its nodes that
    were killed can be begun again."""

    comes_back: ClassVar[bool] = True

    engine: Literal["own", "slurm"] = Field(
        default="own",
        description="Who decides: the project's own scheduler, or Slurm, if that is installed.",
    )
    policy: str = Field(default="hai", description=f"How the cluster is shared: {one_of(POLICIES)}.")
    placement: Placement = Field(default=Placement.PACKED, strict=False, description="How nodes of a zone are chosen.")
    ends_at_limit: bool = Field(
        default=False, description="Whether a job is stopped for good that has run for its `limit`, as by Slurm."
    )
    quota: NodeCount | None = Field(
        default=None,
        description=(
            "How many nodes of a group a user's jobs of one priority may have at once, of users whose own quota "
            "`users` does not say. Without it, any number."
        ),
    )
    users: dict[str, UserConfig] = Field(default_factory=dict, description="What users may have, by their names.")
    groups: dict[str, list[str]] = Field(
        default_factory=dict,
        description=f"Groups of nodes, by their names: a job gets nodes of one group. All others are in `{GROUP}`.",
    )
    timers: Timers = Field(default_factory=Timers, description="How long scheduler and agents wait for each other.")
    restart: Annotated[TimeS, Field(gt=0)] | None = Field(
        default=None,
        description=(
            "After how long a scheduler or an agent that was killed is begun again by what supervises it, as by "
            "systemd. Without it they stay dead, unless the failure is `effect: restart`."
        ),
    )
    health: HealthConfig | None = Field(
        default=None,
        description="Validation of nodes, watch of errors and stalls, repair and lemons. Without it a node is out only "
        "while it is not heard.",
    )
    jobs: tuple[SubmittedJob, ...] = Field(
        min_length=1, max_length=10_000, strict=False, description="The jobs that users submit."
    )

    @property
    def has_end(self) -> bool:
        """Whether a phase lasts until all jobs have ended: it does."""
        return True

    @field_validator("policy")
    @classmethod
    def _known(cls, policy: str) -> str:
        if policy not in POLICIES:
            raise ValueError(f"{policy!r} is not one of {', '.join(POLICIES)}")
        return policy

    @model_validator(mode="after")
    def _verify(self) -> PlatformConfig:
        groups_of: dict[str, list[str]] = {}
        for group, names in self.groups.items():
            for name in names:
                groups_of.setdefault(name, []).append(group)
        if several := [f"{name} is in {' and '.join(found)}" for name, found in groups_of.items() if len(found) > 1]:
            raise ValueError(f"groups: {'; '.join(several)}; a node is in one group")
        return self

    @property
    def policy_of(self) -> Policy:
        """The policy as the scheduler has it."""
        return replace(POLICIES[self.policy].placed(self.placement), ends_at_limit=self.ends_at_limit)

    @property
    def users_of(self) -> Users:
        """The users as the scheduler knows them."""
        groups = dict.fromkeys((GROUP, *self.groups))
        quotas: dict[Key, int] = {}
        for name, user in self.users.items():
            for level in LEVELS:
                quota = user.quotas.get(level.name, user.quota)
                if quota is not None:
                    quotas |= {(name, level, group): quota for group in groups}
        return Users(quotas, self.quota, {name: user.share for name, user in self.users.items()})

    @property
    def _grouped(self) -> dict[str, str]:
        return {name: group for group, members in self.groups.items() for name in members}

    def nodes_of(self, fabric: Fabric, nodes: Sequence[NodeId]) -> Nodes:
        """Return the nodes that jobs may get, with their zones, leaves and groups. Raises ConfigError for a node of a
        group that is not among them."""
        names = [node.name for node in nodes]
        grouped = self._grouped
        if missing := [name for name in grouped if name not in names]:
            raise ConfigError(
                "groups", [f"{', '.join(missing)}: no node of this platform's jobs; they run on {', '.join(names)}"]
            )
        whole = Nodes.of(fabric)
        places = np.array([whole.names.index(name) for name in names], dtype=np.int64)
        known = tuple(dict.fromkeys(grouped.get(name, GROUP) for name in names))
        return Nodes(
            tuple(names),
            whole.zones[places],
            whole.leaves[places],
            known,
            np.array([known.index(grouped.get(name, GROUP)) for name in names], dtype=np.int64),
            np.ones(len(places), dtype=np.bool_),
        )

    def unfit(self, fabric: Fabric) -> Iterator[str]:
        """Yield which of its groups, what of its health, and which graphs and collectives cannot be on a fabric."""
        known = {node.name for node in fabric.computes}
        for group, names in self.groups.items():
            if unknown := [name for name in names if name not in known]:
                yield f"groups.{group}: {', '.join(unknown)}: no compute node of {fabric.name}"
        if self.health is not None:
            yield from (f"health.{fault}" for fault in self.health.faults(fabric))
        for place, job in enumerate(self.jobs):
            if job.stepped is not None:
                faults = job.stepped.faults(fabric, job.nodes)
                yield from (f"jobs.{place} ({job.name}): {job.stepped.kind}: {fault}" for fault in faults)

    def faults(self, fabric: Fabric) -> Iterator[str]:
        """Yield what of it cannot be on a fabric, whichever nodes it gets: the scheduler has one beside them."""
        unfit = list(self.unfit(fabric))
        yield from unfit
        most = len(fabric.computes) - 1
        too_large = [
            f"jobs.{place}.nodes: {job.nodes}, but {fabric.name} has {most} beside the scheduler's; lower it"
            for place, job in enumerate(self.jobs)
            if job.nodes > most
        ]
        yield from too_large
        if not unfit and not too_large:
            yield from self.submission_faults(Nodes.of(fabric, self._grouped))
        used = {job.user for job in self.jobs}
        if strange := [name for name in self.users if name not in used]:
            yield f"users: {', '.join(strange)}: submits no job here; the users of jobs are {', '.join(sorted(used))}"

    def gpu_fault(self, target: GpuTarget) -> str:
        """Return why an error of a GPU would come to nothing; empty if it would not."""
        if self.health is None:
            return f"gpu: nobody looks at errors of {target}; give the platform `health:`"
        return "" if target.number < GPUS else f"gpu: {target.host} has GPUs 0 to {GPUS - 1}; choose one of them"

    def submission_faults(self, nodes: Nodes) -> Iterator[str]:
        """Yield which jobs could never start on these nodes, by their size, their group or their user's quota."""
        users = self.users_of
        for place, job in enumerate(self.jobs):
            spec = job.submission.spec
            try:
                verify_submission(Task(place, spec.user, spec.nodes, spec.priority, spec.group), users, nodes)
            except ConfigError as error:
                yield from (f"jobs.{place} ({job.name}): {fault}" for fault in error.faults)
