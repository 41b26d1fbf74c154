"""What follows from all events: which tasks there are, where they run, which nodes may be used. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from enum import Enum

from cluster.nodes import Nodes
from cluster.platform.events import (
    Asked,
    Demanded,
    EndKind,
    EndOrdered,
    Event,
    Held,
    JobSpec,
    Left,
    NodeBack,
    NodeOut,
    Released,
    Requeued,
    Saved,
    Started,
    Submitted,
    Validated,
)
from cluster.platform.reasons import Why
from cluster.scheduler import ClusterState
from cluster.tasks import Task, TaskState, Users
from cluster.usage import Usage


class JobState(str, Enum):
    """A job's state, in HAI's words; the last two are Slurm's."""

    WAITING_INIT = "waiting_init"
    """Also while its nodes are asked."""
    RUNNING = "running"
    SUSPENDED = "suspended"
    FINISHED = "finished"
    CANCELLED = "cancelled"
    """Its user stopped it, and it did not end by itself before."""
    TIMEOUT = "timeout"
    """Likewise, its limit did."""

    @property
    def is_over(self) -> bool:
        """Whether it runs no more, nor waits."""
        return self in (JobState.FINISHED, JobState.CANCELLED, JobState.TIMEOUT)


STOPPED: dict[EndKind | None, JobState] = {EndKind.CANCEL: JobState.CANCELLED, EndKind.TIMEOUT: JobState.TIMEOUT}
"""States of jobs whose last life was told to end, and did not end by itself."""


@dataclass
class JobStatus:
    """What is known of a job. ``lives`` are the numbers of its lives in order; ``step``: the step that its last
    checkpoint has; ``code``: its exit code once it has ended; ``nodes``: by rank, of each life that got some;
    ``faults``: what is wrong with its submission, of an old journal: it is not to run. ``is_held``: it is not to be
    started."""

    number: int
    spec: JobSpec
    submitted_s: float
    lives: list[int]
    state: JobState = JobState.WAITING_INIT
    step: int | None = None
    code: int | None = None
    ended_s: float | None = None
    why: str = ""
    nodes: dict[int, tuple[str, ...]] = field(default_factory=dict)
    faults: tuple[str, ...] = ()
    is_held: bool = False


