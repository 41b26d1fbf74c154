"""The platform as a kind of job: its table, and what is measured and said of it."""

from __future__ import annotations

import shlex

from cluster.platform.account import account
from cluster.platform.config import PlatformConfig
from cluster.platform.failure_costs import failure_costs
from cluster.platform.job import PlatformJob
from cluster.platform.programs import EVENTS
from fabric.model.lanes import ServiceLevel
from fabric.tables import NO_UNIT, Column, Table, common
from traffic.job_kind import JobKind, Measures
from traffic.measures import JobRows

PLATFORM_EVENTS = Table(
    "One row per event of the platform's journal.",
    {
        **common("at_s", "phase", "job"),
        "event": Column(
            "category",
            NO_UNIT,
            "submitted, asked (its nodes whether they take it), requeued (some did not), started, saved, finished, "
            "left, suspend, restart, cancel, fail, node_out or node_back",
        ),
        "number": Column("int64", NO_UNIT, "number of the user's job; 0: of a node"),
        "life": Column("int64", NO_UNIT, "number of the life; 0: of a node"),
        "nodes": Column("category", NO_UNIT, "nodes that it got, by rank, or the node"),
        "why": Column("category", NO_UNIT, "reason, in words"),
    },
)


def _numbers(rows: JobRows) -> dict[str, float]:
    """Return how many events of each kind there were, and what failures cost the jobs that began again."""
    events = rows.table(EVENTS)
    found = {f"events.{name}": float(count) for name, count in events["event"].value_counts().items()}
    costs = failure_costs(events)["total_s"].dropna()
    if len(costs):
        found |= {"failure_cost_mean_s": float(costs.mean()), "failure_cost_most_s": float(costs.max())}
    return found


def _account(rows: JobRows) -> str:
    """Return what came to pass."""
    return account(rows.table(EVENTS), rows.windows[0][0], len(rows.config.jobs)) if rows.windows else ""


def _commands(config: PlatformConfig) -> tuple[str, ...]:
    return tuple(shlex.join(job.command) for job in config.jobs)


_TOLD = {
    "events.submitted": "submitted",
    "events.finished": "finished",
    "events.suspend": "suspended",
    "events.restart": "began again",
    "events.node_out": "nodes taken out",
    "failure_cost_mean_s": "lost per failure",
    "failure_cost_most_s": "at most",
}

PLATFORM = JobKind(
    name="platform",
    meaning="A scheduler on its first node, agents on the others, and the jobs that users submit to it.",
    config=PlatformConfig,
    level=ServiceLevel.CONTROL,
    least_nodes=2,
    make=PlatformJob,
    measures=Measures(_numbers, speeds=(), told=_TOLD, account=_account),
    faults=PlatformConfig.faults,
    commands=_commands,
    tables={EVENTS: PLATFORM_EVENTS},
    preload=("cluster.platform.programs",),
)
