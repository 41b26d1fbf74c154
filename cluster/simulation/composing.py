"""Whole machines and lists of jobs, put together for :func:`cluster.simulation.play.simulate`."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from cluster.faults.classes import DAY_S, FaultTable
from cluster.faults.drawing import Lemons, Units, draw_faults
from cluster.jobs.records import GPUS_PER_NODE, JobRecord
from cluster.nodes import Nodes
from cluster.policies import HAI
from cluster.simulation.costs import Costs
from cluster.simulation.lives import Job
from cluster.simulation.play import Setup, Simulated, node_faults, simulate
from cluster.tasks import Priority, Users

USERS_LEVELS = ((Priority.HIGH, 0.1), (Priority.NORMAL, 0.7), (Priority.UNDER_NORMAL, 0.2))
"""The priority that a user's jobs have, and the share of users that have it: traces tell none, so this is given."""
LIMIT_FACTOR = 2.0
"""How many times its run time a user states as its job's limit, which only backfilling asks for; given likewise."""


@dataclass(frozen=True)
class Machine:
    """One job on ``nodes`` nodes for some days, and ``spare`` ones beside them."""

    nodes: int
    spare: int
    days: float


def play_machine(
    table: FaultTable, machine: Machine, costs: Costs, seed: int, lemons: Lemons | None = None
) -> Simulated:
    """Return what one job on a whole machine makes of the faults that a table's rates give. Faults that hit no node
    (links, switches, storage) are not played."""
    there = Nodes.grid(1, 1, machine.nodes + machine.spare)
    drawn = draw_faults(table, Units(there.names), machine.days, seed, lemons)
    faults, _ = node_faults(drawn, there)
    until_s = machine.days * DAY_S
    job = Job(1, "all", machine.nodes, work_s=10 * until_s)
    return simulate(Setup(there, Users(), HAI, costs, seed=seed), [job], faults, until_s)


@dataclass(frozen=True)
class JobList:
    """Jobs that a cluster can play, and how many records are none, by the reason."""

    jobs: tuple[Job, ...]
    left_out: Mapping[str, int]

    @property
    def node_s(self) -> float:
        """Nodes times work, summed, in node-seconds."""
        return sum(job.nodes * job.work_s for job in self.jobs)


def jobs_of(
    records: Iterable[JobRecord], most_nodes: int, costs: Costs, seed: int = 0, gpus_per_node: int = GPUS_PER_NODE
) -> JobList:
    """Return records as jobs of whole nodes. Each user has one priority, by :data:`USERS_LEVELS` and the seed."""
    levels: dict[str, Priority] = {}
    rng = random.Random(seed)
    jobs: list[Job] = []
    left_out: dict[str, int] = {}
    for record in records:
        nodes = record.nodes(gpus_per_node)
        if record.user not in levels:
            (levels[record.user],) = rng.choices([one for one, _ in USERS_LEVELS], [share for _, share in USERS_LEVELS])
        if nodes > most_nodes or record.run_s <= 0:
            why = "larger than the cluster" if nodes > most_nodes else "ran for no time"
            left_out[why] = left_out.get(why, 0) + 1
            continue
        limit_s = LIMIT_FACTOR * record.run_s + costs.start
        jobs.append(
            Job(len(jobs), record.user, nodes, record.run_s, record.submitted_s, levels[record.user], limit_s=limit_s)
        )
    return JobList(tuple(jobs), left_out)


def at_load(jobs: Sequence[Job], nodes: int, load: float) -> tuple[Job, ...]:
    """Return jobs that come faster or slower, so that their work is ``load`` of what the nodes can do from the first
    submission to the last."""
    work_s = sum(job.nodes * job.work_s for job in jobs)
    length_s = max(job.submitted_s for job in jobs)
    if length_s <= 0:
        return tuple(jobs)
    faster = load * nodes * length_s / work_s
    return tuple(Job(**{**vars(job), "submitted_s": job.submitted_s / faster}) for job in jobs)
