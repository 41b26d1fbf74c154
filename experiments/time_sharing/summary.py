"""What a run of ``time_sharing`` says: tables, numbers, and what its figures are drawn from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from cluster.jobs.spans import LifeSpan
from cluster.sharing.bounds import BoundedWait
from cluster.sharing.composed import COLUMNS, Played, Point, nodes_words, over_seeds, row_of
from cluster.sharing.measures import Waits
from cluster.sharing.packets import SuspendCost, median
from cluster.simulation.costs import Costs
from experiments.time_sharing.config import TimeSharingConfig
from experiments.time_sharing.measures import COST
from fabric.metrics import Metric, metric_path
from fabric.records.cells import Cell, Row, count_of, quantity
from fabric.records.summary_table import SummaryTable

_COSTS = ("start", "answer", "suspend_save")
_ALL = "list"


@dataclass(frozen=True)
class Found:
    """All that a run has found: the list under each policy with packets, what suspends cost, what was measured of that,
    the same list and longer ones composed of it, the waits with packets that have a bound, other seeds of the list,
    composed, and on how many nodes the longer ones were played."""

    packets: Sequence[Played]
    suspends: Mapping[str, Sequence[SuspendCost]]
    costs: Costs
    composed: Sequence[Played]
    points: Sequence[Point]
    bounds: Mapping[str, Sequence[BoundedWait]] = field(default_factory=dict)
    seeds: Sequence[Point] = ()
    composed_nodes: int = 0


@dataclass(frozen=True)
class Agreement:
    """Whether processes, messages and clocks add turns to what the scheduler decides: decisions (a job starts, or is
    told to leave) that platform and simulation made in the same turn, of all that either made; and by how much waits of
    whole jobs differ, in seconds. The scheduler, the list and the costs of both are the same: this says nothing of
    those."""

    same: int
    all: int
    mean_s: float
    most_s: float


def agreement(one: Played, other: Played, tick_s: float) -> Agreement:
    """Compare a list that was played twice."""
    mine, others = (_decisions(played.lives, tick_s) for played in (one, other))
    apart = np.array([abs(a - b) for a, b in zip(_waits(one), _waits(other), strict=True)])
    return Agreement(len(mine & others), len(mine | others), float(apart.mean()), float(apart.max()))


def _decisions(lives: Sequence[LifeSpan], tick_s: float) -> set[tuple[str, int, int]]:
    starts = {("start", life.job, round(life.began_s / tick_s)) for life in lives}
    return starts | {("leave", life.job, round(life.told_s / tick_s)) for life in lives if life.told_s is not None}


def _waits(played: Played) -> list[float]:
    waited = dict.fromkeys((job.number for job in played.jobs), 0.0)
    for life in played.lives:
        waited[life.job] += life.waited_s
    return list(waited.values())


def summarize(config: TimeSharingConfig, found: Found) -> dict[str, Any]:
    """Return the tables, metrics and answer of a run."""
    agreed = {one.policy: agreement(one, other, config.timers.tick) for one, other in _pairs(found)}
    return {
        "title": "Jobs that share a cluster in time",
        "answer": " ".join(_sentences(found, agreed)),
        "metrics": list(_metrics(found, agreed)),
        "tables": list(_tables(config, found, agreed)),
        "time_sharing": {
            "waits_s": {one.policy: sorted(_waits(one)) for one in found.packets},
            "points": [
                {"policy": one.policy, "load": one.load, "seed": one.seed, **one.measures.numbers()}
                for one in found.points
            ],
            "composed_nodes": None if config.composed is None else found.composed_nodes,
            "composed_nodes_asked": None if config.composed is None else config.composed.nodes,
            "measured": {name: getattr(found.costs, name) for name in _COSTS},
        },
    }


def _pairs(found: Found) -> list[tuple[Played, Played]]:
    """Return each policy's list as it was played with packets and as it was composed; Slurm's is not composed."""
    composed = {one.policy: one for one in found.composed}
    return [(one, composed[one.policy]) for one in found.packets if one.policy in composed]


def _sentences(found: Found, agreed: Mapping[str, Agreement]) -> Iterator[str]:
    parts = [
        f"{one.policy} {one.measures.waits.mean_s:,.0f} s mean, {one.measures.use.waiting:.0%} used while one waits"
        for one in found.packets
    ]
    yield f"Waits with packets: {'; '.join(parts)}."
    several = [cost for costs in found.suspends.values() for cost in costs]
    if several:
        start_s = median(cost.others_start_s for cost in several)
        away_s = median(cost.again_s for cost in several)
        parts = [] if start_s is None else [f"others have the nodes {start_s:.2f} s after the notice"]
        parts += [] if away_s is None else [f"a job makes steps {away_s:.2f} s after it has nodes again"]
        yield f"{len(several)} suspends (medians): {', '.join(parts)}."
    if not agreed:
        return
    same, count = (sum(getattr(one, name) for one in agreed.values()) for name in ("same", "all"))
    yield (
        f"The simulation, which has the same scheduler and the costs measured here, makes {same} of {count} decisions "
        "in the same turn: what processes and messages add, beside those costs."
    )


def _metrics(found: Found, agreed: Mapping[str, Agreement]) -> Iterator[Metric]:
    for one in found.packets:
        for name, value in one.measures.numbers().items():
            yield Metric(one.policy, _ALL, name, value, is_named_by_job=False)
    for name, agreement_ in agreed.items():
        yield Metric(name, _ALL, "composed.same_fraction", agreement_.same / agreement_.all, is_named_by_job=False)
        yield Metric(name, _ALL, "composed.wait_apart_most_s", agreement_.most_s, is_named_by_job=False)
    for policy, waits in found.bounds.items():
        if waits:
            held = sum(one.waited_s <= one.bound_s for one in waits) / len(waits)
            yield Metric(policy, _ALL, "bound.held_fraction", held, is_named_by_job=False)
    for cost in _COSTS:
        yield Metric("measured", _ALL, COST.of(cost), getattr(found.costs, cost), is_named_by_job=False)
    for policy in dict.fromkeys(one.policy for one in found.seeds):
        for name in ("used_waiting_fraction", "wait_mean_s"):
            median_ = over_seeds(found.seeds, policy, found.seeds[0].load, name)
            if median_ is not None:
                yield Metric(
                    policy, _ALL, metric_path("composed", "seeds", name), median_.median, is_named_by_job=False
                )
    for policy, load in dict.fromkeys((one.policy, one.load) for one in found.points):
        for name in ("used_waiting_fraction", "used_arriving_fraction", "wait_mean_s"):
            median_ = over_seeds(found.points, policy, load, name)
            if median_ is not None:
                at_load = f"load_{round(100 * load)}"  # In percent: a point would part the name.
                path = metric_path("composed", at_load, name)
                yield Metric(policy, _ALL, path, median_.median, is_named_by_job=False)


def _tables(config: TimeSharingConfig, found: Found, agreed: Mapping[str, Agreement]) -> Iterator[SummaryTable]:
    listed = config.listed
    jobs = f"{len(listed.jobs)} jobs {listed.what} on {config.nodes} nodes"
    yield _whole_table(f"With packets: {jobs}", found.packets, config, listed.said())
    yield _parts_table(found.packets)
    yield _suspends_table(found)
    if any(found.bounds.values()):
        yield _bounds_table(found.bounds)
    yield _agreement_table(found, agreed)
    if found.seeds:
        yield _seeds_table(config, found.seeds)
    if found.points:
        yield _composed_table(config, found)


def _whole_table(title: str, played: Sequence[Played], config: TimeSharingConfig, note: str) -> SummaryTable:
    rows = [
        [one.policy, *row_of([Point(one.policy, 0.0, config.seed, one.measures)], one.policy, 0.0)] for one in played
    ]
    return SummaryTable(title, ["policy", *COLUMNS], rows, note or None)


def _parts_table(played: Sequence[Played]) -> SummaryTable:
    rows = []
    for one in played:
        for kind, parts in (("priority", one.measures.by_priority), ("nodes", one.measures.by_size)):
            rows += [[one.policy, f"{kind} {name.replace('_', ' ')}", *_cells(waits)] for name, waits in parts.items()]
    return SummaryTable(
        "Waits with packets, by priority and by size",
        ["policy", "jobs of", "jobs", "mean s", "median s", "95 % s", "most s"],
        rows,
    )


def _cells(waits: Waits) -> Row:
    return [
        waits.jobs,
        *(quantity(value, ",.0f in s") for value in (waits.mean_s, waits.median_s, waits.p95_s, waits.most_s)),
    ]


def _suspends_table(found: Found) -> SummaryTable:
    names = ("answered_s", "left_s", "others_start_s", "others_step_s", "again_s", "away_s", "lost_s")
    rows: list[Row] = []
    for policy, costs in found.suspends.items():
        values = [[asdict(cost)[name] for cost in costs] for name in names]
        rows.append([policy, len(costs), *(_spread(each) for each in values)])
    return SummaryTable(
        "One suspend, with packets: medians in s (most)",
        ["policy", "suspends", "notice answered", "all have left", "others start", "others make steps",
         "own restart", "away in all", "steps lost"],
        rows,
        "the first four from the notice on; own restart: from having nodes again to making steps; away: from the "
        "answer to making steps again, mostly the time for which others had the nodes",
    )  # fmt: skip


def _spread(values: Sequence[float | None]) -> Cell:
    known = [value for value in values if value is not None]
    return (
        (quantity(float(np.median(known)), ".2f in s"), " (", quantity(max(known), ".2f in s"), ")") if known else None
    )


def _bounds_table(bounds: Mapping[str, Sequence[BoundedWait]]) -> SummaryTable:
    rows: list[Row] = []
    for policy, waits in bounds.items():
        if not waits:
            continue
        closest = max(waits, key=lambda one: one.waited_s / one.bound_s)
        late = [one.job for one in waits if one.waited_s > one.bound_s]
        cells = [quantity(seconds, ",.0f in s") for seconds in (max(one.waited_s for one in waits), *_of(closest))]
        rows.append([policy, len(waits), *cells, f"no: jobs {late}" if late else "yes"])
    return SummaryTable(
        "Waits with packets that have a bound by HAI's rules",
        ["policy", "jobs with a bound", "longest wait s", "closest to its bound s", "that bound s", "all held"],
        rows,
        "jobs that have room beside all that users may have at higher levels by their quotas, as those of the highest "
        "level have; the wait for their first nodes",
    )


def _of(one: BoundedWait) -> tuple[float, float]:
    return one.waited_s, one.bound_s


def _agreement_table(found: Found, agreed: Mapping[str, Agreement]) -> SummaryTable:
    rows: list[Row] = []
    for one, other in _pairs(found):
        same = agreed[one.policy]
        rows.append(
            [
                one.policy,
                (count_of(same.same), " of ", count_of(same.all)),
                *(quantity(played.measures.waits.mean_s, ",.1f in s") for played in (one, other)),
                quantity(same.mean_s, ",.2f in s"),
                quantity(same.most_s, ",.1f in s"),
            ]
        )
    costs = ", ".join(f"{name.replace('_', ' ')} {getattr(found.costs, name):.3f} s" for name in _COSTS)
    return SummaryTable(
        "What processes and messages add to turns: packets beside the simulation",
        ["policy", "decisions in the same turn", "wait, packets s", "composed s", "apart, mean s", "most s"],
        rows,
        (
            "the simulation has the same scheduler and list, and costs that are medians of these very packets: they "
            "say nothing of rules or costs; decisions: a job starts, or has to leave",
            f"costs: {costs}",
        ),
    )  # fmt: skip


def _seeds_table(config: TimeSharingConfig, points: Sequence[Point]) -> SummaryTable:
    load = config.job_list.load
    return SummaryTable(
        f"The list of {config.list_seeds} seeds, composed of the costs measured here",
        ["policy", *COLUMNS],
        [[policy, *row_of(points, policy, load)] for policy in dict.fromkeys(one.policy for one in points)],
        f"seeds {config.seeds[0]} to {config.seeds[-1]}; medians [95 % interval of the median]",
    )


def _composed_table(config: TimeSharingConfig, found: Found) -> SummaryTable:
    assert config.composed is not None, "there are points"
    cases = dict.fromkeys((one.load, one.policy) for one in found.points)
    rows: list[Row] = [[quantity(load, "g"), policy, *row_of(found.points, policy, load)] for load, policy in cases]
    nodes = nodes_words(found.composed_nodes, config.composed.nodes)
    return SummaryTable(
        f"Composed of the costs measured here: {config.composed.jobs.count} jobs on {nodes}",
        ["load", "policy", *COLUMNS],
        rows,
        f"not played with packets; medians of {config.composed.repeat} seeds [95 % interval of the median]",
    )
