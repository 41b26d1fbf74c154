"""The platform as a kind of job: its table, and what is measured and said of it."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from cluster.platform import old_words
from cluster.platform.account import account
from cluster.platform.config import PlatformConfig
from cluster.platform.costs_by_events import costs_by_events
from cluster.platform.event_rows import EVENTS
from cluster.platform.job import PlatformJob
from cluster.platform.programs import HEALTH, JOBS
from cluster.platform.proof import STEPS, JobProof, StepLine, in_words, most_across, proofs
from cluster.platform.reasons import KINDS, blamed_by, kind_of
from cluster.platform.training_sums import sum_of
from cluster.slurm.configuration import refusals
from cluster.slurm.installed import why_no_slurm
from cluster.slurm.job import SlurmJob
from fabric.measures import Better, Measure
from fabric.model.lanes import ServiceLevel
from fabric.model.network import Fabric
from fabric.records.packed import names_cell
from fabric.suggestions import one_of
from fabric.tables import NO_UNIT, Column, Table, common
from traffic.job import Job, Stage
from traffic.job_kind import DataOfJob, JobKind, Measures, Nodes
from traffic.measures import JobRows

if TYPE_CHECKING:
    pass


PLATFORM_EVENTS = Table(
    "One row per event of the platform's journal.",
    {
        **common("at_s", "phase", "job"),
        "event": Column(
            "category",
            NO_UNIT,
            "submitted, asked (its nodes whether they take it), requeued (some did not), started, saved, finished, "
            "left, suspend, restart, cancel, timeout (its limit), fail, node_out, node_back or validate (a user "
            "asked for it); up: Slurm's nodes are idle for the first time in a phase",
        ),
        "number": Column("int64", NO_UNIT, "number of the user's job; 0: of a node"),
        "life": Column("int64", NO_UNIT, "number of the life; 0: of a node"),
        "nodes": Column("category", NO_UNIT, "nodes that it got, by rank, or the node or nodes"),
        "why": Column("category", NO_UNIT, "reason, in words"),
        "reason": Column(
            "category",
            NO_UNIT,
            f"kind of the reason: {one_of(KINDS)}",
            absent=lambda events: [kind_of(why) for why in old_words.reasons(events)],
        ),
        "blamed": Column(
            "category",
            NO_UNIT,
            "node or nodes for which a life had to end, or went back into the queue; empty: none",
            absent=lambda events: [names_cell(blamed_by(why)) for why in old_words.reasons(events)],
        ),
        "earlier_s": Column(
            "float64",
            "s",
            "how long before `at_s` a saved step was complete that was reported late, or a silent node that is taken "
            "out was heard last; 0: of others",
            absent=old_words.earlier_s,
        ),
        "step": Column(
            "int64",
            NO_UNIT,
            "step that was saved, or that the last checkpoint of a life has that left; -1: none",
            absent=old_words.steps,
        ),
    },
)
PLATFORM_HEALTH = Table(
    "One row per check of a validation.",
    {
        **common("at_s", "phase", "job"),
        "occasion": Column("category", NO_UNIT, "why it was validated: before_job, weekly, repair, demand or stall"),
        "node": Column("category", NO_UNIT, "node that was checked"),
        "check": Column(
            "category", NO_UNIT, "answer, link, speed, counters, gpu, memory, allreduce, storage or bandwidth"
        ),
        "verdict": Column("category", NO_UNIT, "passed, failed or unknown"),
        "measured": Column("float64", NO_UNIT, "what was measured, in `unit`; missing: not measured"),
        "limit": Column("float64", NO_UNIT, "the least or most that passes, in `unit`"),
        "unit": Column("category", NO_UNIT, "unit of both; empty: a count"),
        "reason": Column("category", NO_UNIT, "why it did not pass, in words"),
    },
)

PLATFORM_JOBS = Table(
    "One row per job that users submitted in a phase.",
    {
        **common("phase", "job"),
        "number": Column("int64", NO_UNIT, "number of the user's job"),
        "name": Column("category", NO_UNIT, "what the user calls it"),
        "user": Column("category", NO_UNIT, "whose it is"),
        "priority": Column("category", NO_UNIT, "priority, by HAI's names"),
        "asks": Column("int64", "count", "nodes that it asks for"),
        "lives": Column("int64", "count", "times that it had nodes, or waits for them once more"),
        "step": Column("int64", "count", "step that its last checkpoint has; -1: none was reported"),
        "code": Column("int64", NO_UNIT, "exit code; -1: it has not ended"),
    },
)

PLATFORM_STEPS = Table(
    "One row per step that a rank of a user's job printed, and per checkpoint that it says it has restored.",
    {
        **common("phase", "job"),
        "number": Column("int64", NO_UNIT, "number of the user's job"),
        "life": Column("int64", NO_UNIT, "number of the life"),
        "rank": Column("int64", NO_UNIT, "rank that printed it"),
        "step": Column("int64", "count", "the step"),
        "total": Column("category", NO_UNIT, "the sum over all ranks, as the rank printed it; empty: it printed none"),
        "what": Column("category", NO_UNIT, "made or restored"),
    },
)


_EVENTS = Measure("events.<event>", "events of this kind in the platform's journal")
_CHECKS = Measure("checks.<verdict>", "checks of nodes' health with this verdict")
_STEPS = Measure(
    "steps.<what>", "steps that are lost, made twice, apart, changed or wrong by what ranks printed", Better.LESS
)
MEASURES = (
    Measure("events.submitted", "jobs that users submitted", head="submitted"),
    Measure("events.finished", "jobs that finished", Better.MORE, "finished"),
    Measure("events.suspend", "times that a job was suspended", head="suspended"),
    Measure("events.restart", "times that a job began again", head="began again"),
    Measure("events.node_out", "times that a node was taken out", head="nodes taken out"),
    Measure(
        "failure_cost_mean_s", "time that a failure costs a job that began again, mean", Better.LESS, "lost per failure"
    ),
    Measure(
        "failure_cost_most_s", "time that the costliest failure costs a job that began again", Better.LESS, "at most"
    ),
    Measure("steps.made", "steps that ranks of all jobs made", Better.MORE, "steps"),
    Measure("steps.lost", "steps that no rank made", Better.LESS, "lost"),
    Measure("steps.twice", "steps that were made twice", Better.LESS, "made twice"),
    Measure("steps.again", "steps made again behind a checkpoint", Better.LESS, "again behind a checkpoint"),
    Measure(
        "zones.pairs_across", "most pairs of a job's ranks across zones at once", Better.LESS, "pairs across zones"
    ),
    Measure("checks.failed", "checks of nodes' health that failed", head="checks failed"),
    _EVENTS,
    _CHECKS,
    _STEPS,
)


def proofs_of(rows: JobRows) -> list[JobProof]:
    """Return what is proven of each user's job by what its ranks printed."""
    table = rows.table(STEPS)
    # Of results from before it was kept what ranks had restored, all steps are made ones.
    columns = [name for name in StepLine._fields if name in table.columns]
    texts = {name: str for name in ("total", "what") if name in columns}
    said = (StepLine(*one) for one in table[columns].astype(texts).itertuples(index=False))
    sums = {job.name: formula for job in rows.config.jobs if (formula := sum_of(job.program)) is not None}
    return proofs(_events(rows), said, sums)


