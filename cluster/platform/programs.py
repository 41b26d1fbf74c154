"""The scheduler and the agents as programs in hosts: forked there, ordered by the run over pipes, talking over the
fabric."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from cluster.health.allreduce_check import GpuTest
from cluster.health.bandwidth import BandwidthMeter
from cluster.health.host import KernelHost
from cluster.health.node import NodeHealth
from cluster.nodes import Nodes
from cluster.platform.agent_program import NodeAgent
from cluster.platform.event_rows import EVENTS, event_row
from cluster.platform.events import (
    Asked,
    Demanded,
    EndKind,
    EndOrdered,
    Event,
    Held,
    JobSpec,
    NodeBack,
    NodeOut,
    OfLife,
    Released,
    Requeued,
    Saved,
    Started,
    Submitted,
    Validated,
)
from cluster.platform.health import HealthSetup
from cluster.platform.journal import Journal
from cluster.platform.ranks import ProcessRanks, end_what_is_left, saved_before
from cluster.platform.reasons import Silent
from cluster.platform.scheduler_program import Scheduler
from cluster.platform.scheduler_server import SchedulerServer
from cluster.platform.stage_file import FILE as STAGE_FILE
from cluster.platform.stage_file import VARIABLE as STAGE_VARIABLE
from cluster.platform.state import JobStatus, PlatformState
from cluster.platform.timers import Timers
from cluster.policies import Policy
from cluster.tasks import Users
from fabric.errors import ConfigError, TrafficError
from fabric.model.lanes import ServiceLevel
from fabric.records.packed import NONE, names_cell
from fabric.world.programs.agents import Agent
from traffic.job import Halt, Listening, Play, Ready, Records
from traffic.storage.orders import Orders
from traffic.storage.wire import event_loop
from traffic.storage.wire.calls import Tasks
from traffic.transport.connection import Endpoint, Transport

ENDING_S = 30.0
"""How long jobs may take to leave at the end of a phase."""
_LOOK_S = 0.05
_TOLD_AT_ONCE_S = 0.1
"""A step that was told of later than this after it was saved says so in its row."""
HEALTH, JOBS = "platform_health", "platform_jobs"


@dataclass(frozen=True)
class Submission:
    """A job of a config, and when it is submitted, from the start of the phase on."""

    at_s: float
    spec: JobSpec


@dataclass(frozen=True)
class SchedulerArguments:
    """What the scheduler is told when it is forked; ``port``: where it is to listen again, of one that was killed."""

    address: str
    nodes: Nodes
    users: Users
    policy: Policy
    timers: Timers
    journal: Path
    submissions: tuple[Submission, ...]
    transport: Transport
    port: int = 0
    health: HealthSetup | None = None
    origin_s: float = 0.0
    """When the journal's time was zero."""


@dataclass(frozen=True)
class AgentArguments:
    """What an agent is told: where the scheduler listens, its own address, and those of all nodes, for their ranks.
    ``is_again``: it takes the place of one that was killed. ``tests``: what carries tests of bandwidth, with
    ``health``. ``has_own_host``: ranks run on a host of a fabric, with all that this has to itself."""

    node: str
    scheduler: Endpoint
    addresses: Mapping[str, str]
    timers: Timers
    folder: Path
    transport: Transport
    is_again: bool = False
    health: HealthSetup | None = None
    tests: Transport | None = None
    has_own_host: bool = False


@dataclass(frozen=True)
class GoOn:
    """The order to a scheduler to go on with a phase that began at ``began_s`` (``time.monotonic()``), just now or
    before it was begun again: the journal has what happened in it behind the first ``before`` events. By these it is
    known, not by times: clocks of two programs may differ by nanoseconds.

    ``name``: what its submissions are called in the journal, if that has those of an earlier time that it goes on with;
    empty: they are its own. ``zero_s``: when their times count from; None: from its begin.
    """

    phase: str
    began_s: float
    before: int
    name: str = ""
    zero_s: float | None = None


@dataclass(frozen=True)
class AwaitJobs:
    """The order to say once all jobs that were submitted, or will be, have ended."""


@dataclass(frozen=True)
class Drain:
    """The order to suspend what runs, to start nothing more, and to say once all nodes have been left."""


def token_of(name: str, place: int) -> str:
    """Return the token of a submission of a config, by what its submissions are called and its place among them."""
    return f"{name}: {place}"


