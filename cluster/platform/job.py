"""The platform as a job of a run: the scheduler on one host, agents on others, and the jobs that users submit."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field, field_validator

from cluster.health.config import HealthConfig
from cluster.health.node import NodeNics
from cluster.health.xids import GpuError
from cluster.nodes import GROUP, Nodes
from cluster.placement import Placement
from cluster.platform.events import JobSpec
from cluster.platform.health import HealthSetup
from cluster.platform.programs import (
    ENDING_S,
    EVENTS,
    AgentArguments,
    AwaitJobs,
    SchedulerArguments,
    Submission,
    kernel_log,
    run_node_agent,
    run_scheduler,
)
from cluster.platform.proof import STEPS, said_in
from cluster.platform.timers import Timers
from cluster.policies import POLICIES
from cluster.tasks import Priority, Users
from fabric.config import Strict, TimeS
from fabric.errors import TrafficError
from fabric.failures.targets import GpuTarget
from fabric.model.identity import NodeId
from fabric.model.lanes import SERVICE_LEVELS, ServiceLevel
from traffic.job import Halt, Listening, Play, Records, Stage
from traffic.program_group import ProgramGroup
from traffic.transport.connection import Transport

START_TIMEOUT_S = 60.0
GPUS = 8
"""Of a node, as errors of them are given."""
Level = Literal["EXTREME_HIGH", "VERY_HIGH", "HIGH", "ABOVE_NORMAL", "NORMAL", "UNDER_NORMAL", "AUTO"]


class SubmittedJob(Strict):
    """A job that a user submits in a phase."""

    name: str = Field(min_length=1, max_length=100, description="What the job is called.")
    user: str = Field(min_length=1, max_length=100, description="Whose it is.")
    nodes: Annotated[int, Field(ge=1, le=65_000)] = Field(description="How many whole nodes it asks for.")
    command: tuple[str, ...] = Field(
        min_length=1, strict=False, description="The program and its arguments, run on each of its nodes."
    )
    priority: Level = Field(default="NORMAL", description="Its priority, by HAI's names.")
    at: Annotated[TimeS, Field(ge=0)] = Field(default=0.0, description="When, from the begin of the phase on.")

    @property
    def submission(self) -> Submission:
        """The job as the scheduler takes it."""
        return Submission(self.at, JobSpec(self.name, self.user, self.nodes, self.command, Priority[self.priority]))


class PlatformConfig(Strict):
    """A platform: its policy, its timers and its users' jobs."""

    policy: str = Field(default="hai", description="hai, hai_backfill, fifo, easy or fair_share.")
    placement: Placement = Field(default=Placement.PACKED, strict=False, description="How nodes of a zone are chosen.")
    timers: Timers = Field(default_factory=Timers, description="How long scheduler and agents wait for each other.")
    health: HealthConfig | None = Field(
        default=None,
        description="Validation of nodes, watch of errors and stalls, repair and lemons. Without it a node is out only "
        "while it is not heard.",
    )
    jobs: tuple[SubmittedJob, ...] = Field(
        min_length=1, max_length=10_000, strict=False, description="The jobs that users submit."
    )

    @field_validator("policy")
    @classmethod
    def _known(cls, policy: str) -> str:
        if policy not in POLICIES:
            raise ValueError(f"{policy!r} is none of {', '.join(POLICIES)}")
        return policy

    def gpu_fault(self, target: GpuTarget) -> str:
        """Return why an error of a GPU would come to nothing; empty if it would not."""
        if self.health is None:
            return f"gpu: nobody looks at errors of {target}; give the platform `health:`"
        return "" if target.number < GPUS else f"gpu: {target.host} has GPUs 0 to {GPUS - 1}; choose one of them"


