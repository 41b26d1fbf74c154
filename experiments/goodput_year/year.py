"""Years of whole machines, composed of measured costs. Pure.

A year is one job on all nodes of a machine with faults drawn by its published rates. Nothing here moves a packet: each
event costs what it cost on the small fabric, or what that comes to for a machine's bytes
(:mod:`cluster.simulation.measured`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from cluster.checkpoints.intervals import dalys_interval_s, expected_slowdown, youngs_interval_s
from cluster.faults.classes import DAY_S, Effect, FaultClass, FaultTable
from cluster.faults.published import published
from cluster.simulation.composing import Machine, Validator, play_machine
from cluster.simulation.costs import Costs
from cluster.simulation.goodput import Cause
from cluster.simulation.measured import MachineFacts, MeasuredCosts, costs_of
from cluster.simulation.play import Simulated
from experiments.goodput_year.config import UncountedConfig, YearConfig
from fabric.estimates import Estimate, estimate

ASYNCHRONOUS, SYNCHRONOUS = "asynchronous", "synchronous"
_CURVE = 60


@dataclass(frozen=True)
class Whole:
    """A machine: its table of faults with what that does not count, its size, and the costs of a job on all of its
    nodes, by how it checkpoints."""

    name: str
    table: FaultTable
    nodes: int
    costs: dict[str, Costs]
    facts: MachineFacts

    @property
    def mtbf_s(self) -> float:
        """The mean time between faults that stop the job."""
        return self.table.mtbf_s(self.nodes, only_stopping=True)

    def with_nodes(self, spare: int, days: float) -> Machine:
        """Return it for some days, with so many spare nodes."""
        facts = self.facts
        return Machine(self.nodes, spare, days, facts.leaves, facts.spines, facts.storage_nodes)

    def detection_s(self, costs: Costs) -> float:
        """Return how long a fault that stops the job goes unnoticed, the mean over the table's classes."""
        stopping = [one for one in self.table.classes if one.effect.stops_a_job]
        return sum(one.events * costs.detection_s(one.effect) for one in stopping) / sum(one.events for one in stopping)

    def theory(self, costs: Costs) -> float:
        """Return the goodput by Daly's complete model: after a failure come its detection, the restart, and the steps
        since the last checkpoint began to be written; steps stand still for a checkpoint, and before it until the last
        one is complete."""
        restart_s = self.detection_s(costs) + costs.restart_s() + costs.durable
        return 1 / expected_slowdown(costs.interval, costs.save + costs.wait_s, self.mtbf_s, restart_s)


@dataclass(frozen=True)
class PlayedMachine:
    """The years of a machine, one per seed."""

    machine: Whole
    years: dict[int, Simulated]

    def over_seeds(self, value: Callable[[Simulated], float]) -> Estimate:
        """Return a number of a year over the seeds."""
        return estimate([value(one) for one in self.years.values()])

    @property
    def lost_per_failure_s(self) -> list[float]:
        """The steps lost to each failure of all years, in seconds."""
        return [seconds for one in self.years.values() for seconds in one.jobs[0].lost_per_failure_s]


@dataclass(frozen=True)
class Point:
    """A point of a sweep. ``value``: seconds between checkpoints, spare nodes or days between validations."""

    machine: str
    sweep: str
    way: str
    value: float
    goodput: Estimate
    theory: float = math.nan


@dataclass(frozen=True)
class Composed:
    """All that was composed: years, sweeps, and Daly's curves with the optima of Young and Daly."""

    played: list[PlayedMachine]
    points: list[Point]
    curves: list[Curve] = field(default_factory=list)


@dataclass(frozen=True)
class Curve:
    """Daly's model over intervals, and the intervals that Young and Daly give, in seconds."""

    machine: str
    way: str
    intervals_s: list[float]
    goodput: list[float]
    young_s: float
    daly_s: float


def whole_machine(config: YearConfig, measured: MeasuredCosts, name: str) -> Whole:
    """Return a machine of the config, with the costs of a job on all of it."""
    table, facts = published(name), config.machines[name]
    costs = {
        way: costs_of(measured, config.given, facts, table.nodes, way == SYNCHRONOUS).model_copy(
            update={"interval": config.interval}
        )
        for way in (ASYNCHRONOUS, SYNCHRONOUS)
    }
    return Whole(name, with_uncounted(table, facts, config.uncounted), table.nodes, costs, facts)


UNCOUNTED = {"given_storage_node": "storage node", "given_switch": "switch", "given_corruption": "corruption"}
"""The classes of faults that a machine is given, in words."""


def with_uncounted(table: FaultTable, facts: MachineFacts, rates: UncountedConfig) -> FaultTable:
    """Return a table with what no table of these machines counts, as often as given: storage nodes and switches, and
    nodes that compute wrong unless it has them."""
    counted = {one.effect for one in table.classes}
    switches = facts.leaves + facts.spines
    given = [
        ("given_storage_node", Effect.STORAGE_DOWN, rates.storage_nodes, facts.storage_nodes, 0.0),
        ("given_switch", Effect.SWITCH_DOWN, rates.switches, switches, rates.switch_repair),
        ("given_corruption", Effect.CORRUPTION, rates.corruption, table.nodes, DAY_S),
    ]
    added = [
        FaultClass(name=name, events=rate / 1000 * units * table.days, effect=effect, repair=repair,
                   cause="given, not counted")
        for name, effect, rate, units, repair in given
        if rate and units and effect not in counted
    ]  # fmt: skip
    return table.model_copy(
        update={
            "classes": (*table.classes, *added),
            "storage_nodes": facts.storage_nodes or table.storage_nodes,
            "switches": switches or table.switches,
        }
    )


