"""What came to pass between two looks at Slurm, as events of the platform. Pure, but for what is asked of folders.

A job of Slurm's that is queued again keeps its number, and counts its restarts: each is a life of the job here. What
Slurm did between two looks is told as of the second one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from cluster.nodes import Nodes
from cluster.platform.events import (
    Asked,
    EndKind,
    EndOrdered,
    Event,
    JobSpec,
    Left,
    NodeBack,
    NodeOut,
    Saved,
    Started,
    Submitted,
)
from cluster.platform.state import PlatformState
from cluster.slurm.answers import SlurmJobSeen, SlurmNodeSeen
from cluster.tasks import TaskState, Users
from fabric.errors import TrafficError

COMPLETING = "COMPLETING"
_PREEMPTED = "a job of a higher level needs its nodes"
ENDED = {
    "COMPLETED": None,
    "FAILED": EndKind.FAIL,
    "BOOT_FAIL": EndKind.FAIL,
    "DEADLINE": EndKind.FAIL,
    "NODE_FAIL": EndKind.FAIL,
    "OUT_OF_MEMORY": EndKind.FAIL,
    "TIMEOUT": EndKind.TIMEOUT,
    "PREEMPTED": EndKind.CANCEL,
    "CANCELLED": EndKind.CANCEL,
}
"""States in which a job has ended, and how it then was told to; None: it was not."""


@dataclass(frozen=True)
class LifeEnd:
    """What ranks left of a life: the step that its last checkpoint has, whether it has suspended, and was told to,
    whether it lacked what it cannot do without."""

    step: int | None = None
    is_suspended: bool = False
    is_told: bool = False
    is_lacking: bool = False


class Watch:
    """The state that follows from what was seen. ``end_of``: (job, restart) -> what its ranks left."""

    def __init__(self, nodes: Nodes, end_of: Callable[[int, int], LifeEnd]) -> None:
        self.state = PlatformState(nodes, Users())
        self.restarts: dict[int, int] = {}
        """By job how often it was queued again, as far as seen."""
        self.lives: dict[int, tuple[int, int]] = {}
        """By life its job and restart."""
        self._end_of = end_of
        self._released: dict[int, int] = {}
        self.seen: dict[int, SlurmJobSeen] = {}
        """By number the jobs as of the last look."""

    def submitted(self, now_s: float, spec: JobSpec) -> tuple[int, Event]:
        """Count a job in that is to be submitted now; return its number, and the event."""
        number = self.state.lives + 1
        event = Submitted(now_s, number, spec)
        self._apply(event)
        self.restarts[number] = 0
        self.lives[number] = (number, 0)
        return number, event

    def look(self, now_s: float, jobs: Sequence[SlurmJobSeen], nodes: Sequence[SlurmNodeSeen]) -> list[Event]:
        """Return what has come to pass. Raises TrafficError if that cannot be."""
        found: list[Event] = []
        self.seen = {job.number: job for job in jobs if job.number in self.restarts}
        for node in nodes:
            self._look_at_node(now_s, node, found)
        for job in self.seen.values():
            self._look_at_end(now_s, job, found)
        for job in self.seen.values():
            self._look_at_start(now_s, job, found)
        return found

    def queued_again(self) -> Iterator[int]:
        """Yield Slurm's numbers of the jobs that it holds since they were queued again, each once per restart, unless
        the caller does not come back for the next."""
        for job in self.seen.values():
            if job.state == "PENDING" and job.restarts > self._released.get(job.number, 0):
                yield job.identity
                self._released[job.number] = job.restarts

    @property
    def left(self) -> list[str]:
        """The names of the jobs that have not ended."""
        return [self.state.jobs[task.chain].spec.name for task in self.state.tasks.values()]

    def _look_at_node(self, now_s: float, node: SlurmNodeSeen, found: list[Event]) -> None:
        if node.name not in self.state.places:
            return
        if node.is_out and node.name not in self.state.out:
            self._note(NodeOut(now_s, node.name, node.reason or "/".join(sorted(node.states))), found)
        elif not node.is_out and node.name in self.state.out:
            self._note(NodeBack(now_s, node.name, "Slurm has it in service again"), found)

    def _look_at_end(self, now_s: float, job: SlurmJobSeen, found: list[Event]) -> None:
        life = self.state.jobs[job.number].lives[-1]
        task = self.state.tasks.get(life)
        if task is None:
            return
        if job.restarts > self.restarts[job.number]:
            if task.state is TaskState.QUEUED:
                self.restarts[job.number] = job.restarts  # It has begun and ended between two looks, on unknown nodes.
            else:
                self._tell(now_s, life, *self._why_again(life), found)
                if job.state != COMPLETING:
                    self._leave(now_s, life, code=1, finished=False, found=found)
            return
        if job.state == "RUNNING" and task.state is not TaskState.QUEUED:
            step = self._end_of(*self.lives[life]).step
            if step is not None and step != self.state.saved.get(life):
                self._note(Saved(now_s, life, step), found)
        if job.state == "RUNNING" and job.is_told and task.state is TaskState.RUNNING:
            self._tell(now_s, life, EndKind.SUSPEND, _PREEMPTED, found)
        if job.state in ENDED:
            self._end(now_s, life, job, found)

    def _end(self, now_s: float, life: int, job: SlurmJobSeen, found: list[Event]) -> None:
        how = ENDED[job.state]
        if self.state.tasks[life].state is TaskState.QUEUED:
            if job.nodes:
                self._start(now_s, life, job.nodes, found)
            else:
                how = EndKind.CANCEL
        if how is not None:
            self._tell(now_s, life, how, f"Slurm says {job.state}, exit code {job.code}", found)
        finished = how is None and job.code == 0
        if how is None and not finished:
            self._tell(now_s, life, EndKind.FAIL, f"exit code {job.code}", found)
        self._leave(now_s, life, job.code or (0 if finished else 1), finished, found)

    def _why_again(self, life: int) -> tuple[EndKind, str]:
        """Return how a life was told to end that Slurm has queued again, and why."""
        for node in self.state.nodes_of(life):
            if node in self.state.out:
                return EndKind.RESTART, f"{node}: {self.state.out[node]}"
        end = self._end_of(*self.lives[life])
        if end.is_suspended:
            return EndKind.SUSPEND, _PREEMPTED if end.is_told else "its program suspended itself"
        if end.is_lacking:
            return EndKind.RESTART, "its program lacks what it cannot do without"
        return EndKind.RESTART, "Slurm queued it again"

    def _look_at_start(self, now_s: float, job: SlurmJobSeen, found: list[Event]) -> None:
        life = self.state.jobs[job.number].lives[-1]
        task = self.state.tasks.get(life)
        is_its = job.restarts == self.restarts[job.number]
        if task is not None and task.state is TaskState.QUEUED and is_its and job.state == "RUNNING":
            self._start(now_s, life, job.nodes, found)

    def _start(self, now_s: float, life: int, nodes: tuple[str, ...], found: list[Event]) -> None:
        places = {self.state.places[node] for node in nodes if node in self.state.places}
        for other in [one.number for one in self.state.tasks.values() if places & set(one.placed)]:
            # Its ranks here are gone, though not yet everywhere: Slurm frees node by node.
            job = self.seen.get(self.lives[other][0])
            code = 0 if job is None else job.code
            finished = other not in self.state.told and code == 0
            self._leave(now_s, other, code or (0 if finished else 1), finished, found)
        why = "Slurm started it"
        self._apply(Asked(now_s, life, nodes, why))  # Slurm asks no node, or says nothing of it.
        self._note(Started(now_s, life, nodes, why), found)

    def _tell(self, now_s: float, life: int, how: EndKind, why: str, found: list[Event]) -> None:
        if life not in self.state.told:
            self._note(EndOrdered(now_s, life, how, why), found)

    def _leave(self, now_s: float, life: int, code: int, finished: bool, found: list[Event]) -> None:
        number, restart = self.lives[life]
        self._note(Left(now_s, life, self._end_of(number, restart).step, code, finished), found)
        again = self.state.jobs[number].lives[-1]
        if again != life:
            seen = self.seen.get(number)
            self.restarts[number] = max(restart + 1, 0 if seen is None else seen.restarts)
            self.lives[again] = (number, self.restarts[number])

    def _note(self, event: Event, found: list[Event]) -> None:
        self._apply(event)
        found.append(event)

    def _apply(self, event: Event) -> None:
        try:
            self.state.apply(event)
        except ValueError as error:
            raise TrafficError(f"what Slurm shows does not follow on what it showed before: {error}") from None
