"""The platform as a job of a run: the scheduler on one host, agents on others, and the jobs that users submit."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from cluster.health.gpu_teams import GpuParts
from cluster.health.host import make_wrong
from cluster.health.node import NodeNics
from cluster.health.xids import GpuError
from cluster.platform.config import GPUS, PlatformConfig
from cluster.platform.event_lines import shortened
from cluster.platform.event_rows import EVENTS
from cluster.platform.health import HealthSetup
from cluster.platform.journal import events_in, last_time_s
from cluster.platform.journal_rows import JournalRows
from cluster.platform.programs import (
    ENDING_S,
    HEALTH,
    JOBS,
    AgentArguments,
    AwaitJobs,
    Drain,
    GoOn,
    SchedulerArguments,
    health_rows,
    job_rows,
    kernel_log,
    rows_of,
    run_node_agent,
    run_scheduler,
)
from cluster.platform.proof import STEPS, steps_in
from cluster.platform.ranks import end_what_is_left, left_in
from cluster.platform.stage_file import write_stage
from cluster.platform.state import PlatformState
from cluster.platform.supervision import SupervisedPrograms
from fabric.errors import ConfigError, TrafficError
from fabric.model.identity import NodeId
from fabric.model.inside import cpu_of
from fabric.model.lanes import SERVICE_LEVELS, ServiceLevel
from fabric.model.network import Port
from fabric.world.engines import current_engine
from fabric.world.isolation.sysctl import write_sysctl
from traffic.job import Halt, Listening, Play, Records, Stage
from traffic.program_group import FAILURES_TIMEOUT_S, ProgramGroup
from traffic.transport.connection import Endpoint, Transport

START_TIMEOUT_S = 60.0
_LOOK_S = 0.05
_FEW_NODES = 100
"""The number of agents that can each have an inotify instance: a kernel allows a user 128 by default. An agent without
one polls its files, and virtual time cannot jump."""
_LOOK_AT_AGENTS_S = 1.0


def require_room(config: PlatformConfig, nodes: Sequence[NodeId], name: str) -> None:
    """Raise TrafficError if a platform's nodes are too few for it, or for one of its jobs."""
    if len(nodes) < 2:
        raise TrafficError(f"{name}: has {len(nodes)} nodes; the scheduler needs one, and jobs one or more")
    for asked in config.jobs:
        if asked.nodes > len(nodes) - 1:
            have = f"{name} has {len(nodes) - 1} beside the scheduler's"
            raise TrafficError(f"{name}: job {asked.name} asks for {asked.nodes} nodes, and {have}; lower its nodes")


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
        require_room(config, nodes, name)
        self.name, self.level, self._stage, self._config = name, level, stage, config
        self._address_of = address_of or (lambda node: stage.address_of(stage.fabric.nics_of[node][0].ip))
        self._folder = stage.logs / name
        self._placed = tuple(nodes)
        self._scheduler = SupervisedPrograms(ProgramGroup(stage, name), self._restart_scheduler, config.restart)
        self._agents = SupervisedPrograms(
            ProgramGroup(stage, name), self._restart_agent, config.restart, lambda host: self._folder / host
        )
        self._arguments = self._arguments_on(nodes[0])
        self._phase: GoOn | None = None
        """The phase that plays, and when it began."""
        self._rows_so_far: tuple[GoOn, JournalRows] | None = None
        """Of that phase, for those who watch."""

    @property
    def _at(self) -> NodeId:
        """Where the scheduler is."""
        return self._placed[0]

    @property
    def _nodes(self) -> tuple[NodeId, ...]:
        """Where agents are."""
        return self._placed[1:]

    def _arguments_on(self, manager: NodeId) -> SchedulerArguments:
        config = self._config
        listed = config.nodes_of(self._stage.fabric, self._nodes)
        if faults := list(config.submission_faults(listed)):
            raise ConfigError(self.name, faults)
        return SchedulerArguments(
            self._address_of(manager),
            listed,
            config.users_of,
            config.policy_of,
            config.timers,
            self._folder / "journal",
            tuple(one.submission for one in config.jobs),
            self._stage.transport(self.level, config.timers.failed_after),
            health=self._health(),
        )

    @property
    def endpoint(self) -> Endpoint:
        """Where the scheduler listens, once it does."""
        return self._arguments.address, self._arguments.port

    @property
    def origin_s(self) -> float:
        """When the journal's time was zero (``time.monotonic()``), once it has started."""
        return self._arguments.origin_s

    @property
    def failing_programs(self) -> Sequence[SupervisedPrograms]:
        """The agents and the scheduler, whom failures may stop, kill or begin again; ranks end with their agent."""
        return self._agents, self._scheduler

    def start(self) -> None:
        """Start the scheduler, then the agents."""
        self._folder.mkdir(parents=True, exist_ok=True)
        if current_engine().has_own_kernel and len(self._nodes) > _FEW_NODES:
            write_sysctl("fs/inotify/max_user_instances", 2 * len(self._nodes))
        write_stage(self._folder, self._stage, self._addresses)
        origin_s = time.monotonic() - last_time_s(self._arguments.journal)
        self._arguments = replace(self._arguments, origin_s=origin_s)
        self._scheduler.group.start_all(run_scheduler, {self._at: ("scheduler", self._at, self._arguments)}, 1)
        self._arguments = replace(self._arguments, port=self._listening()[1])
        # A process each: what a rank's agent is killed by kills its ranks, and no others.
        starts = {node: ("agent", node, self._agents_arguments(node)) for node in self._nodes}
        self._agents.group.start_all(run_node_agent, starts, 1)
        self._agents.group.await_ready("readiness", START_TIMEOUT_S)

    @property
    def _addresses(self) -> dict[str, str]:
        return {one.name: self._address_of(one) for one in self._nodes}

    def _listening(self) -> Endpoint:
        (listening,) = self._scheduler.group.collect("the address that it listens on", START_TIMEOUT_S).values()
        if not isinstance(listening, Listening):
            raise TrafficError(f"{self.name}: the scheduler answered {listening!r} instead of where it listens")
        return listening.endpoint

    def _agents_arguments(self, node: NodeId) -> AgentArguments:
        return AgentArguments(
            node.name,
            (self._arguments.address, self._arguments.port),
            self._addresses,
            self._config.timers,
            self._folder / node.name,
            self._arguments.transport,
            health=self._arguments.health,
            tests=self._tests(),
            has_own_host=self._stage.namespace_of(node) is not None,
        )

    # Health -----------------------------------------------------------------------------------------------------------

    def _health(self) -> HealthSetup | None:
        """Return what health begins with; None if nobody keeps it."""
        if self._config.health is None:
            return None
        fabric = self._stage.fabric

        def of(node: NodeId) -> NodeNics:
            nics = fabric.nics_of[node]
            addresses = (self._address_of(node), *(nic.ip for nic in nics[1:]))
            rates = tuple(fabric.link_at[nic.port].rate_bps for nic in nics)
            parts = GpuParts.of(fabric, node)
            # What a node with an inside has in its namespace of its NICs is its CPU's end.
            inner = [Port(cpu_of(node), 0)] * len(nics) if parts else [nic.port for nic in nics]
            return NodeNics(addresses, tuple(port.interface for port in inner), rates, parts)

        return HealthSetup(self._config.health, {node.name: of(node) for node in self._nodes})

    def _tests(self) -> Transport | None:
        """Return what carries tests of bandwidth."""
        health = self._config.health
        if health is None or health.validation.service_level is None:
            return None
        level = next(one for one in SERVICE_LEVELS if one.label == health.validation.service_level)
        return self._stage.transport(level, self._config.timers.failed_after)

    # Failures: a platform with health is :class:`fabric.failures.kinds.gpu.HasGpus`.

    def gpus_on(self, host: str) -> int:
        """Return how many GPUs a node has whose errors are seen."""
        return GPUS if self._config.health is not None and host in {node.name for node in self._nodes} else 0

    def gpu_error(self, host: str, number: int, xid: int) -> None:
        """Write an error into the log of a node's kernel, as the GPU's driver does."""
        with kernel_log(self._folder / host).open("a") as log:
            log.write(GpuError(time.monotonic(), number, xid).line() + "\n")

    def gpu_computes_wrong(self, host: str, number: int) -> None:
        """Let a GPU compute wrong values, of which nothing tells."""
        make_wrong(kernel_log(self._folder / host), number)

    def _restart_scheduler(self, host: str) -> None:
        """Begin the scheduler again that was killed: it goes on from its journal, on the same address."""
        group = self._scheduler.group
        with group.asking:
            group.start_again(self._at, "scheduler", self._at, run_scheduler, self._arguments)
            self._listening()
            if self._phase is not None:
                group.order(self._phase)
                group.await_ready("word that it goes on", START_TIMEOUT_S)

    def _restart_agent(self, host: str) -> None:
        """Begin the agent on a host again that was killed; its ranks are gone."""
        group, node = self._agents.group, next(node for node in self._nodes if node.name == host)
        with group.asking.of(node):
            arguments = replace(self._agents_arguments(node), is_again=True)
            group.start_again(node, "agent", node, run_node_agent, arguments)
            group.await_ready("readiness", START_TIMEOUT_S, [node])
            if self._phase is not None:
                group.order(Play(self._phase.phase), [node])
                group.await_ready("begin", START_TIMEOUT_S, [node])

    def play(self, phase: str, goes_on: str = "") -> None:
        """Begin: agents are heard, jobs are submitted when their time has come. Raises TrafficError if the scheduler
        was killed for good.

        ``goes_on``: what the config's jobs are called in the journal, of a cluster that may have been up before: those
        that are not there are submitted, at their times by the journal's clock.
        """
        if not self._scheduler.hosts:
            raise TrafficError(f"{self.name}: its scheduler on {self._at} was killed, and was not begun again")
        before = self._arguments.journal.read_bytes().count(b"\n")
        zero_s = self._arguments.origin_s if goes_on and before else None
        self._phase = GoOn(phase, time.monotonic(), before, goes_on, zero_s)
        for programs, order in ((self._agents, Play(phase)), (self._scheduler, self._phase)):
            with programs.group.asking:
                programs.group.order(order)
                programs.group.await_ready("begin", START_TIMEOUT_S)

    def finish(self, timeout_s: float = 3600.0) -> None:
        """Return once all jobs have ended. Raises TrafficError if they have not in time, or as :meth:`verify`."""
        deadline = time.monotonic() + timeout_s
        group = self._scheduler.group
        while True:
            with group.asking:
                group.order(AwaitJobs())
                self._await_word(deadline, timeout_s)
                answers = group.collect("end of all jobs", max(0.0, deadline - time.monotonic()))
            if answers:
                return
            if time.monotonic() > deadline:
                raise TrafficError(
                    f"{self.name}: its scheduler on {self._at} was killed, and was not begun again within "
                    f"{timeout_s:g} s; give the failure effect: restart, or the platform restart:"
                )
            time.sleep(_LOOK_S)

    def _await_word(self, deadline: float, timeout_s: float) -> None:
        """Wait until the scheduler says something, or has ended. Raises TrafficError if it has not in time, or as
        :meth:`verify`."""
        while waiting := list(self._scheduler.group.living.values()):
            left_s = max(0.0, deadline - time.monotonic())
            if any(handle.pipe.poll(min(_LOOK_AT_AGENTS_S, left_s)) for handle in waiting):
                return
            self.verify()
            if time.monotonic() >= deadline:
                journal = self._arguments.journal
                raise TrafficError(f"{self.name}: not all jobs have ended within {timeout_s:g} s; see {journal}")

    def verify(self) -> None:
        """Raise TrafficError if agents have ended by themselves, with which: the scheduler takes their nodes for silent
        ones that may be back, so that jobs would wait for them. While another thread asks agents, that one is told."""
        group = self._agents.group
        if not group.asking.acquire(blocking=False):
            return
        try:
            until_s = time.monotonic() + FAILURES_TIMEOUT_S
            while ended := {key: one for key, one in group.living.items() if one.pipe.poll()}:
                count = len(group.living)
                if len(ended) == count or time.monotonic() >= until_s:
                    break
                time.sleep(_LOOK_S)  # What has ended one may end others now.
            if ended:
                self._raise_ended(list(ended), count)
        finally:
            group.asking.release()

    def _raise_ended(self, ended: Sequence[NodeId], count: int) -> None:
        try:
            self._agents.group.collect("the end of the phase", FAILURES_TIMEOUT_S, ended)
        except TrafficError as error:
            where = shortened([node.name for node in ended], most=16)
            raise TrafficError(
                f"{self.name}: {len(ended)} of {count} agents have ended by themselves, those on {where}: {error}"
            ) from error

    def drain(self) -> None:
        """Suspend what runs, and start nothing more: all jobs that have not ended wait in the journal."""
        group = self._scheduler.group
        with group.asking:
            group.order(Drain())
            group.await_ready("end of what runs", ENDING_S + START_TIMEOUT_S)

    def so_far(self) -> Records:
        """Return the rows of events, and of jobs that were submitted, since the last call."""
        phase, arguments = self._phase, self._arguments
        if phase is None:
            return Records()
        if self._rows_so_far is None or self._rows_so_far[0] is not phase:
            known = arguments.nodes, arguments.users
            self._rows_so_far = phase, JournalRows(arguments.journal, known, phase.phase, phase.before)
        return self._rows_so_far[1].read(arguments.origin_s)

    def halt(self) -> Records:
        """Stop jobs that go on; return what has happened, a row per event. Raises TrafficError if a process of a rank
        is left."""
        for programs in (self._agents, self._scheduler):
            programs.settle()
        records = self._records()
        self._phase = None
        with self._agents.group.asking:
            self._agents.group.order(Halt())
            self._agents.group.await_ready("end", START_TIMEOUT_S)
        if left := left_in(self._folder):
            end_what_is_left(self._folder)
            raise TrafficError(f"{self.name}: processes {left} of ranks were left when all jobs had ended")
        return records

    def _records(self) -> Records:
        """Return the scheduler's records; those of its journal if it was killed for good."""
        group = self._scheduler.group
        if not self._scheduler.hosts:
            records: object = self._journal_records()
        else:
            with group.asking:
                group.order(Halt())
                (records,) = group.collect("its events", 2 * ENDING_S + START_TIMEOUT_S).values()
        if not isinstance(records, Records):
            raise TrafficError(f"{self.name}: the scheduler answered {records!r} instead of its events")
        records.add(STEPS, self._steps(records.rows(EVENTS)))
        return records

    def _journal_records(self) -> Records:
        assert self._phase is not None, "it plays"
        events = list(events_in(self._arguments.journal, self._arguments.origin_s))
        state = PlatformState(self._arguments.nodes, self._arguments.users, events)
        since, name = events[self._phase.before :], self._phase.phase
        return Records(
            {EVENTS: rows_of(since, state, name), JOBS: job_rows(since, state, name), HEALTH: health_rows(since, name)}
        )

    def _steps(self, events: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return the steps that ranks printed, a row each."""
        phase = events[0]["phase"] if events else ""
        return [{"phase": phase, **one._asdict()} for one in steps_in(self._folder, events)]

    def close(self) -> None:
        """End the programs."""
        self._agents.close()
        self._scheduler.close()