def compose(config: YearConfig, measured: MeasuredCosts, seed: int, tell: Callable[[str], None]) -> Composed:
    """Return years and sweeps of all machines of the config."""
    played = list[PlayedMachine]()
    points, curves = list[Point](), list[Curve]()
    for name in config.machines:
        machine = whole_machine(config, measured, name)
        tell(f"composing {config.seeds} years of {name}, {machine.nodes} nodes")
        there = machine.with_nodes(config.spare, config.days)
        seeds = range(seed, seed + config.seeds)
        costs = machine.costs[ASYNCHRONOUS]
        validator = None if config.validated is None else validator_of(config, measured, config.validated)
        years = {one: play_machine(machine.table, there, costs, one, None, validator) for one in seeds}
        played.append(PlayedMachine(machine, years))
        points += [*_intervals(config, machine, seeds), *_spares(config, machine, seeds)]
        points += _validations(config, machine, seeds, measured)
        curves += _curves(config, machine)
    return Composed(played, points, curves)


def _runtime(found: Simulated) -> float:
    return found.goodput.runtime


def _total(found: Simulated) -> float:
    return found.goodput.total


def _intervals(config: YearConfig, machine: Whole, seeds: Sequence[int]) -> Iterator[Point]:
    there = machine.with_nodes(config.spare, config.sweep_days)
    for way, own in machine.costs.items():
        for interval_s in config.intervals:
            costs = own.model_copy(update={"interval": interval_s})
            found = [_runtime(play_machine(machine.table, there, costs, seed)) for seed in seeds]
            yield Point(machine.name, "interval", way, interval_s, estimate(found), machine.theory(costs))


def _spares(config: YearConfig, machine: Whole, seeds: Sequence[int]) -> Iterator[Point]:
    costs = machine.costs[ASYNCHRONOUS]
    for spare in config.spares:
        there = machine.with_nodes(spare, config.sweep_days)
        found = [_total(play_machine(machine.table, there, costs, seed)) for seed in seeds]
        yield Point(machine.name, "spare", ASYNCHRONOUS, float(spare), estimate(found))


def with_slow_nics(table: FaultTable, per_1000_node_days: float) -> FaultTable:
    """Return a table with NICs that become slow as often as given, which no published one counts."""
    events = per_1000_node_days / 1000 * table.nodes * table.days
    slow = FaultClass(name="slow_nic", events=events, effect=Effect.SLOW_NIC, cause="given, not counted")
    return table.model_copy(update={"classes": (*table.classes, slow)})


def validator_of(config: YearConfig, measured: MeasuredCosts, days: float) -> Validator:
    """Return a validator that has all nodes every so many days: for what it computes, and what it does on the
    fabric."""
    return Validator(days * DAY_S, config.validates + measured.validation)


def _validations(config: YearConfig, machine: Whole, seeds: Sequence[int], measured: MeasuredCosts) -> Iterator[Point]:
    """Yield points of the validator's period. The closed form: a slow NIC is there until its period ends, and each run
    takes its time and a suspension; what is slow does not add up, since a step waits for the slowest node."""
    if not config.slow_nics:
        return
    costs = machine.costs[ASYNCHRONOUS]
    table = with_slow_nics(machine.table, config.slow_nics)
    there = machine.with_nodes(config.spare, config.sweep_days)
    for days in config.validations:
        validator = validator_of(config, measured, days)
        found = [_runtime(play_machine(table, there, costs, seed, None, validator)) for seed in seeds]
        theory = (
            machine.theory(costs)
            * (1 - slowed(config.slow_nics, machine.nodes, days, costs.slowdown))
            * (
                1
                - (validator.takes_s + costs.answer + costs.suspend_save + 2 * costs.start + costs.restore)
                / validator.period_s
            )
        )
        yield Point(machine.name, "validator", ASYNCHRONOUS, days, estimate(found), theory)


def slowed(slow_nics: float, nodes: int, days: float, slowdown: float) -> float:
    """Return the part of a job's time that slow NICs cost, so many per 1,000 node-days, each from when it comes to the
    end of a period of some days. At least one is slow for 1 - (1 - e^-x)/x of the time if x come in a period; of that,
    so much is lost as steps take longer."""
    in_period = slow_nics / 1000 * nodes * days
    slow_part = 1 - (1 - math.exp(-in_period)) / in_period
    return slow_part * (1 - 1 / slowdown)


def _curves(config: YearConfig, machine: Whole) -> Iterator[Curve]:
    if len(config.intervals) < 2:
        return
    low, high = math.log(min(config.intervals)), math.log(max(config.intervals))
    intervals = [math.exp(low + (high - low) * place / (_CURVE - 1)) for place in range(_CURVE)]
    for way, own in machine.costs.items():
        goodput = [machine.theory(own.model_copy(update={"interval": one})) for one in intervals]
        young, daly = (of(own.save, machine.mtbf_s) for of in (youngs_interval_s, dalys_interval_s))
        yield Curve(machine.name, way, intervals, goodput, young, daly)


def best_interval(points: Sequence[Point], machine: str, way: str) -> Point | None:
    """Return the point of the sweep of intervals with the highest goodput."""
    mine = [one for one in points if (one.machine, one.sweep, one.way) == (machine, "interval", way)]
    return max(mine, key=lambda one: one.goodput.median, default=None)


def shares(played: PlayedMachine) -> Iterator[tuple[int, Cause, float]]:
    """Yield of each year the part of all nodes' time that went to each cause; they sum to 1."""
    for seed, one in played.years.items():
        for cause in Cause:
            yield seed, cause, one.goodput.share(cause)
