"""The phases of storage: all compute nodes restore, or write, a checkpoint at once; restores beside a resync."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from experiments.goodput_year.config import StormsConfig
from experiments.goodput_year.storms import Storm, beside, storms_of, written
from experiments.resync.drills import Drill
from experiments.resync.rows import attempts_of
from fabric.errors import TrafficError
from fabric.model.identity import NodeId
from fabric.model.network import Fabric
from runs.decided_jobs import DecidedJobs, JobState
from runs.jobs import started
from runs.session import Session
from traffic.metrics import payload_fraction
from traffic.storage.apart import ClientsJob, ClusterJob, StorageInParts
from traffic.storage.config import StorageConfig
from traffic.storage.finite import FiniteStorageJob
from traffic.storage.job import StorageJob

RESTORE, WRITE, RESYNC = "restore", "write", "resync"
"""The phases."""
_AT_S = 1.0
_LOOKED_AT_S = 0.1


def most_Bps(fabric: Fabric) -> float:  # noqa: N802 - bytes, not bits
    """Return what the NICs of all storage nodes carry as payload in each direction, in bytes per second."""
    nics = sum(len(fabric.nics_of[node]) for node in fabric.storages)
    return nics * fabric.nic_rate_bps / 8 * payload_fraction(fabric.mtu_bytes)


def play_storms(session: Session, config: StormsConfig) -> list[Storm]:
    """Play all phases; return the storms that they had."""
    most = most_Bps(session.live.fabric)
    return [
        *_restore(session, config, most),
        *_write(session, config, most),
        *_restores_beside_resync(session, config, most),
    ]


def only(config: StorageConfig, load: str, managed: bool = False) -> StorageConfig:
    """Return a storage config with one load of ``restore`` and ``checkpoint``, all else off."""
    shares = {name: 1.0 if name == load else 0.0 for name in ("restore", "checkpoint", "dataloader")}
    changed = {name: getattr(config, name).model_copy(update={"share": share}) for name, share in shares.items()}
    return config.model_copy(update={**changed, **({} if managed else {"cluster_manager": None})})


def operations_of(session: Session, phase: str) -> pd.DataFrame:
    """Return the rows of operations of a phase."""
    operations = session.table("operations")
    return operations[operations["phase"] == phase]


def _restore(session: Session, config: StormsConfig, most: float) -> list[Storm]:
    computes = session.live.fabric.computes
    job = FiniteStorageJob(session.stage, only(config.storage, "restore"), computes)
    with started(session, [job]):
        session.run_phase(RESTORE, f"{len(computes)} nodes restore at once", [job], 0.0)
    return storms_of(RESTORE, operations_of(session, RESTORE), most)


def _write(session: Session, config: StormsConfig, most: float) -> list[Storm]:
    computes, storage = session.live.fabric.computes, only(config.storage, "checkpoint")
    job = StorageJob(session.stage, storage, computes)
    with started(session, [job]):
        session.run_phase(WRITE, f"{len(computes)} nodes write a checkpoint at once", [job], config.write_time)
    load_s = session.phases[-1].phase.load_s
    found = written(WRITE, operations_of(session, WRITE), most, storage.replicas, load_s)
    if found is None:
        raise TrafficError(f"{WRITE}: nothing was written in {config.write_time:g} s; raise storms.write_time")
    return [found]


@dataclass
class _Storms(Drill):
    """A storage node comes back with empty disks, and all clients restore again and again until it has all."""

    victim: NodeId | None = None
    every_s: float = 1.0

    def play(self, jobs: DecidedJobs) -> None:
        """Play it."""
        assert self.victim is not None
        jobs.take(self.clients)
        self.wait(jobs, _AT_S)
        self.cluster.storage.begin_service_anew(self.victim, with_empty_disks=True)
        self.mark("back")
        self.wait_without(jobs, self.victim)
        replicas = self.cluster.storage.config.replicas
        ends_s = jobs.now_s + self.patience_s
        while not all(len(chain.nodes) == replicas for chain in self.manager.table.chains):
            if jobs.now_s > ends_s:
                raise TrafficError(f"waited {self.patience_s:g} s for all targets to serve; raise storms.patience")
            next_s = jobs.now_s + self.every_s
            self._restore(jobs)
            self.wait(jobs, max(0.0, next_s - jobs.now_s))
        self.mark("whole")

    def _restore(self, jobs: DecidedJobs) -> None:
        """Let all clients restore, until the last one has all."""
        self.begin(jobs, self.clients.name)
        jobs.reach(JobState.PLAYING, self.clients.name)
        self.cluster.storage.finish_clients(self.patience_s)
        self.end(jobs, self.clients.name)


def _restores_beside_resync(session: Session, config: StormsConfig, most: float) -> list[Storm]:
    fabric = session.live.fabric
    storage = StorageInParts(session.stage, only(config.storage, "restore", managed=True), fabric.computes)
    cluster = ClusterJob(storage, 4 * config.patience)
    victim = fabric.storages[0]
    drill = _Storms(cluster, ClientsJob(storage), config.patience, {}, victim, config.storm_time)
    with started(session, [cluster]):
        title = f"{len(fabric.computes)} nodes restore again and again while {victim} is brought up to date"
        session.run_phase(RESYNC, title, [cluster, drill], _LOOKED_AT_S)
        attempts = attempts_of(RESYNC, storage.resyncs, session.origin)
    return beside(storms_of(RESYNC, operations_of(session, RESYNC), most), attempts)
