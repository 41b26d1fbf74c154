"""The scheduler and the agents as programs in hosts: forked there, ordered by the run over pipes, talking over the
fabric."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from cluster.health.bandwidth import BandwidthMeter
from cluster.health.checks import CheckResult, Occasion
from cluster.health.host import KernelHost
from cluster.health.node import NodeHealth
from cluster.nodes import Nodes
from cluster.platform.agent_program import NodeAgent
from cluster.platform.doors import Doors
from cluster.platform.events import Event, JobSpec, Left, NodeBack, NodeOut, Started, Submitted, ToldToEnd
from cluster.platform.health import HealthSetup
from cluster.platform.journal import Journal
from cluster.platform.ranks import ProcessRanks
from cluster.platform.scheduler_program import Scheduler
from cluster.platform.state import JobStatus
from cluster.platform.timers import Timers
from cluster.policies import Policy
from cluster.tasks import TaskState, Users
from fabric.errors import ConfigError, TrafficError
from fabric.model.lanes import ServiceLevel
from fabric.world.programs.agents import Agent
from traffic.job import Halt, Listening, Play, Ready, Records
from traffic.storage import event_loop
from traffic.storage.orders import Orders
from traffic.storage.wire import Tasks
from traffic.transport.connection import Endpoint, Transport

ENDING_S = 30.0
"""How long jobs may take to leave at the end of a phase."""
_LOOK_S = 0.05
EVENTS, HEALTH, JOBS = "platform_events", "platform_health", "platform_jobs"


@dataclass(frozen=True)
class Submission:
    """A job of a config, and when it is submitted, from the begin of the phase on."""

    at_s: float
    spec: JobSpec


@dataclass(frozen=True)
class SchedulerArguments:
    """What the scheduler is told when it is forked."""

    address: str
    nodes: Nodes
    users: Users
    policy: Policy
    timers: Timers
    journal: Path
    submissions: tuple[Submission, ...]
    transport: Transport
    health: HealthSetup | None = None


@dataclass(frozen=True)
class AgentArguments:
    """What an agent is told: where the scheduler listens, its own address, and those of all nodes, for their ranks.
    ``tests``: what carries tests of bandwidth, with ``health``."""

    node: str
    scheduler: Endpoint
    addresses: Mapping[str, str]
    timers: Timers
    folder: Path
    transport: Transport
    health: HealthSetup | None = None
    tests: Transport | None = None


@dataclass(frozen=True)
class AwaitJobs:
    """The order to say once all jobs that were submitted, or will be, have ended."""


def run_scheduler(agent: Agent, arguments: SchedulerArguments) -> None:
    """Be the scheduler until the run stops it."""
    event_loop.run(_schedule(agent, arguments))


async def _schedule(agent: Agent, arguments: SchedulerArguments) -> None:
    tasks = Tasks()
    orders = Orders(agent, tasks, lambda change: None)
    tasks.loop.set_exception_handler(lambda loop, context: tasks.fail(_error_of(context)))
    listener = arguments.transport.listen(arguments.address)
    with Journal(arguments.journal) as journal:
        scheduler = Scheduler(arguments.nodes, arguments.users, arguments.policy, arguments.timers, journal)
        if arguments.health is not None:
            scheduler.keep_health(arguments.health)
        Doors(scheduler, listener)
        agent.report(Listening(listener.endpoint))
        phase = _Phase(scheduler, arguments.submissions, tasks)
        while True:
            order = await orders.next()
            if isinstance(order, Play):
                phase.begin(order.phase)
                agent.report(Ready())
            elif isinstance(order, AwaitJobs):
                await orders.unless_failed(phase.until_over())
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

    def begin(self, name: str) -> None:
        """Decide from now on; nobody was heard before."""
        self._name = name
        self._left = len(self._submissions)
        scheduler = self._scheduler
        scheduler.heard_s = dict.fromkeys(scheduler.heard_s, time.monotonic())
        self._running = [self._tasks.spawn(scheduler.turn_on()), self._tasks.spawn(self._submit())]

    async def _submit(self) -> None:
        began_s = time.monotonic()
        for one in sorted(self._submissions, key=lambda one: one.at_s):
            await asyncio.sleep(max(0.0, began_s + one.at_s - time.monotonic()))
            self._scheduler.submit(one.spec)
            self._left -= 1

    async def until_over(self) -> None:
        """Wait until every job has ended."""
        while self._left or self._scheduler.state.tasks:
            await asyncio.sleep(_LOOK_S)

    async def end(self) -> Records:
        """Stop jobs that go on, decide no more, and return what has happened."""
        self._running.pop().cancel()
        self._left = 0
        scheduler = self._scheduler
        for job in list(scheduler.state.jobs.values()):
            task = scheduler.state.tasks.get(job.lives[-1])
            if task is not None and task.state is not TaskState.LEAVING:
                scheduler.cancel(job.number)
        try:
            await asyncio.wait_for(self.until_over(), ENDING_S)
        except asyncio.TimeoutError:
            lives = sorted(scheduler.left)
            raise TrafficError(f"lives {lives} have not left within {ENDING_S:g} s; are their nodes silent?") from None
        finally:
            self._running.pop().cancel()
        rows = [{"phase": self._name, **row_of(event, scheduler)} for event in self._seen]
        taken = {event.number for event in self._seen if isinstance(event, Submitted)}
        jobs = [{"phase": self._name, **job_row(job)} for job in scheduler.state.jobs.values() if job.number in taken]
        self._seen.clear()
        found = [] if scheduler.health is None else scheduler.health.end_phase()
        checked = [{"phase": self._name, **_checked_row(*one)} for one in found]
        return Records({EVENTS: rows, JOBS: jobs, HEALTH: checked})


def _checked_row(at_s: float, occasion: Occasion, result: CheckResult) -> dict[str, object]:
    """Return what a check found as a row."""
    return {
        "at_s": at_s,
        "occasion": occasion.value,
        "node": result.node,
        "check": result.check.value,
        "verdict": result.verdict.value,
        "measured": result.measured,
        "limit": result.limit,
        "unit": result.unit,
        "reason": result.reason,
    }


def row_of(event: Event, scheduler: Scheduler) -> dict[str, object]:
    """Return an event as a row: what, of which job and life, on which nodes, why."""
    row: dict[str, object] = {"at_s": event.at_s, "event": "", "number": 0, "life": 0, "nodes": "", "why": ""}
    if isinstance(event, Submitted):
        return {**row, "event": "submitted", "number": event.number, "life": event.number, "why": event.spec.name}
    if isinstance(event, NodeOut | NodeBack):
        name = "node_out" if isinstance(event, NodeOut) else "node_back"
        return {**row, "event": name, "nodes": event.node, "why": event.why}
    number = next((job.number for job in scheduler.state.jobs.values() if event.life in job.lives), 0)
    row |= {"number": number, "life": event.life}
    if isinstance(event, Started):
        return {**row, "event": "started", "nodes": " ".join(event.nodes), "why": event.why}
    if isinstance(event, ToldToEnd):
        return {**row, "event": event.how.value, "why": event.why}
    assert isinstance(event, Left), event
    return {**row, "event": "finished" if event.finished else "left", "why": f"code {event.code}, step {event.step}"}


def job_row(job: JobStatus) -> dict[str, object]:
    """Return a job as a row: whose it is, what it asked for, and what came of it."""
    return {
        "number": job.number,
        "name": job.spec.name,
        "user": job.spec.user,
        "priority": job.spec.priority.name,
        "asks": job.spec.nodes,
        "lives": len(job.lives),
        "step": -1 if job.step is None else job.step,
        "code": -1 if job.code is None else job.code,
    }


def run_node_agent(agent: Agent, arguments: AgentArguments) -> None:
    """Be the agent of a node until the run stops it; its ranks end with it."""
    event_loop.run(_serve(agent, arguments))


def _environment_on(node: str) -> dict[str, str]:
    """Return the environment of ranks on a node: the agent's, and by what they can mount a file system of the run."""
    own = {"FABRIC_HOST": node, "FABRIC_PYTHON": sys.executable, "FABRIC_TOS": str(ServiceLevel.NCCL.tos)}
    return {**os.environ, **own}


