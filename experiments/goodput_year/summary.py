"""The results of a run of ``goodput_year``: tables, metrics and a sentence or three."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cluster.simulation.goodput import WITHOUT_TASK, Cause
from cluster.simulation.measured import MeasuredCosts, MeasuredResult
from cluster.simulation.play import Simulated
from experiments.goodput_year.config import GoodputYearConfig, Kind
from experiments.goodput_year.costs_by_steps import FailureCost, SuspensionCost
from experiments.goodput_year.measures import FAILURES_OF, LOST, MEAN, MOST, PART_MEAN, RUNTIME, STORM, TOTAL
from experiments.goodput_year.others import Others
from experiments.goodput_year.platform_phases import FAILURES, LEAVES, SUSPENSIONS, VALIDATION, Failures
from experiments.goodput_year.shared_costs import SPINE, STORAGE_LOSS
from experiments.goodput_year.storage_phases import RESTORE, RESYNC, WRITE
from experiments.goodput_year.storms import Storm, is_beside
from experiments.goodput_year.wrong_data import WRONG_CHECKPOINT, WRONG_COPIES
from experiments.goodput_year.year import ASYNCHRONOUS, UNCOUNTED, Composed, PlayedMachine, best_interval
from fabric.estimates import Estimate
from fabric.metrics import Metric
from fabric.records.cells import Quantity, Row, count_of, estimated, quantity
from fabric.records.summary_table import SummaryTable
from fabric.units import format_bandwidth, format_time

MOST_LOST_S = 300.0
"""What Fire-Flyer 2's paper says is lost to a failure at most: five minutes (arXiv 2408.14158v2, VII-A)."""
PARTS = ("lost", "detection", "stop", "wait", "start", "total")
_SHOWN = 5e-6
"""The least part of the time that a table shows."""
COMPOSED = "composed of measured costs: no packet of it was sent"


@dataclass(frozen=True)
class Seen:
    """What was measured with packets."""

    failures: Failures
    suspensions: Sequence[SuspensionCost]
    storms: Sequence[Storm]
    slowed: float
    costs: MeasuredCosts
    others: Others


def summarize(config: GoodputYearConfig, seen: Seen, composed: Composed) -> dict[str, Any]:
    """Return the tables, metrics and answer of a run."""
    year = config.year
    result = MeasuredResult(measured=seen.costs, given=year.given, machines=year.machines)
    return {
        "title": "What failures cost, one by one and in a year",
        "answer": _answer(seen, composed),
        "metrics": [*_metrics(seen), *_year_metrics(composed)],
        "tables": [*_event_tables(config, seen), *_year_tables(config, composed)],
        "measured_costs": result.model_dump(mode="json"),
        "goodput_year": {
            "interval_s": config.events.program.interval,
            "year_interval_s": year.interval,
            "years": [_figure_of(one) for one in composed.played],
            "curves": [vars(one) for one in composed.curves],
            "storage_loss": None if seen.others.storage_loss is None else vars(seen.others.storage_loss),
        },
    }


def _figure_of(played: PlayedMachine) -> dict[str, Any]:
    """Return what the figure of a machine's year says beside its bars."""
    goodput = played.over_seeds(lambda one: one.goodput.runtime)
    return {
        "machine": played.machine.name,
        "nodes": played.machine.nodes,
        "goodput": vars(goodput),
        "published": played.machine.table.published,
        "held": {cause.value: _held(played, cause).median for cause in Cause if cause not in WITHOUT_TASK},
    }


def _held(played: PlayedMachine, cause: Cause) -> Estimate:
    """Return the part of the job's time that went to a cause."""

    def part(one: Simulated) -> float:
        held = sum(seconds for other, seconds in one.goodput.node_s.items() if other not in WITHOUT_TASK)
        return one.goodput.node_s[cause] / held

    return played.over_seeds(part)


# Events --------------------------------------------------------------------------------------------------------------


def over_five_minutes(costs: Sequence[FailureCost]) -> float:
    """Return the part of failures whose lost steps come to more than five minutes."""
    return sum(one.parts.lost_s > MOST_LOST_S for one in costs) / len(costs)


def _answer(seen: Seen, composed: Composed) -> str:
    costs = seen.failures.costs
    parts = []
    if costs:
        mean, most = statistics.fmean(one.parts.lost_s for one in costs), max(one.parts.lost_s for one in costs)
        rest = statistics.fmean(one.parts.total_s - one.parts.lost_s for one in costs)
        parts.append(
            f"{len(costs)} failures at random moments lost {mean:.0f} s of steps on average, {most:.0f} s at most, "
            f"{over_five_minutes(costs):.0%} of them more than five minutes; detection and restart took {rest:.0f} s "
            "more on average."
        )
    years = ", ".join(
        f"{one.machine.name} {estimated(one.over_seeds(lambda found: found.goodput.runtime), '.2%').words}"
        for one in composed.played
    )
    return " ".join([*parts, f"Runtime goodput of a year, {COMPOSED}: {years}."])


