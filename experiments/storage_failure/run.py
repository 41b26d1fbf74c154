"""What does the failure of a storage node cost clients, until nobody counts on it, and until it is back?

One storage node is cut off, or stops, or falls silent, or dies, under light reads and writes, with the timers that 3FS
has: heartbeats every 10 s, failed after 60 s, chains asked for every 10 s; clients that try for a minute. The cluster
manager is a program on another node. A phase for each effect, and in each a cluster of its own. The load is light,
since what is looked at are times of a minute, and packets cost.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Annotated, Any

import pandas as pd
from pydantic import Field

from experiments.storage_failure.summary import Failed, PrimaryFailed, summarize
from experiments.storage_failure.tables import TABLES
from fabric.config import TimeS
from fabric.failures.config import failure_line, schedule_failures
from fabric.failures.schedule import FailureSchedule
from fabric.model.identity import NodeId
from fabric.model.lanes import Queueing
from fabric.model.network import Fabric
from runs.config import Choices, QueueingConfig, storage_faults
from runs.jobs import started
from runs.phase_lengths import PhaseLengths
from runs.session import Session
from traffic.storage.config import ClusterManagerConfig, StorageConfig
from traffic.storage.job import StorageJob
from traffic.storage.managers.cluster import ManagedCluster, host_faults, hosts_of
from traffic.storage.managers.program import ManagerHistory

Duration = Annotated[TimeS, Field(gt=0, le=3600)]


class Effect(str, Enum):
    """What happens to the storage node."""

    CUT = "cut"
    """Its links are cut; its service goes on, and nobody hears it."""
    STOP = "stop"
    """Its programs stand still (SIGSTOP), and its kernel answers for them."""
    SILENT = "silent"
    """Both."""
    KILL = "kill"
    """Its service dies, and does not come back."""


class PrimaryEffect(str, Enum):
    """What happens to the primary of several cluster managers."""

    KILL = "kill"
    STOP = "stop"
    """Its programs stand still for as long as the storage node is away."""


class StorageFailureConfig(QueueingConfig):
    """A storage node that fails and comes back, once for each effect."""

    queueing: Annotated[Queueing, Field(strict=False)] = Field(
        default=Queueing.LANES, description="Queueing in which all phases play."
    )
    effects: Choices[Effect] = Field(
        default_factory=lambda: [Effect.CUT, Effect.STOP, Effect.KILL],
        description=(
            "What happens to the storage node, a phase each: its links are cut, its programs stop, both (`silent`), or "
            "its service is killed and stays so."
        ),
    )
    victim: str | None = Field(
        default=None,
        description="The storage node that fails. Without it, the first one; it must not be the manager's.",
    )
    clients: Annotated[int, Field(ge=1, le=10_000)] = Field(default=4, description="Compute nodes that are clients.")
    at: Duration = Field(default=15.0, description="When it fails, counted from when clients play.")
    away: Duration = Field(
        default=100.0, description="How long it is away. Longer than a failure takes to be noticed, 50 to 81 s."
    )
    after: Duration = Field(default=60.0, description="How long clients play on after it is back.")
    primary: Annotated[PrimaryEffect, Field(strict=False)] | None = Field(
        default=None,
        description=(
            "What happens to the first cluster manager meanwhile: it is killed or stopped. Without it, nothing. It "
            "must be one of several, on a host of its own."
        ),
    )
    primary_at: Duration = Field(default=40.0, description="When that happens, counted as `at` is.")
    storage: StorageConfig = Field(
        default_factory=lambda: StorageConfig(cluster_manager=ClusterManagerConfig()),
        description="The storage service, its clients and its cluster manager.",
    )

    @property
    def cuts_links(self) -> bool:
        """Whether an effect does."""
        return bool({Effect.CUT, Effect.SILENT} & set(self.effects))

    @property
    def phase_lengths(self) -> PhaseLengths:
        """All phases are as long."""
        return PhaseLengths({"at + away + after": self.at + self.away + self.after})

    def faults(self, fabric: Fabric) -> Iterator[str]:
        """Yield what does not fit the fabric, or cannot be looked at."""
        yield from super().faults(fabric)
        yield from storage_faults(fabric, "one of them fails here")
        if self.failures:
            yield f"failures: {self.experiment} lets a storage node fail by itself; remove them"
        if self.clients > len(fabric.computes):
            yield f"clients: {self.clients} exceed the {len(fabric.computes)} compute nodes; lower it"
        names = [node.name for node in fabric.storages]
        if self.victim is not None and self.victim not in names:
            yield f"victim: {self.victim} is not a storage node of {fabric.name}; choose one of {', '.join(names[:8])}"
        if self.storage.cluster_manager is None:
            yield "storage.cluster_manager: without it nobody hears heartbeats; write `cluster_manager: {}`"
            return
        if not names:
            return
        for fault in host_faults(self.storage.cluster_manager, fabric.storages, fabric):
            yield f"storage.{fault}"
        managers, _ = hosts_of(self.storage.cluster_manager, fabric.storages)
        if (self.victim or next(iter(names), "")) in managers:
            yield f"victim: {self.victim or names[0]} has the cluster manager; choose another, or cluster_manager.host"
        yield from self._faults_of_primary(fabric, managers)

    def _faults_of_primary(self, fabric: Fabric, managers: Sequence[str]) -> Iterator[str]:
        if self.primary is None:
            return
        if len(managers) < 2:
            yield "primary: there is one cluster manager; write storage.cluster_manager.managers: {count: 2}"
        others = {node.name for node in (*fabric.storages, *fabric.computes[: self.clients])}
        if managers and managers[0] in others:
            yield (
                f"primary: {managers[0]} has a service or a client, too; name hosts of their own in "
                f"storage.cluster_manager.managers.hosts, such as {fabric.computes[-1]}"
            )


def run_storage_failure(session: Session, config: StorageFailureConfig) -> dict[str, Any]:
    """Play a phase for each effect; return the summary."""
    session.use_queueing(config.queueing)
    storages = session.live.fabric.storages
    victim = next((node for node in storages if node.name == config.victim), storages[0])
    found = [_phase(session, config, effect, victim) for effect in config.effects]
    return summarize(session, found)


def _phase(session: Session, config: StorageFailureConfig, effect: Effect, victim: NodeId) -> Failed:
    fabric = session.live.fabric
    stage = replace(session.stage, failing_hosts=frozenset({victim.name, *_failing_manager(config)}))
    job = StorageJob(stage, config.storage, fabric.computes[: config.clients])
    schedule = schedule_of(config, effect, victim, fabric)
    with started(session, [job]):
        outcome = session.run_phase(
            effect.value, f"{victim}: {effect.value}", [job], config.at + config.away + config.after, schedule
        )
        verified = job.verify_acknowledged()
        cluster = job.cluster
        assert isinstance(cluster, ManagedCluster), "faults() verified it"
        history = cluster.history()
        counts = job.counts
    failed_s = outcome.began_s + config.at
    back_s = None if effect is Effect.KILL else failed_s + config.away
    changes = changes_of(effect.value, [(one.at_s - session.origin, one.chain) for one in history.transitions])
    session.keep_frame("chain_changes", changes)
    played = outcome.began_s, outcome.began_s + config.at + config.away + config.after
    primary = primary_failed(history, config, outcome.began_s)
    return Failed(effect.value, victim, failed_s, back_s, changes, counts, verified, primary, played)


def _failing_manager(config: StorageFailureConfig) -> list[str]:
    manager = config.storage.cluster_manager
    if config.primary is None or manager is None or manager.managers is None:
        return []
    return manager.managers.hosts[:1]


def primary_failed(history: ManagerHistory, config: StorageFailureConfig, began_s: float) -> PrimaryFailed | None:
    """Return when the first manager failed, and when another one was the primary; None if it did not fail. Managers
    count their seconds from when the job plays."""
    if config.primary is None:
        return None
    first = _failing_manager(config)
    begun = [span.begin_s for name, spans in (history.trusted or {}).items() if name not in first for span in spans]
    what = {PrimaryEffect.KILL: "dies", PrimaryEffect.STOP: "stops"}[config.primary]
    return PrimaryFailed(what, began_s + config.primary_at, began_s + min(begun, default=math.nan))


def schedule_of(config: StorageFailureConfig, effect: Effect, victim: NodeId, fabric: Fabric) -> FailureSchedule:
    """Return what fails in the phase of an effect."""
    by_effect: dict[Effect, dict[str, Any]] = {
        Effect.CUT: {"storage": victim.name, "for": config.away},
        Effect.STOP: {"process": victim.name, "job": "storage", "effect": "stop", "for": config.away},
        Effect.SILENT: {"silent": victim.name, "for": config.away},
        Effect.KILL: {"process": victim.name, "job": "storage", "effect": "kill"},
    }
    lines: list[dict[str, Any]] = [{"at": config.at, **by_effect[effect]}]
    for host in _failing_manager(config):
        stop = {"for": config.away} if config.primary is PrimaryEffect.STOP else {}
        assert config.primary is not None, "a manager fails"
        done = {"process": host, "job": "storage", "effect": config.primary.value, **stop}
        lines.append({"at": config.primary_at, **done})
    return schedule_failures([failure_line(line) for line in lines], fabric, config.seed)


@dataclass(frozen=True)
class _Change:
    phase: str
    at_s: float
    chain: int
    version: int
    target: str
    state: str


def changes_of(phase: str, history: list[tuple[float, Any]]) -> pd.DataFrame:
    """Return the rows of ``chain_changes`` of a phase, from the times of changes and the chains as they then were."""
    rows = [
        _Change(phase, at_s, chain.number, chain.version, str(target), state.name.lower())
        for at_s, chain in history
        for target, state in chain.targets
    ]
    return pd.DataFrame([vars(row) for row in rows], columns=list(TABLES["chain_changes"].columns))
