"""How much of its bandwidth does a program keep as the traffic of others grows, and does its lane protect it?

HFReduce and storage readers play together in every phase, with flows of others at a growing load, from none to far more
than a NIC carries; then HFReduce with storage readers at a growing queue depth. All of it in each queueing, with the
same seeds. A lane promises a program its share of the bandwidth that the program has alone: shares are guaranteed at
every port, whatever the other lanes do (Fire-Flyer 2, arXiv 2408.14158v2, VI-A1).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import AfterValidator, Field

from fabric.config import TimeS
from fabric.delivered import acknowledged_bytes
from fabric.metrics import Metric, by_phase, metrics_of
from fabric.model.lanes import Queueing, ServiceLevel, plan_lanes
from fabric.model.network import Fabric
from fabric.records.cells import Cell, Quantity, Row, count_of, measured, quantity
from fabric.records.summary_table import SummaryTable
from fabric.units import exact
from runs.config import QueueingsConfig, counted_faults, storage_faults
from runs.counted_operations import NOTE, counted_s, operation_metrics
from runs.jobs import hfreduce_flows, hfreduce_ranks, started
from runs.phase_lengths import PhaseLengths
from runs.placement import OrderedRanks
from runs.session import PhaseOutcome, Session
from traffic.collectives.hfreduce import HFReduceConfig, HFReduceJob
from traffic.flows.background import BackgroundConfig, BackgroundJob
from traffic.job import Job
from traffic.storage.config import StorageConfig
from traffic.storage.job import StorageJob

HFREDUCE, READS = "hfreduce.algbw_Bps", "read.bandwidth_Bps"
HFREDUCE_ALONE, STORAGE_ALONE = "hfreduce_alone", "storage_alone"
Duration = Annotated[TimeS, Field(gt=0)]


def _rising(values: list[Any]) -> list[Any]:
    if values != sorted(set(values)):
        raise ValueError(f"{values} does not rise; name each value once, the least first")
    return values


Loads = Annotated[
    list[Annotated[float, Field(ge=0, le=100, strict=False)]], Field(min_length=1), AfterValidator(_rising)
]
"""Loads in fractions of a NIC's rate, rising."""
Depths = Annotated[list[Annotated[int, Field(ge=0, le=65_536)]], AfterValidator(_rising)]
"""How many batches each storage client keeps asked for, rising."""


class ProtectionConfig(QueueingsConfig, OrderedRanks):
    """The loads, and how long each plays: measured is from ``warm_up`` after its begin to ``phase_time``."""

    other_loads: Loads = Field(
        description=(
            "Loads that flows of others offer to each NIC, as fractions of its rate, rising; HFReduce and "
            "storage play beside them."
        )
    )
    storage_depths: Depths = Field(
        default_factory=list,
        description="In place of other flows: batches that each storage client keeps asked for, rising.",
    )
    warm_up: Duration = Field(default=2.0, description="Begin of each phase that is not measured.")
    phase_time: Duration = Field(default=8.0, description="Length of each phase, warm-up included.")
    hfreduce: HFReduceConfig = Field(default_factory=HFReduceConfig, description="The allreduce that plays.")
    storage: StorageConfig = Field(default_factory=StorageConfig, description="The reads and writes that play.")
    background: BackgroundConfig = Field(
        default_factory=BackgroundConfig,
        description="The flows of others, whose `load` each of `other_loads` replaces.",
    )

    @property
    def phase_lengths(self) -> PhaseLengths:
        """All phases are as long."""
        return PhaseLengths.of(self, "phase_time")

    def faults(self, fabric: Fabric) -> Iterator[str]:
        """Yield what does not fit the fabric or each other."""
        yield from super().faults(fabric)
        yield from storage_faults(fabric, "the experiment protects storage")
        if self.storage.dataloader.share == 0:
            yield "storage.dataloader.share: 0, so nobody reads, but the experiment protects reads; raise it"
        yield from counted_faults(fabric, self.phase_time, self.warm_up)

    @property
    def beside_others(self) -> list[LoadPoint]:
        """The growing loads of others."""
        return [LoadPoint(load, self.storage.dataloader.depth) for load in self.other_loads]

    @property
    def beside_storage(self) -> list[LoadPoint]:
        """The growing loads of storage; with those beside others that are of storage alone."""
        if not self.storage_depths:
            return []
        without_others = [point for point in self.beside_others if not point.other_load]
        found = {*without_others, *(LoadPoint(0.0, depth) for depth in self.storage_depths)}
        return sorted(found, key=lambda point: point.storage_depth)

    @property
    def points(self) -> list[LoadPoint]:
        """What is played in each queueing, in order."""
        return list(dict.fromkeys([*self.beside_others, *self.beside_storage]))