def _metrics(seen: Seen) -> Iterator[Metric]:
    """Yield the numbers of events."""
    for kind, own in by_kind(seen.failures.costs).items():
        yield Metric(FAILURES, "", FAILURES_OF.of(kind), float(len(own)))
        for part in PARTS:
            values = [float(getattr(one.parts, f"{part}_s")) for one in own]
            yield Metric(FAILURES, "", MEAN.of(kind, part), statistics.fmean(values))
            yield Metric(FAILURES, "", MOST.of(kind, part), max(values))
    if seen.failures.costs:
        yield Metric(FAILURES, "", "over_five_minutes_fraction", over_five_minutes(seen.failures.costs))
    if seen.failures.cuts:
        yield Metric(FAILURES, "", "cut.stalled_mean_s", statistics.fmean(one.stalled_s for one in seen.failures.cuts))
    for part in ("tick", "answer", "save", "start", "resume"):
        if seen.suspensions:
            mean = statistics.fmean(float(getattr(one, f"{part}_s")) for one in seen.suspensions)
            yield Metric(SUSPENSIONS, "", PART_MEAN.of(part), mean)
    for name, own_storms in storms_by_name(seen.storms).items():
        yield Metric(own_storms[0].phase, "", STORM.of(name), statistics.median(one.part for one in own_storms))
    yield Metric("slow_nic", "", "times_as_long", seen.slowed)
    yield from _other_metrics(seen)


def _other_metrics(seen: Seen) -> Iterator[Metric]:
    others, costs = seen.others, seen.costs
    for part in PARTS:
        if others.leaves:
            values = [float(getattr(one.parts, f"{part}_s")) for one in others.leaves]
            yield Metric(LEAVES, "", PART_MEAN.of(part), statistics.fmean(values))
    if others.spine is not None:
        yield Metric(SPINE, "", "stall_s", others.spine.stall)
        yield Metric(SPINE, "", "times_as_long", others.spine.slow_communication)
    if others.storage_loss is not None:
        yield Metric(STORAGE_LOSS, "", "lost_s", costs.storage_lost)
        yield Metric(STORAGE_LOSS, "", "resync_s", costs.resync)
    if others.wrong_checkpoint is not None:
        yield Metric(WRONG_CHECKPOINT, "", "found_s", others.wrong_checkpoint.found_s)
        yield Metric(WRONG_CHECKPOINT, "", "again_s", others.wrong_checkpoint.again_s)
    if others.wrong_copies is not None:
        yield Metric(WRONG_COPIES, "", "wrong_copies", float(others.wrong_copies.wrong_copies))
    if others.validation_s:
        yield Metric(VALIDATION, "", "validation_s", others.validation_s)


def by_kind(costs: Sequence[FailureCost]) -> dict[str, list[FailureCost]]:
    """Return the costs of each kind that there were failures of, and of ``all``."""
    found = {kind.value: [one for one in costs if one.kind == kind.value] for kind in Kind}
    return {name: own for name, own in {**found, "all": list(costs)}.items() if own}


def storms_by_name(storms: Sequence[Storm]) -> dict[str, list[Storm]]:
    """Return storms by what they were: restores, writes, restores with a node out and beside its resync."""
    in_resync = [one for one in storms if one.phase == RESYNC]
    found = {
        "restore": [one for one in storms if one.phase == RESTORE],
        "write": [one for one in storms if one.phase == WRITE],
        "restore_with_a_node_out": [one for one in in_resync if not is_beside(one)],
        "restore_beside_resync": [one for one in in_resync if is_beside(one)],
    }
    return {name: own for name, own in found.items() if own}


def _event_tables(config: GoodputYearConfig, seen: Seen) -> Iterator[SummaryTable]:
    if seen.failures.costs:
        yield _failures_table(config, seen.failures)
    if seen.others.leaves:
        yield _leaves_table(seen.others.leaves)
    yield _measured_table(seen)
    rows: list[Row] = [[what, _with_unit(value, unit)] for _, what, value, unit in seen.others.rows()]
    if rows:
        note = "of all nodes of the fabric together; waits: at least one node stood still for its batch"
        yield SummaryTable("What all nodes share", ["event", "measured"], rows, note)
    if seen.storms:
        yield _storms_table(seen.storms)