def name_of(token: str) -> str:
    """Return the name of a config's submissions from the token of one (:func:`token_of`); empty for a user's job."""
    return token.rpartition(": ")[0]


def run_scheduler(agent: Agent, arguments: SchedulerArguments) -> None:
    """Be the scheduler until the run stops it."""
    event_loop.run(_schedule(agent, arguments))


async def _schedule(agent: Agent, arguments: SchedulerArguments) -> None:
    tasks = Tasks()
    orders = Orders(agent, tasks, lambda change: None)
    tasks.loop.set_exception_handler(lambda loop, context: tasks.fail(_error_of(context)))
    listener = arguments.transport.listen(arguments.address, arguments.port)
    with Journal(arguments.journal, arguments.origin_s) as journal:
        scheduler = Scheduler(arguments.nodes, arguments.users, arguments.policy, arguments.timers, journal)
        if arguments.health is not None:
            scheduler.keep_health(arguments.health)
        SchedulerServer(scheduler, listener)
        agent.report(Listening(listener.endpoint))
        phase = _Phase(scheduler, arguments.submissions, tasks)
        while True:
            order = await orders.next()
            if isinstance(order, GoOn):
                phase.go_on(order)
                agent.report(Ready())
            elif isinstance(order, AwaitJobs):
                await orders.unless_failed(phase.until_over())
                agent.report(Ready())
            elif isinstance(order, Drain):
                await orders.unless_failed(phase.drain())
                agent.report(Ready())
            elif isinstance(order, Halt):
                agent.report(await orders.unless_failed(phase.end()))
            else:
                raise TrafficError(f"the scheduler on {agent.host} knows no order {order!r}")


def _error_of(context: Mapping[str, object]) -> BaseException:
    error = context.get("exception")
    return error if isinstance(error, BaseException) else TrafficError(str(context.get("message")))


class _Phase:
    """A phase of the scheduler's: jobs are submitted in it, and all have ended when it ends."""

    def __init__(self, scheduler: Scheduler, submissions: tuple[Submission, ...], tasks: Tasks) -> None:
        self._scheduler, self._submissions, self._tasks = scheduler, submissions, tasks
        self._running: list[asyncio.Task[None]] = []
        self._name = ""
        self._seen: list[Event] = []
        self._left = 0
        scheduler.on_event = self._seen.append

    def go_on(self, phase: GoOn) -> None:
        """Go on with a phase, or begin it: decide from now on; nobody was heard before."""
        self._name = phase.phase
        scheduler = self._scheduler
        self._seen[:] = list(scheduler.journal.events())[phase.before :]
        # A phase is known by where in the journal it begins: one that is played again has the same name.
        name = phase.name or f"{phase.phase} {phase.before}"
        named = [(one, token_of(name, place)) for place, one in enumerate(self._submissions)]
        coming = [(one, token) for one, token in named if token not in scheduler.state.tokens]
        self._left = len(coming)
        scheduler.heard_s.begin(time.monotonic())
        self._running = [
            self._tasks.spawn(scheduler.turn_on()),
            self._tasks.spawn(self._submit(phase, sorted(coming, key=lambda one: one[0].at_s))),
        ]

    async def _submit(self, phase: GoOn, coming: Sequence[tuple[Submission, str]]) -> None:
        zero_s = phase.began_s if phase.zero_s is None else phase.zero_s
        for one, token in coming:
            await asyncio.sleep(max(0.0, zero_s + one.at_s - time.monotonic()))
            self._scheduler.submit(one.spec, token)
            self._left -= 1

    async def until_over(self) -> None:
        """Wait until every job has ended."""
        while self._left or self._scheduler.state.tasks:
            await asyncio.sleep(_LOOK_S)

    async def _has_ended(self) -> bool:
        """Wait a while until every job has ended; return whether all have."""
        try:
            await asyncio.wait_for(self.until_over(), ENDING_S)
        except asyncio.TimeoutError:
            return False
        return True

    async def drain(self) -> None:
        """Suspend what runs, as for another job, and start nothing: it waits in the journal. What has not left in time,
        on nodes that are silent, is found lost by whoever goes on from there."""
        for task in self._running:
            task.cancel()
        scheduler = self._scheduler
        scheduler.suspend_all("the cluster goes down")
        deadline_s = time.monotonic() + ENDING_S
        while scheduler.left and time.monotonic() < deadline_s:
            scheduler.kill_late(time.monotonic())
            await asyncio.sleep(_LOOK_S)

    async def end(self) -> Records:
        """Stop jobs that go on, decide no more, and return what has happened."""
        self._running.pop().cancel()
        self._left = 0
        scheduler = self._scheduler
        for job in list(scheduler.state.jobs.values()):
            life = job.lives[-1]
            # One that was told to suspend or to begin again would wait as a new life, and get nodes.
            if life in scheduler.state.tasks and scheduler.state.told.get(life) in (
                None,
                EndKind.SUSPEND,
                EndKind.RESTART,
            ):
                scheduler.cancel(job.number)
        try:
            if not await self._has_ended():
                scheduler.give_up_unconnected()
                if not await self._has_ended():
                    raise TrafficError(
                        f"lives {sorted(scheduler.left)} have not left within {2 * ENDING_S:g} s; do the agents of "
                        "their nodes stand still?"
                    )
        finally:
            self._running.pop().cancel()
        rows = rows_of(self._seen, scheduler.state, self._name)
        jobs = job_rows(self._seen, scheduler.state, self._name)
        checks = health_rows(self._seen, self._name)
        self._seen.clear()
        if scheduler.health is not None:
            scheduler.health.end_phase()
        return Records({EVENTS: rows, JOBS: jobs, HEALTH: checks})