@dataclass(frozen=True)
class LoadPoint:
    """What plays beside HFReduce: flows of others, and storage readers; 0 of either is none."""

    other_load: float
    storage_depth: int

    def phase(self, queueing: Queueing) -> str:
        """Return the name of its phase."""
        return f"{queueing.value}_other_{exact(self.other_load)}_depth_{self.storage_depth}"

    def title(self, queueing: Queueing) -> str:
        """Return the title of its phase."""
        storage = f"storage at depth {self.storage_depth}" if self.storage_depth else "no storage"
        return f"{storage}, others at {self.other_load:.0%}, in {queueing.words}"


def run_protection(session: Session, config: ProtectionConfig) -> dict[str, Any]:
    """Play each program alone, then all loads in each queueing, and return the summary."""
    ranks = hfreduce_ranks(session, config.hfreduce, config.rank_order)
    hfreduce = HFReduceJob(session.stage, config.hfreduce, ranks)
    others = BackgroundJob(session.stage, config.background, session.live.fabric.computes)
    storage = _storage(session, config, config.storage.dataloader.depth)
    with started(session, (hfreduce, storage, others)):
        session.use_queueing(config.queueings[0])
        session.run_phase(HFREDUCE_ALONE, "hfreduce alone", [hfreduce], config.phase_time)
        session.run_phase(STORAGE_ALONE, "storage alone", [storage], config.phase_time)
        for queueing in config.queueings:
            session.use_queueing(queueing)
            for point in config.points:
                _play(session, config, point, _Jobs(hfreduce, storage, others))
    sent = sum(share for _, _, share in hfreduce_flows(hfreduce))
    return summarize(session, config, sent)


@dataclass(frozen=True)
class _Jobs:
    hfreduce: HFReduceJob
    storage: StorageJob
    others: BackgroundJob


def _storage(session: Session, config: ProtectionConfig, depth: int) -> StorageJob:
    dataloader = config.storage.dataloader.model_copy(update={"depth": depth})
    storage = config.storage.model_copy(update={"dataloader": dataloader})
    return StorageJob(session.stage, storage, session.live.fabric.computes)


def _play(session: Session, config: ProtectionConfig, point: LoadPoint, jobs: _Jobs) -> None:
    """Play a load. Others are halted first, or the last step of a starved HFReduce would take a minute."""
    queueing = session.queueing
    playing: list[Job] = [jobs.hfreduce]
    if point.other_load:
        jobs.others.load = point.other_load
        playing.insert(0, jobs.others)
    extra: list[Job] = []
    if point.storage_depth == config.storage.dataloader.depth:
        playing.append(jobs.storage)
    elif point.storage_depth:
        extra.append(_storage(session, config, point.storage_depth))
    with started(session, extra):
        session.run_phase(point.phase(queueing), point.title(queueing), [*playing, *extra], config.phase_time)


Figures = Mapping[str, Mapping[str, float]]
"""The numbers of each phase by name."""


def summarize(session: Session, config: ProtectionConfig, sent_fraction: float) -> dict[str, Any]:
    """Return the tables and metrics of a run. ``sent_fraction``: what all ranks send in a step, over its size."""
    measured = [metric for one in session.phases for metric in _phase_metrics(session, config, one, sent_fraction)]
    figures = by_phase(measured)
    curves = _curves(config, figures)
    return {
        "title": "Protection: what HFReduce and storage keep as the traffic of others grows",
        "answer": _answer(config, curves),
        "metrics": measured,
        "tables": [
            _others_table(config, figures),
            *([_depths_table(config, figures)] if config.beside_storage else []),
            _completion_table(config, figures),
            _network_table(config, figures),
        ],
        "protection": curves,
    }


