"""Jobs on their way to Slurm: submitted when their time has come, and again if Slurm did not take them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from cluster.platform.events import JobSpec
from cluster.platform.programs import Submission
from cluster.slurm.answers import SlurmJobSeen
from cluster.slurm.commands import Unanswered
from cluster.slurm.watching import ENDED
from fabric.errors import TrafficError

MOST_TRIES = 5
"""So often a job is submitted while slurmctld answers what else it is asked."""


@dataclass
class OnItsWay:
    """A job that Slurm has not taken, as far as is known: how often it was submitted, and why it was not taken."""

    spec: JobSpec
    tries: int = 0
    why: str = ""


class Submitting:
    """The jobs of a phase. ``submit``: submits (number, spec), and returns Slurm's number; raises Unanswered."""

    def __init__(self, submit: Callable[[int, JobSpec], int]) -> None:
        self._submit = submit
        self.waiting: list[Submission] = []
        """Those whose time has not come, or who wait for the cluster to be up; the next one first."""
        self.on_their_way: dict[int, OnItsWay] = {}
        """By number those that Slurm has not taken, as far as is known."""
        self.identities: dict[int, int] = {}
        """By number Slurm's numbers of those that it has taken."""
        self._again: set[int] = set()
        """Those that were submitted more than once, so that copies may exist."""

    def begin(self, submissions: Sequence[Submission]) -> None:
        """Begin a phase."""
        self.waiting = sorted(submissions, key=lambda one: one.at_s)

    def due(self, since_s: float) -> Iterator[JobSpec]:
        """Yield those whose time has come so many seconds after the start, each once."""
        while self.waiting and since_s >= self.waiting[0].at_s:
            yield self.waiting.pop(0).spec

    def add(self, number: int, spec: JobSpec) -> None:
        """Let :meth:`submit` submit a job."""
        self.on_their_way[number] = OnItsWay(spec)

    def seen(self, jobs: Sequence[SlurmJobSeen]) -> tuple[list[SlurmJobSeen], list[int]]:
        """Take in which jobs Slurm has. Return them without copies, and Slurm's numbers of the copies that have not
        ended: whoever did not hear that a job was taken has submitted it once more."""
        first: dict[int, SlurmJobSeen] = {}
        copies = []
        for job in sorted(jobs, key=lambda one: one.identity):
            if job.number in first:
                copies += [job.identity] if job.number in self._again and job.state not in ENDED else []
                continue
            first[job.number] = job
            if self.on_their_way.pop(job.number, None) is not None:
                self.identities[job.number] = job.identity
        return list(first.values()), copies

    def submit(self) -> None:
        """Submit what Slurm has not taken, as of the last look. Raises Unanswered, and TrafficError for a job that
        Slurm does not take at all."""
        for number, one in list(self.on_their_way.items()):
            one.tries += 1
            if one.tries > 1:
                self._again.add(number)
            try:
                self.identities[number] = self._submit(number, one.spec)
            except Unanswered as error:
                one.why = str(error)
                if one.tries < MOST_TRIES:
                    raise
                raise TrafficError(
                    f"job {one.spec.name}: Slurm answers, and has not taken it {one.tries} times: {error}"
                ) from error
            del self.on_their_way[number]