async def _serve(agent: Agent, arguments: AgentArguments) -> None:
    tasks = Tasks()
    orders = Orders(agent, tasks, lambda change: None)
    tasks.loop.set_exception_handler(lambda loop, context: tasks.fail(_error_of(context)))
    addresses = dict(arguments.addresses)
    ranks = ProcessRanks(arguments.folder, addresses.__getitem__, _environment_on(arguments.node))
    node = NodeAgent(arguments.node, ranks, arguments.timers)
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
            else:
                raise ConfigError("agent", [f"{agent.host}: knows no order {order!r}"])
            agent.report(Ready())
    finally:
        ranks.stop_all()


async def _keep_health(node: NodeAgent, ranks: ProcessRanks, arguments: AgentArguments, setup: HealthSetup) -> None:
    """Carry out checks on a node, and watch it, for ever."""
    nics = setup.nics[arguments.node]
    meter = BandwidthMeter(arguments.tests or arguments.transport, nics.addresses)
    host = KernelHost(nics.interfaces, kernel_log(arguments.folder))
    health = NodeHealth(arguments.node, setup.nics, setup.config, host, meter)
    health.send, health.steps = node.send, ranks.steps
    health.watch.on_change = node.beat  # The scheduler hears of an error before it hears of the rank that ends by it.
    health.watch.on_error = lambda errors: node.stop_ranks()
    node.unwell, node.others = health.watch.unwell, health.hear
    meter.listen()
    try:
        await health.watch_on(node.playing)
    finally:
        meter.close()
        host.close()


def kernel_log(folder: Path) -> Path:
    """Return where the kernel's log of a node is, by the node's folder in the logs of a run."""
    return folder / "kernel.log"