def health_rows(events: Iterable[Event], phase: str) -> list[dict[str, object]]:
    """Return what validations found, a row of the table per check."""
    return [
        {
            "phase": phase,
            "at_s": event.at_s,
            "occasion": event.occasion.value,
            "node": result.node,
            "check": result.check.value,
            "verdict": result.verdict.value,
            "measured": result.measured,
            "limit": result.limit,
            "unit": result.unit,
            "reason": result.reason,
        }
        for event in events
        if isinstance(event, Validated)
        for result in event.results
    ]


def rows_of(events: Iterable[Event], state: PlatformState, phase: str) -> list[dict[str, object]]:
    """Return events as rows of the table; ``state``: what came of them. Those of validations have a table of their
    own."""
    number_of = job_numbers(state)
    return [{"phase": phase, **row_of(event, number_of)} for event in events if not isinstance(event, Validated)]


def job_numbers(state: PlatformState) -> dict[int, int]:
    """Return the numbers of jobs by those of their lives."""
    return {life: job.number for job in state.jobs.values() for life in job.lives}


def row_of(event: Event, number_of: Mapping[int, int]) -> dict[str, object]:
    """Return an event as a row: what, of which job and life, on which nodes, why."""
    if isinstance(event, Submitted):
        job = {"number": event.number, "life": event.number}
        return event_row(event.at_s, "submitted", event.spec.name) | job
    if isinstance(event, Held | Released):
        name = "held" if isinstance(event, Held) else "released"
        return event_row(event.at_s, name, event.why) | {"number": event.number}
    if isinstance(event, NodeOut):
        unheard_s = event.why.for_s if isinstance(event.why, Silent) else 0.0
        return event_row(event.at_s, "node_out", event.why) | {"nodes": event.node, "earlier_s": unheard_s}
    if isinstance(event, NodeBack):
        return event_row(event.at_s, "node_back", event.why) | {"nodes": event.node}
    if isinstance(event, Demanded):
        return event_row(event.at_s, "validate", "a user asked for it") | {"nodes": names_cell(event.nodes)}
    assert not isinstance(event, Validated), "it has a table of its own"
    return _row_of_life(event) | {"number": number_of.get(event.life, 0), "life": event.life}


def _row_of_life(event: OfLife) -> dict[str, object]:
    if isinstance(event, Asked | Started):
        name = "asked" if isinstance(event, Asked) else "started"
        return event_row(event.at_s, name, event.why) | {"nodes": names_cell(event.nodes)}
    if isinstance(event, Requeued):
        return event_row(event.at_s, "requeued", event.why)
    if isinstance(event, Saved):
        earlier_s = event.earlier_s if event.earlier_s > _TOLD_AT_ONCE_S else 0.0
        late = f", complete {earlier_s:.1f} s before" if earlier_s else ""
        row = event_row(event.at_s, "saved", f"step {event.step}{late}")
        return row | {"earlier_s": earlier_s, "step": event.step}
    if isinstance(event, EndOrdered):
        return event_row(event.at_s, event.how.value, event.why)
    name, step = "finished" if event.finished else "left", NONE if event.step is None else event.step
    return event_row(event.at_s, name, f"code {event.code}, step {event.step}") | {"step": step}


