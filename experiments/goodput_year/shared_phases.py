"""The phases of what all nodes share: a spine switch that fails under an allreduce, and a storage node that is lost
under a training that reads."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from cluster.simulation.measured import SpineCost
from experiments.goodput_year.config import GoodputYearConfig, StorageLossConfig
from experiments.goodput_year.places import spines_above
from experiments.goodput_year.shared_costs import SPINE, STORAGE_LOSS, StorageLoss, spine_cost, waited_s
from experiments.resync.drills import Drill
from fabric.failures.config import failure_line, schedule_failures
from fabric.model.identity import NodeId
from runs.decided_jobs import DecidedJobs
from runs.jobs import started
from runs.session import Session
from traffic.collectives.hfreduce import HFReduceJob
from traffic.storage.apart import ClientsJob, ClusterJob, StorageInParts

_LOOKED_AT_S = 0.1
_AT_S = 1.0


def play_spine(session: Session, config: GoodputYearConfig) -> SpineCost | None:
    """Play an allreduce over all compute nodes from under which a spine switch is taken; None if that is not played."""
    if config.spine is None:
        return None
    fabric, one = session.live.fabric, config.spine
    spines = spines_above(fabric, fabric.computes[0])
    line = failure_line({"switch": spines[0], "at": one.time})
    session.use_routing(one.routing, SPINE)
    try:
        job = HFReduceJob(session.stage, one.hfreduce, fabric.computes)
        with started(session, [job]):
            session.warm_up(job)
            schedule = schedule_failures([line], fabric, config.seed)
            title = f"an allreduce over {len(fabric.computes)} nodes, and spine {spines[0]} fails"
            outcome = session.run_phase(SPINE, title, [job], 2 * one.time, schedule)
    finally:
        session.use_routing(config.routing)
    steps = session.table("steps")
    own = steps[(steps["phase"] == SPINE) & (steps["job"] == job.name)].sort_values("started_s")
    failed_s = min(change.done_s for change in outcome.faults.changes) - session.origin
    return spine_cost(list(zip(own["started_s"], own["ended_s"], strict=True)), failed_s, len(spines), one.time)


# A storage node ------------------------------------------------------------------------------------------------------


@dataclass
class _Loss(Drill):
    """Nodes read; a storage node is cut off by the phase's failures, and is back with empty disks."""

    victim: NodeId | None = None
    config: StorageLossConfig | None = None

    def play(self, jobs: DecidedJobs) -> None:
        """Play it."""
        assert self.victim is not None and self.config is not None
        jobs.take(self.clients)
        self.wait(jobs, _AT_S)
        self.begin(jobs, self.clients.name)
        self.wait(jobs, self.config.at)
        self.wait_without(jobs, self.victim)
        self.mark("out")
        self.wait(jobs, max(0.0, _AT_S + self.config.at + self.config.away - jobs.now_s))
        self.mark("back")
        self.cluster.storage.begin_service_anew(self.victim, with_empty_disks=True)
        self.wait_whole(jobs)
        self.mark("whole")
        self.wait(jobs, self.config.after)
        self.end(jobs, self.clients.name)


def play_storage_loss(session: Session, config: GoodputYearConfig) -> StorageLoss | None:
    """Play a training that reads while a storage node is lost and comes back; None if that is not played."""
    one = config.storage_loss
    if one is None:
        return None
    fabric, patience = session.live.fabric, config.storms.patience
    victim = fabric.storages[0]
    changed = {name: getattr(config.storms.storage, name).model_copy(update={"share": 0.0})
               for name in ("restore", "checkpoint")}  # fmt: skip
    asked = config.storms.storage.model_copy(update={**changed, "dataloader": one.dataloader})
    stage = replace(session.stage, failing_hosts=frozenset({victim.name}))
    storage = StorageInParts(stage, asked, fabric.computes)
    cluster = ClusterJob(storage, 4 * patience)
    drill = _Loss(cluster, ClientsJob(storage), patience, {}, victim, one)
    line = {"storage": victim.name, "at": _AT_S + one.at, "for": one.away}
    schedule = schedule_failures([failure_line(line)], fabric, config.seed)
    with started(session, [cluster]):
        title = f"{len(fabric.computes)} nodes read, and {victim} is lost and comes back empty"
        outcome = session.run_phase(STORAGE_LOSS, title, [cluster, drill], _LOOKED_AT_S, schedule)
        resync_bytes = sum(attempt.size_bytes for attempt in storage.resyncs)
    marks = {name: at_s - session.origin for name, at_s in drill.marks.items()}
    failed_s = min(change.done_s for change in outcome.faults.changes) - session.origin
    batches = session.table("loader_batches")
    batches = batches[batches["phase"] == STORAGE_LOSS]
    waits = list(zip(batches["due_s"], batches["started_s"].fillna(math.inf), strict=True))
    return StorageLoss(
        lost_s=waited_s(waits, failed_s, marks["back"]),
        resync_s=waited_s(waits, marks["back"], marks["whole"]),
        failed_s=failed_s,
        out_s=marks["out"],
        back_s=marks["back"],
        whole_s=marks["whole"],
        resync_bytes=resync_bytes,
        failed_reads=int((batches["ready_s"].notna() & (batches["size_bytes"] == 0)).sum()),
    )
