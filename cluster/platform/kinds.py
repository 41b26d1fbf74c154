"""The platform as a kind of job: its table, and what is measured and said of it."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from cluster.platform.account import account
from cluster.platform.job import PlatformConfig, PlatformJob
from cluster.platform.programs import EVENTS
from cluster.slurm.configuration import refusals
from cluster.slurm.installed import why_no_slurm
from cluster.slurm.job import SlurmJob
from fabric.model.lanes import ServiceLevel
from fabric.model.network import Fabric
from fabric.tables import NO_UNIT, Column, Table, common
from traffic.job import Job, Stage
from traffic.job_kind import JobKind, Measures, Nodes
from traffic.measures import JobRows

PLATFORM_EVENTS = Table(
    "One row per event of the platform's journal.",
    {
        **common("at_s", "phase", "job"),
        "event": Column(
            "category",
            NO_UNIT,
            "submitted, started, finished, left, suspend, restart, cancel, fail, node_out or node_back; up: Slurm's "
            "nodes are idle for the first time in a phase",
        ),
        "number": Column("int64", NO_UNIT, "number of the user's job; 0: of a node"),
        "life": Column("int64", NO_UNIT, "number of the life; 0: of a node"),
        "nodes": Column("category", NO_UNIT, "nodes that it got, by rank, or the node"),
        "why": Column("category", NO_UNIT, "reason, in words"),
    },
)


def _numbers(rows: JobRows) -> dict[str, float]:
    """Return how many events of each kind there were."""
    events = rows.table(EVENTS)
    return {f"events.{name}": float(count) for name, count in events["event"].value_counts().items()}


def _account(rows: JobRows) -> str:
    """Return what came to pass."""
    return account(rows.table(EVENTS), rows.windows[0][0], len(rows.config.jobs)) if rows.windows else ""


def _commands(config: PlatformConfig) -> tuple[str, ...]:
    return tuple(shlex.join(job.command) for job in config.jobs)


def _make(stage: Stage, config: PlatformConfig, nodes: Nodes, *, level: ServiceLevel, name: str) -> Job:
    """Make the job of the engine that a config names."""
    if config.engine == "slurm":
        return SlurmJob(stage, config, nodes, level, name)
    return PlatformJob(stage, config, nodes, level, name)


def _faults(config: PlatformConfig, fabric: Fabric) -> Iterator[str]:
    """Yield which jobs ask for more nodes than there can be, and what Slurm cannot do."""
    if config.engine == "slurm":
        if why := why_no_slurm():
            yield f"engine: {why}"
        yield from refusals(config.policy, config.placement, config.timers)
    most = len(fabric.computes) - 1
    for place, job in enumerate(config.jobs):
        if job.nodes > most:
            yield f"jobs.{place}.nodes: {job.nodes}, but {fabric.name} has {most} beside the scheduler's; lower it"


_TOLD = {
    "events.submitted": "submitted",
    "events.finished": "finished",
    "events.suspend": "suspended",
    "events.restart": "began again",
    "events.node_out": "nodes taken out",
}

PLATFORM = JobKind(
    name="platform",
    meaning="A scheduler on its first node, agents on the others, and the jobs that users submit to it.",
    config=PlatformConfig,
    level=ServiceLevel.CONTROL,
    least_nodes=2,
    make=_make,
    measures=Measures(_numbers, speeds=(), told=_TOLD, account=_account),
    faults=_faults,
    commands=_commands,
    tables={EVENTS: PLATFORM_EVENTS},
    preload=("cluster.platform.programs", "cluster.slurm.programs"),
)
