"""Whole machines and lists of jobs, put together for :func:`cluster.simulation.play.simulate`."""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from cluster.faults.classes import DAY_S, Effect, FaultTable
from cluster.faults.drawing import Fault, Lemons, Units, draw_faults
from cluster.jobs.records import GPUS_PER_NODE, JobRecord
from cluster.nodes import Nodes
from cluster.policies import HAI
from cluster.simulation.costs import Costs
from cluster.simulation.goodput import Cause
from cluster.simulation.lives import Job
from cluster.simulation.play import NodeFault, Setup, SharedFault, Simulated, node_faults, simulate
from cluster.tasks import Priority, Users

USERS_LEVELS = ((Priority.HIGH, 0.1), (Priority.NORMAL, 0.7), (Priority.UNDER_NORMAL, 0.2))
"""The priority that a user's jobs have, and the share of users that have it: traces tell none, so this is given."""
LIMIT_FACTOR = 2.0
"""How many times its run time a user states as its job's limit, which only backfilling asks for; given likewise."""


@dataclass(frozen=True)
class Machine:
    """One job on ``nodes`` nodes for some days, and ``spare`` ones beside them; below how many leaf and spine switches,
    and how many storage nodes it reads from (0: nothing is known of these, and none fails)."""

    nodes: int
    spare: int
    days: float
    leaves: int = 0
    spines: int = 0
    storage_nodes: int = 0

    def __post_init__(self) -> None:
        if self.leaves > self.nodes + self.spare:
            raise ValueError(f"{self.leaves} leaves for {self.nodes + self.spare} nodes; give each one at least")

    def below(self, leaf: int) -> range:
        """Return which nodes a leaf has: they are dealt evenly, spare ones included."""
        total = self.nodes + self.spare
        return range(leaf * total // self.leaves, (leaf + 1) * total // self.leaves)


@dataclass(frozen=True)
class Validator:
    """What finds slow NICs: every ``period_s`` it has all nodes of the job for ``takes_s``, with notice."""

    period_s: float
    takes_s: float

    def __post_init__(self) -> None:
        if not 0 < self.takes_s < self.period_s:
            raise ValueError(f"a validator every {self.period_s} s that takes {self.takes_s} s; 0 < takes < period")

    def finds_s(self, at_s: float) -> float:
        """Return when it finds what is slow from a time on."""
        return math.ceil(at_s / self.period_s) * self.period_s + self.takes_s


def play_machine(
    table: FaultTable,
    machine: Machine,
    costs: Costs,
    seed: int,
    lemons: Lemons | None = None,
    validator: Validator | None = None,
) -> Simulated:
    """Return what one job on a whole machine makes of the faults that a table's rates give. Of faults that hit no node
    those are played that cost anything: cuts of links, storage nodes and switches, as far as the machine has them. Each
    stops the steps of a job that is on all nodes, and a leaf switch that fails takes its nodes along. Wrong data of
    which there are other copies cost a read, and are not played.

    Without a validator a slow NIC is noticed as late as the costs say; with one when it finds it.
    """
    there = Nodes.grid(1, 1, machine.nodes + machine.spare)
    drawn = draw_faults(table, _units(table, machine, costs, there), machine.days, seed, lemons)
    faults, _ = node_faults(drawn, there)
    faults += _leaves_lost(drawn, machine)
    shared = list(_shared(drawn, machine, costs))
    until_s = machine.days * DAY_S
    jobs = [Job(1, "all", machine.nodes, work_s=10 * until_s)]
    if validator is not None:
        faults = [_found(fault, validator) for fault in faults]
        jobs += _validations(validator, machine.nodes, until_s)
    setup = Setup(there, Users(), HAI, costs, seed=seed)
    found = simulate(setup, jobs, faults, until_s, shared)
    return found if validator is None else _with_validation(found, validator)


def _units(table: FaultTable, machine: Machine, costs: Costs, there: Nodes) -> Units:
    """Return what may fail: what costs nothing is left out. Switches have their numbers as names, leaves first."""
    links = round((table.links or table.nodes) * machine.nodes / table.nodes) if costs.cut else 0
    counts = (links, machine.storage_nodes if costs.storage else 0, machine.leaves + machine.spines)
    return Units(there.names, *(tuple(map(str, range(count))) for count in counts))


def _leaves_lost(drawn: Iterable[Fault], machine: Machine) -> list[NodeFault]:
    """Return the faults of leaf switches: all nodes below are silent at once, until the switch is repaired."""
    found = []
    for fault in drawn:
        if fault.effect is Effect.SWITCH_DOWN and int(fault.target) < machine.leaves:
            first, *beside = machine.below(int(fault.target))
            found.append(NodeFault(fault.at_s, first, Effect.SILENT, fault.kind.repair, beside=tuple(beside)))
    return found


def _shared(drawn: Iterable[Fault], machine: Machine, costs: Costs) -> Iterator[SharedFault]:
    """Yield the faults that all nodes of a job feel and that take none of them."""
    for fault in drawn:
        if fault.effect is Effect.LINK_CUT:
            yield SharedFault(fault.at_s, Cause.CUT, costs.cut)
        elif fault.effect is Effect.STORAGE_DOWN:
            yield SharedFault(fault.at_s, Cause.STORAGE, costs.storage)
        elif fault.effect is Effect.SWITCH_DOWN and int(fault.target) >= machine.leaves:
            until_s = fault.at_s + fault.kind.repair
            yield SharedFault(fault.at_s, Cause.CAPACITY, costs.spine, until_s, costs.spine_slowdown)


def _found(fault: NodeFault, validator: Validator) -> NodeFault:
    if fault.effect is not Effect.SLOW_NIC:
        return fault
    return replace(fault, noticed_s=validator.finds_s(fault.at_s))


def _validations(validator: Validator, nodes: int, until_s: float) -> list[Job]:
    """Return the validator's runs as jobs that come first."""
    count = math.ceil(until_s / validator.period_s) - 1
    return [
        Job(
            2 + number,
            "validator",
            nodes,
            validator.takes_s,
            (1 + number) * validator.period_s,
            Priority.EXTREME_HIGH,
        )
        for number in range(count)
    ]


def _with_validation(found: Simulated, validator: Validator) -> Simulated:
    """Return the same with the validator's runs as such, and not as steps that were kept."""
    ended = sum(report.ended_s is not None for report in found.jobs[1:])
    node_s = dict(found.goodput.node_s)
    spent = ended * validator.takes_s * (found.jobs[0].job.nodes)
    node_s[Cause.KEPT] -= spent
    node_s[Cause.VALIDATION] += spent
    return replace(found, goodput=replace(found.goodput, node_s=node_s))


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