def _failures_table(config: GoodputYearConfig, failures: Failures) -> SummaryTable:
    rows: list[Row] = []
    for kind, own in by_kind(failures.costs).items():
        cells: Row = []
        for part in PARTS:
            values = np.array([getattr(one.parts, f"{part}_s") for one in own])
            cells.append((quantity(values.mean(), ".1f in s"), ", ", quantity(values.max(), ".1f in s")))
        rows.append([kind, count_of(len(own)), *cells, quantity(over_five_minutes(own), ".0%")])
    lost = estimate_of_mean([one.parts.lost_s for one in failures.costs])
    note = (
        f"{failures.planned} failures drawn, at moments even over the {config.events.program.interval:g} s between "
        "checkpoints",
        f"lost steps of all: mean {lost[0]:.0f} s, 95 % interval {lost[1]:.0f} to {lost[2]:.0f} s",
    )
    columns = ["failure", "count", *(f"{part}, s" for part in PARTS), "lost over 5 min"]
    return SummaryTable("What a failure costs: mean, most", columns, rows, note)


def _leaves_table(costs: Sequence[FailureCost]) -> SummaryTable:
    rows: list[Row] = [
        [one.kind, *(_time(float(getattr(one.parts, f"{part}_s"))) for part in PARTS if part not in ("lost", "total"))]
        for one in costs
    ]
    note = "one per phase, soon after the job's start: what steps that loses is drawn for the failures above"
    return SummaryTable("Leaves with several nodes of a job", ["leaf", *PARTS[1:-1]], rows, note)


def _time(value_s: float) -> Quantity:
    """Return a time; what is less than a microsecond is the last digit of a difference."""
    return quantity(value_s, "time") if value_s >= 1e-6 else quantity(0.0, ".0f s")


def _with_unit(value: float, unit: str) -> Quantity:
    if unit == "s":
        return _time(value)
    return quantity(value, "size") if unit == "bytes" else quantity(value, ".4g")


def estimate_of_mean(values: Sequence[float]) -> tuple[float, float, float]:
    """Return the mean and its 95 % interval by the bootstrap."""
    found = np.asarray(values, dtype=float)
    draws = np.random.default_rng(1).choice(found, (9_999, len(found))).mean(axis=1)
    low, high = np.percentile(draws, [2.5, 97.5])
    return float(found.mean()), float(low), float(high)


def _measured_table(seen: Seen) -> SummaryTable:
    suspensions, cuts = seen.suspensions, seen.failures.cuts
    rows: list[Row] = []
    for part, words in (
        ("tick", "other job submitted to suspend command"),
        ("answer", "suspend command to last step"),
        ("save", "last step to nodes free (saving)"),
        ("start", "nodes free to the other job's ranks met"),
        ("resume", "other job's end to ranks met again"),
    ):
        values = [float(getattr(one, f"{part}_s")) for one in suspensions]
        if values:
            rows.append(
                [
                    words,
                    count_of(len(values)),
                    quantity(statistics.fmean(values), "time"),
                    quantity(max(values), "time"),
                ]
            )
    if cuts:
        stalled = [one.stalled_s for one in cuts]
        rows.append(
            [
                "steps stand still for a cut link",
                count_of(len(cuts)),
                quantity(statistics.fmean(stalled), "time"),
                quantity(max(stalled), "time"),
            ]
        )
    lost = sum(one.lost for one in suspensions)
    note = (
        f"steps made in vain by suspensions: {lost}",
        f"an allreduce with a slow NIC takes {seen.slowed:.2f} times as long",
    )
    return SummaryTable("What other events cost", ["event", "count", "mean", "most"], rows, note)


def _storms_table(storms: Sequence[Storm]) -> SummaryTable:
    rows: list[Row] = []
    for name, own in storms_by_name(storms).items():
        parts, times = [one.part for one in own], [one.seconds for one in own]
        rows.append(
            [
                name.replace("_", " "),
                count_of(len(own)),
                count_of(own[0].nodes),
                quantity(statistics.median(times), "time"),
                quantity(max(times), "time"),
                quantity(statistics.median(parts), ".1%"),
            ]
        )
    columns = ["storm", "count", "nodes", "median", "longest", "of the storage NICs, median"]
    note = "of the NICs: of their payload, all copies counted; the longest ones met a change of chains"
    return SummaryTable("All nodes at once", columns, rows, note)


# Years ---------------------------------------------------------------------------------------------------------------


