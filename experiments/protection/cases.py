"""What plays in a phase: a program alone, or HFReduce beside a load of others and of storage."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from experiments.protection.config import LoadPoint, ProtectionConfig
from fabric.config import changed
from fabric.model.lanes import Queueing
from fabric.units import exact
from runs.cases import Case, axis
from runs.jobs import hfreduce_flows, hfreduce_ranks, started
from runs.session import Session
from runs.study import Found, Outcome, SameJobs
from traffic.collectives.hfreduce import HFReduceJob
from traffic.flows.background import BackgroundJob
from traffic.job import Job
from traffic.storage.job import StorageJob

AnyFound = Found[Any, ProtectionConfig]


@dataclass(frozen=True)
class Alone(Case, name="{program}_alone", title="{program} alone"):
    """A program alone, in the first queueing."""

    queueing: Queueing = axis(lambda config: config.queueings[:1])
    program: str = axis(lambda _: ("hfreduce", "storage"))


@dataclass(frozen=True)
class Beside(Case, title="{point}, in {queueing}", alone={"hfreduce": "hfreduce_alone", "read": "storage_alone"}):
    """What plays beside HFReduce, in which queueing."""

    queueing: Queueing = axis("queueings")
    point: LoadPoint = axis("points")

    @property
    def name(self) -> str:
        """The name of its phase, in which a load has its dot, as in all results of this experiment."""
        return f"{self.queueing.value}_other_{exact(self.point.other_load)}_depth_{self.point.storage_depth}"


def loads(points: str) -> Callable[[AnyFound], list[Outcome[Any]]]:
    """A function that returns the cases of the loads at a key of the config, each in all queueings."""
    return lambda found: [
        found.of(Beside(queueing, point).name)
        for point in getattr(found.config, points)
        for queueing in found.config.queueings
    ]


def _storage(session: Session, config: ProtectionConfig, depth: int) -> StorageJob:
    own = changed(config, {"storage.dataloader.depth": depth})
    return StorageJob(session.stage, own.storage, session.live.fabric.computes)


def _jobs(session: Session, config: ProtectionConfig) -> list[Job]:
    ranks = hfreduce_ranks(session, config.hfreduce, config.rank_order)
    hfreduce = HFReduceJob(session.stage, config.hfreduce, ranks)
    storage = _storage(session, config, config.storage.dataloader.depth)
    return [hfreduce, storage, BackgroundJob(session.stage, config.background, session.live.fabric.computes)]


def _play(session: Session, config: ProtectionConfig, case: Alone | Beside, jobs: Sequence[Any]) -> dict[str, float]:
    """Play a case, and return what HFReduce sends over its size. Others are halted first, or the last step of a starved
    HFReduce would take a minute."""
    hfreduce, storage, others = jobs
    session.use_queueing(case.queueing)
    playing, extra = [job for job in jobs if isinstance(case, Alone) and job.level.label == case.program], []
    if isinstance(case, Beside):
        others.load, depth = case.point.other_load or others.load, case.point.storage_depth
        if depth not in (0, config.storage.dataloader.depth):
            storage = _storage(session, config, depth)
            extra = [storage]
        playing = [*([others] if case.point.other_load else []), hfreduce, *([storage] if depth else [])]
    with started(session, extra):
        session.run_phase(case.name, case.title, playing, config.phase_time)
    return {"hfreduce.sent_over_size": sum(share for _, _, share in hfreduce_flows(hfreduce))}


PLAY = SameJobs(_jobs, _play)
