"""What happens in a phase, step by step: a storage node comes back, or several are restarted in turn.

The cluster's timers run for the whole phase, minutes; load plays only while it has something to show.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from experiments.resync.config import ResyncRunConfig, Returns, Variant
from fabric.errors import TrafficError
from fabric.model.identity import NodeId
from runs.decided_jobs import DecidedJobs, JobState
from traffic.job import Job
from traffic.storage.apart import ClientsJob, ClusterJob
from traffic.storage.chains import ChainTable
from traffic.storage.managers.cluster import ManagedCluster

_LOOK_EVERY_S = 0.5


@dataclass
class Drill:
    """Decides when load plays. ``marks``: when what happened (``time.monotonic()``)."""

    cluster: ClusterJob
    clients: ClientsJob
    patience_s: float
    marks: dict[str, float] = field(default_factory=dict)

    @property
    def manager(self) -> ManagedCluster:
        """The cluster manager."""
        found = self.cluster.storage.cluster
        assert found is not None, "the config has one"
        return found

    @property
    def _look_every_s(self) -> float:
        """How often it looks at the routing: no change may escape it."""
        config = self.cluster.storage.config.cluster_manager
        assert config is not None, "the config has one"
        return min(_LOOK_EVERY_S, config.chains_every)

    def decide(self, jobs: DecidedJobs) -> None:
        """Play the drill; the phase is over then."""
        try:
            self.play(jobs)
        finally:
            self.cluster.over.set()

    def play(self, jobs: DecidedJobs) -> None:
        """Play it."""
        raise NotImplementedError

    def mark(self, name: str) -> None:
        """Note that something happens now."""
        self.marks[name] = time.monotonic()

    def wait(self, jobs: DecidedJobs, seconds: float) -> None:
        """Let time pass."""
        if not jobs.wait_until(jobs.now_s + seconds):
            raise TrafficError("the phase ended before its drill was over")

    def wait_until(self, jobs: DecidedJobs, what: str, holds: Callable[[ChainTable], bool]) -> None:
        """Let time pass until the routing is so. Raises TrafficError if it does not come to be so in time."""
        ends_s = jobs.now_s + self.patience_s
        while not holds(table := self.manager.table):
            if jobs.now_s > ends_s:
                shown = "; ".join(f"{chain} version {chain.version}" for chain in table.chains[:4])
                raise TrafficError(f"waited {self.patience_s:g} s for {what}; chains are: {shown}; raise patience")
            self.wait(jobs, self._look_every_s)

    def wait_without(self, jobs: DecidedJobs, node: NodeId) -> None:
        """Let time pass until no chain is written on a node."""
        what = f"all chains to go on without {node}"
        self.wait_until(jobs, what, lambda table: all(node not in chain.written for chain in table.chains))

    def wait_whole(self, jobs: DecidedJobs) -> None:
        """Let time pass until all targets of all chains serve."""
        replicas = self.cluster.storage.config.replicas
        self.wait_until(jobs, "all targets to serve", lambda table: all(len(c.nodes) == replicas for c in table.chains))

    def begin(self, jobs: DecidedJobs, *names: str) -> None:
        """Begin the load of jobs that do not play."""
        for name in names:
            jobs.play(name)

    def end(self, jobs: DecidedJobs, *names: str) -> None:
        """End the load of jobs, and wait until it has ended."""
        for name in names:
            jobs.halt(name)
        jobs.reach(JobState.READY, *names)


@dataclass
class Return(Drill):
    """A storage node comes back as a variant says; the load of training and of reads plays from when nobody counts on
    it, a little before it is brought up to date, until a while after it has been."""

    training: Job | None = None
    victim: NodeId | None = None
    variant: Variant = field(default_factory=Variant)
    config: ResyncRunConfig | None = None

    def play(self, jobs: DecidedJobs) -> None:
        """Play it."""
        assert self.training is not None and self.victim is not None and self.config is not None
        jobs.take(self.clients)
        jobs.take(self.training)
        if self.variant.returns is Returns.EMPTY:
            self._let_it_return_empty(jobs, self.victim)
        else:
            self._let_it_return_with_its_disks(jobs, self.victim)
        self.wait_whole(jobs)
        self.mark("whole")
        self.wait(jobs, self.config.after)
        self.end(jobs, self.training.name, self.clients.name)
        if self.variant.again:
            self.cluster.storage.begin_service_anew(self.victim)
            self.wait_without(jobs, self.victim)
            self.wait_whole(jobs)
            self.mark("whole_again")
            if self.variant.returns is Returns.SILENT:  # Clients must know of the chains when they read back.
                self.begin(jobs, self.clients.name)
                self.wait(jobs, self.config.after)
                self.end(jobs, self.clients.name)

    def _let_it_return_empty(self, jobs: DecidedJobs, victim: NodeId) -> None:
        assert self.config is not None and self.training is not None
        self.wait(jobs, self.config.at)
        self.cluster.storage.begin_service_anew(victim, with_empty_disks=True)
        self.mark("back")
        self.wait_without(jobs, victim)
        self.begin(jobs, self.clients.name, self.training.name)
        self.mark("loaded")

    def _let_it_return_with_its_disks(self, jobs: DecidedJobs, victim: NodeId) -> None:
        """It is cut off by the phase's failures; clients save checkpoints all the time, rarely."""
        assert self.config is not None and self.training is not None
        self.wait(
            jobs, min(self.config.at, 2 * self.config.sampled_every_s)
        )  # The first sample is of a fabric at rest.
        self.begin(jobs, self.clients.name)
        self.wait(jobs, max(0.0, self.config.at - jobs.now_s))
        self.wait_without(jobs, victim)
        self.mark("noticed")
        self.wait(jobs, max(0.0, self.config.at + self.config.away - jobs.now_s))
        self.mark("back")
        is_it = f"{victim} to be brought up to date"
        self.wait_until(jobs, is_it, lambda table: any(victim in chain.written for chain in table.chains))
        self.begin(jobs, self.training.name)


@dataclass
class Rolling(Drill):
    """Services are restarted one after another, each once the one before it serves again; clients read all the time."""

    restarted: Sequence[NodeId] = ()
    gap_s: float = 0.0

    def play(self, jobs: DecidedJobs) -> None:
        """Play it."""
        jobs.take(self.clients)
        self.begin(jobs, self.clients.name)
        for node in self.restarted:
            self.wait(jobs, self.gap_s)
            self.mark(node.name)
            self.cluster.storage.begin_service_anew(node)
            self.wait_without(jobs, node)
            self.wait_whole(jobs)
        self.wait(jobs, self.gap_s)
        self.end(jobs, self.clients.name)
