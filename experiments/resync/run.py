"""What does it cost to bring a storage node up to date that comes back, and who pays?

A phase for each variant: a storage node comes back with empty disks, or after it was silent while others wrote; chains
list their targets in one order or another; what it is sent shares the lane of reads, has one apart, or is paced. An
allreduce and reads play meanwhile. Then services are restarted in turn, under light reads.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from experiments.resync.config import ResyncRunConfig, Returns, Variant
from experiments.resync.drills import Drill, Return, Rolling
from experiments.resync.rows import attempts_of, bytes_of, changes_of, nic_bytes, shares_of
from experiments.resync.summary import Returned, Rolled, summarize
from fabric.failures.config import failure_line, schedule_failures
from fabric.failures.schedule import FailureSchedule
from fabric.model.identity import NodeId
from fabric.model.network import Fabric
from runs.jobs import started
from runs.session import Session
from traffic.collectives.hfreduce import HFReduceJob
from traffic.storage.apart import ClientsJob, ClusterJob, StorageInParts
from traffic.storage.config import StorageConfig

_LOOKED_AT_S = 0.1
"""A phase lasts until its drill is over, and this at least."""


def run_resync(session: Session, config: ResyncRunConfig) -> dict[str, Any]:
    """Play a phase for each variant and for rolling restarts; return the summary."""
    session.use_queueing(config.queueing)
    returned = [_return(session, config, name, variant) for name, variant in config.variants.items()]
    rolled = (
        [] if config.rolling is None else [_roll(session, config, check) for check in config.rolling.check_read_chain]
    )
    lanes = session.live.emulation.lane_plan
    hosts = [str(port) for port, _ in session.live.fabric.directed_ports() if not port.node.is_switch]
    levels = {level.label: lanes.lane_of(level).name for level in config.queues.levels}
    return summarize(session, returned, rolled, nic_bytes(session.table("ports"), hosts, levels, session.phases))


def _storage_job(session: Session, config: ResyncRunConfig, storage: StorageConfig, failing: bool) -> StorageInParts:
    fabric = session.live.fabric
    servers = config.servers(fabric)
    hosts = frozenset({servers[config.victim].name} if failing else ())
    stage = replace(session.stage, failing_hosts=hosts)
    return StorageInParts(stage, storage, fabric.computes, servers=servers)


def _return(session: Session, config: ResyncRunConfig, name: str, variant: Variant) -> Returned:
    fabric = session.live.fabric
    is_silent = variant.returns is Returns.SILENT
    storage = _storage_job(session, config, config.storage_of(variant), is_silent)
    training = HFReduceJob(session.stage, config.hfreduce, fabric.computes[: config.trainers])
    victim = config.servers(fabric)[config.victim]
    cluster = ClusterJob(storage, _longest_s(config))
    drill = Return(cluster, ClientsJob(storage), config.patience, {}, training, victim, variant, config)
    with started(session, [cluster, training]):
        schedule = silence(config, victim, fabric) if is_silent else None
        outcome = session.run_phase(name, f"{victim} comes back: {name}", [cluster, drill], _LOOKED_AT_S, schedule)
        verified = storage.verify_acknowledged()
        _keep(session, name, drill)
        shares = shares_of(name, storage, victim, is_empty=not is_silent)
        session.keep_frame("resync_shares", shares)
    return Returned(
        name, variant, victim, _times(session, drill), outcome, shares, verified, config.manager.polled_every
    )


def _roll(session: Session, config: ResyncRunConfig, check: bool) -> Rolled:
    rolling = config.rolling
    assert rolling is not None, "the caller has looked"
    name = "rolling_checked" if check else "rolling_unchecked"
    one = config.storage_of(Variant())
    storage = one.model_copy(
        update={
            "dataloader": one.dataloader.model_copy(update={"pause": rolling.pause, "depth": 1, "batch": 1}),
            "service": one.service.model_copy(update={"check_read_chain": check}),
        }
    )
    job = _storage_job(session, config, storage, failing=False)
    cluster = ClusterJob(job, rolling.nodes * _longest_s(config))
    restarted = config.servers(session.live.fabric)[: rolling.nodes]
    drill = Rolling(cluster, ClientsJob(job), config.patience, {}, restarted, rolling.gap)
    words = "services refuse reads by another version" if check else "reads by any version"
    with started(session, [cluster]):
        outcome = session.run_phase(
            name, f"{rolling.nodes} nodes restarted in turn; {words}", [cluster, drill], _LOOKED_AT_S
        )
        _keep(session, name, drill)
    return Rolled(name, check, _times(session, drill), outcome)


def _longest_s(config: ResyncRunConfig) -> float:
    """Return for how long a phase may wait in all: for each thing that it waits for."""
    return config.at + config.away + config.after + 5 * config.patience


def silence(config: ResyncRunConfig, victim: NodeId, fabric: Fabric) -> FailureSchedule:
    """Return the failure that cuts a storage node off for a while."""
    line = failure_line({"storage": victim.name, "at": config.at, "for": config.away})
    return schedule_failures([line], fabric, config.seed)


def _times(session: Session, drill: Drill) -> dict[str, float]:
    return {name: at - session.origin for name, at in drill.marks.items()}


def _keep(session: Session, phase: str, drill: Drill) -> None:
    """Keep the rows of the experiment's own tables that every phase has."""
    storage, history = drill.cluster.storage, drill.manager.history()
    session.keep_frame("resync_attempts", attempts_of(phase, storage.resyncs, session.origin))
    session.keep_frame("lane_bytes", bytes_of(phase, storage, history.counts))
    changes = [(one.at_s - session.origin, one.chain) for one in history.transitions]
    session.keep_frame("routing_changes", changes_of(phase, changes))