def _year_metrics(composed: Composed) -> Iterator[Metric]:
    for played in composed.played:
        name = played.machine.name
        yield Metric("year", "", RUNTIME.of(name), played.over_seeds(lambda one: one.goodput.runtime).median)
        yield Metric("year", "", TOTAL.of(name), played.over_seeds(lambda one: one.goodput.total).median)
        if lost := played.lost_per_failure_s:
            yield Metric("year", "", LOST.of(name), statistics.fmean(lost))


def _year_tables(config: GoodputYearConfig, composed: Composed) -> Iterator[SummaryTable]:
    names = [one.machine.name for one in composed.played]
    rows: list[Row] = [["nodes", *(count_of(one.machine.nodes) for one in composed.played)]]
    rows.append(["stopped every", *(quantity(one.machine.mtbf_s, "time") for one in composed.played)])
    goodput = (one.over_seeds(lambda found: found.goodput.runtime) for one in composed.played)
    rows.append(["runtime goodput", *(estimated(one, ".2%") for one in goodput)])
    for cause in Cause:
        found = [_held(one, cause).median for one in composed.played]
        if cause not in WITHOUT_TASK and max(found) >= _SHOWN:
            rows.append([cause.value, *(quantity(value, ".3%") for value in found)])
    for words, key in (
        ("a restore takes", "restore"),
        ("a checkpoint stalls for", "save"),
        ("it counts after", "durable"),
        ("a storage node's loss stops steps for", "storage"),
        ("a spine switch's loss for", "spine"),
    ):
        costs = (getattr(one.machine.costs[ASYNCHRONOUS], key) for one in composed.played)
        rows.append([words, *(quantity(cost_s, "time") for cost_s in costs)])
    lost = [one.lost_per_failure_s for one in composed.played]
    rows.append(
        [
            "steps lost per failure",
            *(
                (quantity(statistics.fmean(one), ".0f in s"), ", ", quantity(max(one), ".0f s")) if one else "-"
                for one in lost
            ),
        ]
    )
    rows.append(["published", *(one.machine.table.published or "-" for one in composed.played)])
    title = f"A year of one job on a whole machine: {config.year.days:g} days, {config.year.seeds} seeds"
    rows.append(["events per year", *(_events_of(one) for one in composed.played)])
    note = COMPOSED, f"given: repair times of the tables, {_given(config)}"
    yield SummaryTable(title, ["of its time", *names], rows, note)
    yield _optimum_table(composed)
    for sweep, words in (("spare", "spare nodes"), ("validator", "days between validations")):
        if points := [one for one in composed.points if one.sweep == sweep]:
            values = sorted({one.value for one in points})
            cells = {(one.machine, one.value): quantity(one.goodput.median, ".2%") for one in points}
            rows = [[name, *(cells.get((name, value), "-") for value in values)] for name in names]
            yield SummaryTable(
                f"Goodput by {words}",
                ["machine", *(f"{value:g}" for value in values)],
                rows,
                f"{COMPOSED}; {_sweep_note(config, sweep)}",
            )


def _events_of(played: PlayedMachine) -> str:
    """Return how many faults a year has that no table counts, as expected."""
    table = played.machine.table
    found = [
        f"{one.events / table.days * 365:.3g} {UNCOUNTED[one.name]}" for one in table.classes if one.name in UNCOUNTED
    ]
    return ", ".join(found) or "-"


def _given(config: GoodputYearConfig) -> str:
    given = config.year.given
    return (
        f"programs initialise for {format_time(given.initialise)}, a node copies "
        f"{format_bandwidth(given.copy_rate / 8)}, {config.year.spare} spare nodes"
    )


def _sweep_note(config: GoodputYearConfig, sweep: str) -> str:
    if sweep == "spare":
        return "of the time of all nodes, spare ones included"
    year = config.year
    return (
        f"of the job's time; given: {year.slow_nics:g} slow NICs per 1,000 node-days, a validation takes "
        f"{format_time(year.validates)}, {year.given.exposed_communication:.0%} of a step waits for communication"
    )


def _optimum_table(composed: Composed) -> SummaryTable:
    rows: list[Row] = []
    for curve in composed.curves:
        best = best_interval(composed.points, curve.machine, curve.way)
        if best is not None:
            rows.append(
                [
                    curve.machine,
                    curve.way,
                    quantity(best.value, "time"),
                    quantity(best.goodput.median, ".2%"),
                    quantity(curve.young_s, "time"),
                    quantity(curve.daly_s, "time"),
                    quantity(max(curve.goodput), ".2%"),
                ]
            )
    columns = ["machine", "checkpoints", "best of the sweep", "goodput", "Young", "Daly", "best by Daly's model"]
    return SummaryTable("The interval between checkpoints", columns, rows, COMPOSED)