def _phase_metrics(
    session: Session, config: ProtectionConfig, outcome: PhaseOutcome, sent_fraction: float
) -> Iterator[Metric]:
    """Yield all numbers of a phase; what did not play has none. They are of the time after the warm-up, while
    all of the load plays.

    HFReduce's bandwidth is of bytes delivered, so that steps that did not end count as far as they got.
    """
    phase = outcome.phase
    from_s, until_s = counted_s(phase, config.warm_up)
    flows = _of_phase(session, "flows", phase.name)
    operations = _of_phase(session, "operations", phase.name)
    trees = flows[flows["service_level"] == ServiceLevel.HFREDUCE.label]
    if not trees.empty:
        delivered = acknowledged_bytes(trees, from_s, until_s)
        algbw_Bps = delivered / sent_fraction / (until_s - from_s)  # noqa: N806 - bytes, not bits
        yield Metric(phase.name, ServiceLevel.HFREDUCE.label, "algbw_Bps", algbw_Bps)
    reads = operation_metrics(operations, "read", (from_s, until_s))
    yield from metrics_of(phase.name, ServiceLevel.STORAGE.label, reads, is_named_by_job=False)
    flows_of_others = operation_metrics(operations, "flow", (from_s, until_s), "")
    yield from metrics_of(phase.name, ServiceLevel.OTHER.label, flows_of_others)
    network = {
        "drops_packets": outcome.conservation.dropped_by_queues,
        "sent_packets": outcome.conservation.sent_packets,
        "retransmissions": outcome.conservation.retransmissions,
    }
    yield from metrics_of(phase.name, "", network)


def _of_phase(session: Session, table: str, phase: str) -> Any:
    rows = session.table(table)
    return rows[rows["phase"] == phase]


def promised_share(config: ProtectionConfig, level: ServiceLevel) -> float:
    """Return what fraction of every link a level's lane has whatever the others do."""
    return plan_lanes(config.queues, Queueing.LANES).guaranteed_share(level)


@dataclass(frozen=True)
class _Load:
    """What grows from left to right in a panel: its axis, its values, and the points at which it has them."""

    axis: str
    is_fraction: bool
    values: Sequence[float]
    points: Sequence[LoadPoint]


@dataclass(frozen=True)
class _Panel:
    """A program beside a growing load."""

    title: str
    metric: str
    level: ServiceLevel
    alone: str
    load: _Load


def _panels(config: ProtectionConfig) -> list[_Panel]:
    offered = "load offered by flows of others, of each NIC's rate"
    others = _Load(offered, True, config.other_loads, config.beside_others)
    panels = [
        _Panel("HFReduce, algbw, with storage and others", HFREDUCE, ServiceLevel.HFREDUCE, HFREDUCE_ALONE, others),
        _Panel("Storage reads with HFReduce and others", READS, ServiceLevel.STORAGE, STORAGE_ALONE, others),
    ]
    if points := config.beside_storage:
        asked = "batches in flight per storage client"
        storage = _Load(asked, False, [float(point.storage_depth) for point in points], points)
        title = "HFReduce, algbw, with storage only"
        panels.append(_Panel(title, HFREDUCE, ServiceLevel.HFREDUCE, HFREDUCE_ALONE, storage))
    return panels


def _curves(config: ProtectionConfig, figures: Figures) -> dict[str, Any]:
    """Return what the figure draws: one panel per program and load, one curve per queueing."""
    return {
        "panels": [
            {
                "title": panel.title,
                "axis": panel.load.axis,
                "is_fraction": panel.load.is_fraction,
                "alone_Bps": figures[panel.alone].get(panel.metric, math.nan),
                "promised_share": promised_share(config, panel.level),
                "lane": plan_lanes(config.queues, Queueing.LANES).lane_of(panel.level).name,
                "loads": list(panel.load.values),
                "curves": {
                    queueing.value: [figures[point.phase(queueing)].get(panel.metric) for point in panel.load.points]
                    for queueing in config.queueings
                },
            }
            for panel in _panels(config)
        ]
    }