class PlatformState:
    """Everything that survives: the journal's events, taken one by one."""

    def __init__(self, nodes: Nodes, users: Users, events: Iterable[Event] = ()) -> None:
        self.nodes, self.users = nodes, users
        self.places = {name: place for place, name in enumerate(nodes.names)}
        self.jobs: dict[int, JobStatus] = {}
        self.tasks: dict[int, Task] = {}
        self.asked: dict[int, Why] = {}
        """The lives that have nodes, which are asked whether they can take them, and why they got them; no rank of them
        runs."""
        self.saved: dict[int, int] = {}
        """Of lives that run, the step that their last checkpoint has."""
        self.told: dict[int, EndKind] = {}
        self.outs: dict[str, NodeOut] = {}
        """Why nodes are out."""
        self.tokens: dict[str, int] = {}
        """The jobs by what their users call the submission."""
        self.lives = 0
        self.usage = Usage()
        for event in events:
            self.apply(event)

    @property
    def out(self) -> dict[str, str]:
        """Why nodes are out, in words."""
        return {node: str(event.why) for node, event in self.outs.items()}

    def at(self, now_s: float) -> ClusterState:
        """Return the state that the scheduler decides on, without jobs that wait and are held."""
        self.usage.move(now_s, self.tasks.values())
        users = replace(self.users, usage=dict(self.usage.node_s))
        return ClusterState(self.nodes, users, [one for one in self.tasks.values() if not self.is_held(one)], now_s)

    def is_held(self, task: Task) -> bool:
        """Return whether a life waits, and is not to be started."""
        return task.state is TaskState.QUEUED and self.jobs[task.chain].is_held

    def job_of(self, life: int) -> JobStatus:
        """Return the job that a life is one of."""
        return self.jobs[self.tasks[life].chain]

    def nodes_of(self, life: int) -> tuple[str, ...]:
        """Return the names of a life's nodes in the order of ranks."""
        return tuple(self.nodes.names[place] for place in self.tasks[life].placed)

    def apply(self, event: Event) -> None:
        """Take what has happened. Raises ValueError if it cannot have: the journal is of another cluster, or there is a
        bug."""
        self.usage.move(event.at_s, self.tasks.values())
        if isinstance(event, Submitted):
            self._submitted(event)
        elif isinstance(event, Held | Released):
            if event.number not in self.jobs:
                raise ValueError(f"{event}: no such job")
            self.jobs[event.number].is_held = isinstance(event, Held)
        elif isinstance(event, NodeOut):
            self.nodes = self.nodes.without([self._place(event.node)])
            self.outs[event.node] = event
        elif isinstance(event, NodeBack):
            self.nodes = self.nodes.with_ready([self._place(event.node)])
            self.outs.pop(event.node, None)
        elif isinstance(event, Demanded | Validated):
            pass  # What follows from these for nodes and jobs are events of their own.
        elif event.life not in self.tasks:
            raise ValueError(f"{event}: unknown life")
        elif isinstance(event, Asked):
            self._asked(event)
        elif isinstance(event, Started):
            self._started(event)
        elif isinstance(event, Requeued):
            self._requeued(event)
        elif isinstance(event, Saved):
            self._saved(event)
        elif isinstance(event, EndOrdered):
            self._told(event)
        else:
            self._left(event)

    def _place(self, node: str) -> int:
        if node not in self.places:
            raise ValueError(f"{node}: the cluster has no such node")
        return self.places[node]

    def _submitted(self, event: Submitted) -> None:
        if event.number != self.lives + 1:
            raise ValueError(f"{event}: the next number is {self.lives + 1}")
        self.lives += 1
        if event.token:
            self.tokens[event.token] = event.number
        job = JobStatus(event.number, event.spec, event.at_s, [event.number], faults=event.faults)
        self.jobs[event.number] = job
        self.tasks[event.number] = self._task(event.number, event.spec, event.at_s)

    def _task(self, number: int, spec: JobSpec, at_s: float) -> Task:
        return Task(number, spec.user, spec.nodes, spec.priority, spec.group, submitted_s=at_s, limit_s=spec.limit_s)

    def _asked(self, event: Asked) -> None:
        task = self.tasks[event.life]
        if task.state is not TaskState.QUEUED or len(event.nodes) != task.nodes:
            raise ValueError(f"{event}: it is {task.state.value}, and asks for {task.nodes} nodes")
        placed = tuple(self._place(node) for node in event.nodes)
        held = {place for other in self.tasks.values() for place in other.placed}
        if taken := [node for node, place in zip(event.nodes, placed, strict=True) if place in held]:
            raise ValueError(f"{event}: {', '.join(taken)} has another task")
        # To the policy it runs: it holds its nodes, and may have to yield them.
        self.tasks[event.life] = replace(task, state=TaskState.RUNNING, placed=placed, began_s=event.at_s)
        self.asked[event.life] = event.why
        self.job_of(event.life).nodes[event.life] = event.nodes

    def _started(self, event: Started) -> None:
        if event.life not in self.asked:
            # Of who asks nobody: journals from before nodes were asked, and other engines.
            self._asked(Asked(event.at_s, event.life, event.nodes, event.why))
        if event.nodes != self.nodes_of(event.life):
            raise ValueError(f"{event}: these nodes were not asked to take it")
        del self.asked[event.life]
        self.tasks[event.life] = replace(self.tasks[event.life], began_s=event.at_s)
        self.job_of(event.life).state = JobState.RUNNING

    def _requeued(self, event: Requeued) -> None:
        if event.life not in self.asked:
            raise ValueError(f"{event}: its nodes are not being asked")
        del self.asked[event.life]
        self.tasks[event.life] = replace(self.tasks[event.life], state=TaskState.QUEUED, placed=(), began_s=0.0)
        self.job_of(event.life).why = str(event.why)

    def _saved(self, event: Saved) -> None:
        if event.life in self.asked or self.tasks[event.life].state is TaskState.QUEUED:
            raise ValueError(f"{event}: it does not run")
        self.saved[event.life] = max(event.step, self.saved.get(event.life, event.step))
        self.job_of(event.life).step = self.saved[event.life]

    def _told(self, event: EndOrdered) -> None:
        task = self.tasks[event.life]
        is_waiting = task.state is TaskState.QUEUED
        if event.life in self.asked or (is_waiting and event.how is not EndKind.CANCEL):
            raise ValueError(f"{event}: no rank of it runs")
        self.told[event.life] = event.how
        self.job_of(event.life).why = str(event.why)
        if not is_waiting:
            self.tasks[event.life] = replace(task, state=TaskState.LEAVING)

    def _left(self, event: Left) -> None:
        if event.life in self.asked:
            raise ValueError(f"{event}: no rank of it has started")
        job, task = self.job_of(event.life), self.tasks.pop(event.life)
        how = self.told.pop(event.life, None)
        self.saved.pop(event.life, None)
        if event.step is not None:
            job.step = event.step
        if how in (EndKind.SUSPEND, EndKind.RESTART) and not event.finished:
            self.lives += 1
            job.lives.append(self.lives)
            job.state = JobState.SUSPENDED
            again = self._task(self.lives, job.spec, event.at_s)
            ran_s = task.ran_s + event.at_s - task.began_s
            self.tasks[self.lives] = replace(again, chain=job.number, ran_s=ran_s)
        else:
            job.state = JobState.FINISHED if event.finished else STOPPED.get(how, JobState.FINISHED)
            job.code, job.ended_s = event.code, event.at_s