class PlatformJob:
    """Its first node is the management host, with the scheduler; the others have agents, and run users' jobs.

    ``address_of`` overrides the fabric's addresses, for tests on one machine.
    """

    def __init__(
        self,
        stage: Stage,
        config: PlatformConfig,
        nodes: Sequence[NodeId],
        level: ServiceLevel = ServiceLevel.CONTROL,
        name: str = "platform",
        address_of: Callable[[NodeId], str] | None = None,
    ) -> None:
        if len(nodes) < 2:
            raise TrafficError(f"{name}: has {len(nodes)} nodes; the scheduler needs one, and jobs one or more")
        for asked in config.jobs:
            if asked.nodes > len(nodes) - 1:
                have = f"{name} has {len(nodes) - 1} beside the scheduler's"
                raise TrafficError(
                    f"{name}: job {asked.name} asks for {asked.nodes} nodes, and {have}; lower its nodes"
                )
        self.name, self.level, self._stage, self._config = name, level, stage, config
        self._manager, self._nodes = nodes[0], tuple(nodes[1:])
        self._address_of = address_of or (lambda node: stage.fabric.nics_of[node][0].ip)
        self._folder = stage.logs / name
        self._scheduler: ProgramGroup[NodeId] = ProgramGroup(stage, name)
        self._agents: ProgramGroup[NodeId] = ProgramGroup(stage, name)

    @property
    def failing_programs(self) -> Sequence[ProgramGroup[NodeId]]:
        """The agents and the scheduler, whom failures may stop or kill; ranks end with their agent."""
        return self._agents, self._scheduler

    def start(self) -> None:
        """Start the scheduler, then the agents."""
        self._folder.mkdir(parents=True, exist_ok=True)
        transport, timers = self._stage.transport(self.level, self._config.timers.failed_after), self._config.timers
        arguments = SchedulerArguments(
            self._address_of(self._manager),
            self._listed(),
            Users(),
            POLICIES[self._config.policy].placed(self._config.placement),
            timers,
            self._folder / "journal",
            tuple(one.submission for one in self._config.jobs),
            transport,
            self._health(),
        )
        self._scheduler.start_all(run_scheduler, {self._manager: ("scheduler", self._manager, arguments)}, 1)
        (listening,) = self._scheduler.collect("the address that the scheduler listens on", START_TIMEOUT_S).values()
        if not isinstance(listening, Listening):
            raise TrafficError(f"{self.name}: the scheduler answered {listening!r} instead of where it listens")
        addresses = {node.name: self._address_of(node) for node in self._nodes}
        starts: dict[NodeId, tuple[str, NodeId, AgentArguments]] = {}
        for node in self._nodes:
            of_node = (node.name, listening.endpoint, addresses, timers, self._folder / node.name)
            mine = AgentArguments(*of_node, transport, self._health(), self._tests())
            starts[node] = ("agent", node, mine)
        # A process each: what a rank's agent is killed by kills its ranks, and no others.
        self._agents.start_all(run_node_agent, starts, 1)
        self._agents.await_ready("readiness", START_TIMEOUT_S)

    def _health(self) -> HealthSetup | None:
        """Return what health begins with; None if nobody keeps it."""
        if self._config.health is None:
            return None
        fabric = self._stage.fabric

        def of(node: NodeId) -> NodeNics:
            nics = fabric.nics_of[node]
            addresses = (self._address_of(node), *(nic.ip for nic in nics[1:]))
            rates = tuple(fabric.link_at[nic.port].rate_bps for nic in nics)
            return NodeNics(addresses, tuple(nic.port.interface for nic in nics), rates)

        return HealthSetup(self._config.health, {node.name: of(node) for node in self._nodes})

    def _tests(self) -> Transport | None:
        """Return what carries tests of bandwidth."""
        health = self._config.health
        if health is None or health.validation.service_level is None:
            return None
        level = next(one for one in SERVICE_LEVELS if one.label == health.validation.service_level)
        return self._stage.transport(level, self._config.timers.failed_after)

    # Failures: a platform with health is :class:`fabric.failures.targets.HasGpus`.

    def gpus_on(self, host: str) -> int:
        """Return how many GPUs a node has whose errors are seen."""
        return GPUS if self._config.health is not None and host in {node.name for node in self._nodes} else 0

    def gpu_error(self, host: str, number: int, xid: int) -> None:
        """Write an error into the log of a node's kernel, as the GPU's driver does."""
        with kernel_log(self._folder / host).open("a") as log:
            log.write(GpuError(time.monotonic(), number, xid).line() + "\n")

    def _listed(self) -> Nodes:
        """Return the nodes that jobs may get, with their zones and leaves."""
        whole = Nodes.of(self._stage.fabric)
        places = np.array([whole.names.index(node.name) for node in self._nodes], dtype=np.int64)
        return Nodes(
            tuple(node.name for node in self._nodes),
            whole.zones[places],
            whole.leaves[places],
            (GROUP,),
            np.zeros(len(places), dtype=np.int64),
            np.ones(len(places), dtype=np.bool_),
        )

    def play(self, phase: str) -> None:
        """Begin: agents are heard, jobs are submitted when their time has come."""
        for programs in (self._agents, self._scheduler):
            programs.order(Play(phase))
            programs.await_ready("begin", START_TIMEOUT_S)

    def finish(self, timeout_s: float = 3600.0) -> None:
        """Return once all jobs have ended. Raises TrafficError if they have not in time."""
        self._scheduler.order(AwaitJobs())
        self._scheduler.await_ready("end of all jobs", timeout_s)

    def halt(self) -> Records:
        """Stop jobs that go on; return what has happened, a row per event."""
        self._scheduler.order(Halt())
        (records,) = self._scheduler.collect("its events", ENDING_S + START_TIMEOUT_S).values()
        self._agents.order(Halt())
        self._agents.await_ready("end", START_TIMEOUT_S)
        if not isinstance(records, Records):
            raise TrafficError(f"{self.name}: the scheduler answered {records!r} instead of its events")
        records.add(STEPS, self._steps(records.rows(EVENTS)))
        return records

    def _steps(self, events: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return the steps that ranks printed, a row each."""
        phase = events[0]["phase"] if events else ""
        return [{"phase": phase, **one._asdict()} for one in said_in(self._folder, events)]

    def close(self) -> None:
        """End the programs."""
        self._agents.close()
        self._scheduler.close()