def _answer(config: ProtectionConfig, curves: Mapping[str, Any]) -> str:
    """Return what is left at the greatest load of others."""
    told = []
    for name, panel in zip(("HFReduce", "storage reads"), curves["panels"], strict=False):
        kept = [
            f"{_part_of(panel['curves'][queueing.value][-1], panel['alone_Bps']).words} in {queueing.words}"
            for queueing in config.queueings
        ]
        told.append(f"{name}: {', '.join(kept)} (promised in lanes: {panel['promised_share']:.0%})")
    offered = f"flows that offer {config.other_loads[-1]:.0%} of every NIC's rate"
    return f"Of their bandwidth alone, programs keep, next to {offered}: {'; '.join(told)}."


def _part_of(value: float | None, alone: float) -> Quantity:
    return quantity(None if value is None or not alone else value / alone, ".0%")


def _point_rows(
    config: ProtectionConfig, figures: Figures, points: Sequence[LoadPoint], name: Callable[[LoadPoint], Quantity]
) -> list[Row]:
    """Return one row per point and queueing: bandwidth of HFReduce and of reads, and its fraction of that alone."""
    rows: list[Row] = []
    for point in points:
        label: Cell = name(point)
        for queueing in config.queueings:
            found = figures[point.phase(queueing)]
            cells: Row = []
            for key, alone in ((HFREDUCE, HFREDUCE_ALONE), (READS, STORAGE_ALONE)):
                cells += [measured(found, key), _part_of(found.get(key), figures[alone].get(key, math.nan))]
            rows.append([label, queueing.words, *cells, measured(found, "other.bandwidth_Bps")])
            label = ""
    return rows


def _promises(config: ProtectionConfig) -> str:
    shares = {level: promised_share(config, level) for level in (ServiceLevel.HFREDUCE, ServiceLevel.STORAGE)}
    told = " and ".join(f"{share:.0%} ({level.label})" for level, share in shares.items())
    return f"lanes promise {told} of a program's bandwidth alone, whatever the others do"


_COLUMNS = ["HFReduce, algbw", "of alone", "storage reads", "of alone", "flows of others, completed"]


def _others_table(config: ProtectionConfig, figures: Figures) -> SummaryTable:
    return SummaryTable(
        title="Under growing load of others",
        columns=["others offer, of each NIC", "in", *_COLUMNS],
        rows=_point_rows(config, figures, config.beside_others, lambda point: quantity(point.other_load, ".0%")),
        note=_promises(config),
    )


def _depths_table(config: ProtectionConfig, figures: Figures) -> SummaryTable:
    return SummaryTable(
        title="With storage only, under growing queue depth",
        columns=["batches per client", "in", *_COLUMNS],
        rows=_point_rows(config, figures, config.beside_storage, lambda point: count_of(point.storage_depth)),
        note="a client has one connection per storage node, however much it asks for",
    )


def _network_table(config: ProtectionConfig, figures: Figures) -> SummaryTable:
    rows: list[Row] = []
    for point in config.points:
        for queueing in config.queueings:
            found = figures[point.phase(queueing)]
            counts = [measured(found, name, ",.0f") for name in ("sent_packets", "drops_packets", "retransmissions")]
            rows.append([quantity(point.other_load, ".0%"), count_of(point.storage_depth), queueing.words, *counts])
    columns = ["others", "storage depth", "in", "packets sent", "dropped by queues", "retransmissions"]
    return SummaryTable(title="Network", columns=columns, rows=rows)


def _completion_table(config: ProtectionConfig, figures: Figures) -> SummaryTable:
    """Return how long reads and flows took that began in the counted time, and how many did not complete."""
    rows: list[Row] = []
    for point in config.points:
        for queueing in config.queueings:
            found = figures[point.phase(queueing)]
            reads = [measured(found, "read.p99_s"), measured(found, "read.failed")]
            flows = [measured(found, "other.p99_s"), *(measured(found, f"other.{name}") for name in _OUTCOMES)]
            rows.append(
                [quantity(point.other_load, ".0%"), count_of(point.storage_depth), queueing.words, *reads, *flows]
            )
    columns = ["others", "storage depth", "in", "p99 of reads", "reads failed", "p99 of flows"]
    note = f"{NOTE}; refused: the flow arrived while max_flows of its host were running, and did not start"
    counted = ["completed", "abandoned", "failed", "refused"]
    return SummaryTable(title="Completion of reads and flows", columns=[*columns, *counted], rows=rows, note=note)


_OUTCOMES = ("operations", "abandoned", "failed", "refused")