def job_rows(events: Iterable[Event], state: PlatformState, phase: str) -> list[dict[str, object]]:
    """Return the jobs that were submitted, as rows of the table; ``state``: what came of them."""
    taken = {event.number for event in events if isinstance(event, Submitted)}
    return [{"phase": phase, **job_row(job)} for job in state.jobs.values() if job.number in taken]


def job_row(job: JobStatus) -> dict[str, object]:
    """Return a job as a row: whose it is, what it asked for, and what came of it."""
    return {
        "number": job.number,
        "name": job.spec.name,
        "user": job.spec.user,
        "priority": job.spec.priority.name,
        "asks": job.spec.nodes,
        "lives": len(job.lives),
        "step": NONE if job.step is None else job.step,
        "code": -1 if job.code is None else job.code,
    }


def run_node_agent(agent: Agent, arguments: AgentArguments) -> None:
    """Be the agent of a node until the run stops it; its ranks end with it."""
    event_loop.run(_serve(agent, arguments))


def _environment_on(node: str, logs: Path) -> dict[str, str]:
    """Return the environment of ranks on a node: the agent's, and by what they can mount a file system of the run, and
    play graphs. ``logs``: those of the platform."""
    own = {"FABRIC_HOST": node, "FABRIC_PYTHON": sys.executable, "FABRIC_TOS": str(ServiceLevel.NCCL.tos)}
    return {**os.environ, **own, STAGE_VARIABLE: str(logs / STAGE_FILE)}


async def _serve(agent: Agent, arguments: AgentArguments) -> None:
    tasks = Tasks()
    orders = Orders(agent, tasks, lambda change: None)
    tasks.loop.set_exception_handler(lambda loop, context: tasks.fail(_error_of(context)))
    addresses = dict(arguments.addresses)
    if arguments.is_again:
        end_what_is_left(arguments.folder)
    ranks = ProcessRanks(
        arguments.folder,
        addresses.__getitem__,
        _environment_on(arguments.node, arguments.folder.parent),
        arguments.node if arguments.has_own_host else None,
    )
    saved = saved_before(arguments.folder) if arguments.is_again else {}
    node = NodeAgent(arguments.node, ranks, arguments.timers, saved)
    node.playing.clear()
    source = addresses[arguments.node]
    tasks.spawn(node.serve(arguments.transport, arguments.scheduler, source))
    if arguments.health is not None:
        tasks.spawn(_keep_health(node, ranks, arguments, arguments.health))
    agent.report(Ready())
    try:
        while True:
            order = await orders.next()
            if isinstance(order, Play):
                node.playing.set()
            elif isinstance(order, Halt):
                node.playing.clear()
                await ranks.end_all(ENDING_S)
            else:
                raise ConfigError("agent", [f"{agent.host}: knows no order {order!r}"])
            agent.report(Ready())
    finally:
        ranks.stop_all()


async def _keep_health(node: NodeAgent, ranks: ProcessRanks, arguments: AgentArguments, setup: HealthSetup) -> None:
    """Carry out checks on a node, and watch it, forever."""
    nics = setup.nics[arguments.node]
    meter = BandwidthMeter(arguments.tests or arguments.transport, nics.addresses)
    host = KernelHost(nics.interfaces, kernel_log(arguments.folder))
    health = NodeHealth(arguments.node, setup.nics, setup.config, host, meter)
    health.send, health.steps = node.send, ranks.steps
    if nics.gpus is not None:
        transport = arguments.tests or arguments.transport
        health.gpu_test = GpuTest(nics.gpus, setup.config.validation.allreduce, transport)
    health.watch.on_change = node.beat  # The scheduler hears of an error before it hears of the rank that ends by it.
    health.watch.on_error = lambda errors: node.stop_ranks()
    node.health = health
    meter.listen()
    try:
        await health.watch_on(node.playing)
    finally:
        meter.close()
        host.close()


def kernel_log(folder: Path) -> Path:
    """Return where the kernel's log of a node is, by the node's folder in the logs of a run."""
    return folder / "kernel.log"