def _events(rows: JobRows) -> list[Any]:
    return rows.table(EVENTS).astype({"event": str, "nodes": str, "why": str}).to_dict("records")


def _numbers(rows: JobRows) -> dict[str, float]:
    """Return how many events of each kind there were, what failures cost the jobs that began again, and what ranks'
    steps come to."""
    events = rows.table(EVENTS)
    found = {_EVENTS.of(name): float(count) for name, count in events["event"].value_counts().items()}
    costs = costs_by_events(events)["total_s"].dropna()
    if len(costs):
        found |= {"failure_cost_mean_s": float(costs.mean()), "failure_cost_most_s": float(costs.max())}
    checks = rows.table(HEALTH)
    if not checks.empty:
        found |= {_CHECKS.of(name): float(count) for name, count in checks["verdict"].value_counts().items()}
    if len(rows.table(STEPS)):
        proven = proofs_of(rows)
        found["steps.made"] = float(sum(one.steps for one in proven))
        for name in ("lost", "twice", "again", "apart", "changed", "wrong"):
            found[_STEPS.of(name)] = float(sum(len(getattr(one, name)) for one in proven))
    return {**found, "zones.pairs_across": float(most_across(_events(rows)))}


def _account(rows: JobRows) -> str:
    """Return what came to pass."""
    if not rows.windows:
        return ""
    text = account(rows.table(EVENTS), rows.windows[0][0], len(rows.config.jobs))
    across = most_across(_events(rows))
    pairs = f"at most {across} {'pair' if across == 1 else 'pairs'} of ranks across zones at once" if across else ""
    return " ".join([text, *(f"{part[0].upper()}{part[1:]}." for part in (in_words(proofs_of(rows)), pairs) if part)])


def _commands(config: PlatformConfig) -> tuple[str, ...]:
    return tuple(shlex.join(job.program) for job in config.jobs)


def _make(stage: Stage, config: PlatformConfig, nodes: Nodes, *, level: ServiceLevel, name: str) -> Job:
    """Make the job of the engine that a config names."""
    if config.engine == "slurm":
        return SlurmJob(stage, config, nodes, level, name)
    return PlatformJob(stage, config, nodes, level, name)


def _faults(config: PlatformConfig, fabric: Fabric) -> Iterator[str]:
    """Yield what cannot be on a fabric, and what Slurm cannot do."""
    yield from config.faults(fabric)
    if config.engine != "slurm":
        return
    if why := why_no_slurm():
        yield f"engine: {why}"
    yield from refusals(config.policy, config.placement, config.timers)
    for key in ("quota", "users", "groups", "restart", "health"):
        if getattr(config, key):
            yield f"{key}: only the project's own scheduler has it; leave it out, or use engine: own"


PLATFORM = JobKind(
    name="platform",
    meaning="A scheduler on its first node, agents on the others, and the jobs that users submit to it.",
    config=PlatformConfig,
    level=ServiceLevel.CONTROL,
    least_nodes=2,
    make=_make,
    measures=Measures(_numbers, speeds=(), account=_account, declared=MEASURES),
    faults=_faults,
    commands=_commands,
    data=DataOfJob(one_nic="its messages are small, and programs of its users choose by themselves"),
    tables={EVENTS: PLATFORM_EVENTS, JOBS: PLATFORM_JOBS, STEPS: PLATFORM_STEPS, HEALTH: PLATFORM_HEALTH},
    preload=("cluster.platform.programs", "cluster.slurm.programs"),
)
