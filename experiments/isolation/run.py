"""Do lanes keep training, storage and other traffic out of each other's way?

Phases on one fabric: HFReduce, NCCL, storage and other traffic each alone, in the first queueing of ``queueings``; then
all at once in each of them: one shared queue per port, lanes, and the same two without loss. The same jobs and seeds
play in all phases, so phases differ only in the other traffic and in the queues. Fire-Flyer 2 maps each kind to a
Virtual Lane with a share (arXiv 2408.14158v2, VI-A1).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Annotated, Any

import pandas as pd
from pydantic import Field

from experiments.run.config import QueueingsConfig, storage_faults
from experiments.run.counted_operations import (
    NOTE,
    PERCENTILES,
    operation_metrics,
    percentile_of,
    told_ratio,
    told_time,
)
from experiments.run.job_metrics import collective_medians, sent_by_port
from experiments.run.jobs import hfreduce_ranks, ordered_ranks, started
from experiments.run.placement import RankOrder
from experiments.run.session import PhaseOutcome, Session
from experiments.run.stall_metrics import stall_metrics, stalls_tables
from fabric.config import TimeS
from fabric.measure.level_counter import LevelCounter
from fabric.model.identity import NodeId, Role
from fabric.model.lanes import DATA_LEVELS, Queueing, ServiceLevel, plan_lanes
from fabric.model.network import Fabric, Port
from fabric.units import format_bandwidth, format_rate, format_time
from traffic import metrics
from traffic.collectives.hfreduce import HFReduceConfig, HFReduceJob
from traffic.collectives.nccl import NcclConfig, NcclJob, nccl_flows, sent_fraction
from traffic.flows.background import BackgroundConfig, BackgroundJob
from traffic.job import Job, Records
from traffic.storage.config import StorageConfig
from traffic.storage.job import StorageJob
from traffic.storage.verification import Verification

QUESTION = "What do training and storage cost each other in one shared queue, and what in lanes?"
_COLLECTIVES = (ServiceLevel.HFREDUCE, ServiceLevel.NCCL)
Duration = Annotated[TimeS, Field(gt=0)]
Shares = dict[str, dict[ServiceLevel, float]]
"""Bytes a second of each service level at the busiest port, by phase."""


class IsolationConfig(QueueingsConfig):
    """The jobs and how long they play."""

    alone_time: Duration = 8.0
    together_time: Duration = 30.0
    hfreduce: HFReduceConfig = Field(default_factory=HFReduceConfig)
    rank_order: Annotated[RankOrder, Field(strict=False)] = RankOrder.ROUTES
    nccl: NcclConfig = Field(default_factory=NcclConfig)
    nccl_nodes: Annotated[int, Field(ge=2, le=65_536)] = 8
    storage: StorageConfig = Field(default_factory=StorageConfig)
    background: BackgroundConfig = Field(default_factory=BackgroundConfig)

    def faults(self, fabric: Fabric) -> Iterator[str]:
        """Yield what does not fit the fabric."""
        yield from super().faults(fabric)
        in_zone = len(fabric.with_role(Role.COMPUTE, zone=0))
        if self.nccl_nodes > in_zone:
            limit = f"exceeds the {in_zone} compute nodes of zone 0"
            yield f"nccl_nodes: {self.nccl_nodes} {limit}; only HFReduce crosses zones"
        yield from storage_faults(fabric, "the experiment isolates storage")


def run_isolation(session: Session, config: IsolationConfig) -> dict[str, Any]:
    """Play all phases and return the summary."""
    with all_jobs(session, config) as jobs:
        session.use_queueing(config.queueings[0])
        for job in jobs.values():
            name = job.level.label
            session.run_phase(f"{name}_alone", f"{name} alone", [job], config.alone_time)
        port = busiest_switch_port(session.table("ports"), session.live.fabric)
        counter = LevelCounter(session.pool, {port: session.live.emulation.namespace_of_port(port)})
        at_port: Shares = {}
        for queueing in config.queueings:
            session.use_queueing(queueing)
            first, *others = jobs.values()
            watched = WatchedJob(first, lambda: counter.read()[port])
            title = f"all in {queueing.words}"
            session.run_phase(queueing.value, title, [watched, *others], config.together_time)
            at_port[queueing.value] = watched.levels_Bps
        verification = jobs[ServiceLevel.STORAGE].verify_acknowledged()
    return summarize(session, config, port, at_port, verification)


class WatchedJob:
    """The job that begins first and is halted first, and what a port sent meanwhile: ``levels_Bps``, in bytes per
    second of each service level, from its begin until it was told to halt. ``read`` returns the bytes since the last
    reading, ``now`` the time. What others and the job itself send after that is of a load that no longer plays."""

    def __init__(
        self,
        job: Job,
        read: Callable[[], Mapping[ServiceLevel, int]],
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name, self.level = job.name, job.level
        self.levels_Bps: dict[ServiceLevel, float] = {}
        self._job, self._read, self._now = job, read, now
        self._began = 0.0

    def start(self) -> None:
        """Start the job."""
        self._job.start()

    def play(self, phase: str) -> None:
        """Begin to count, and to play."""
        self._read()
        self._began = self._now()
        self._job.play(phase)

    def halt(self) -> Records:
        """End the count, and the job."""
        counted, seconds = self._read(), self._now() - self._began
        self.levels_Bps = {level: size / seconds for level, size in counted.items()}
        return self._job.halt()

    def close(self) -> None:
        """Close the job."""
        self._job.close()


@contextmanager
def all_jobs(session: Session, config: IsolationConfig) -> Iterator[dict[ServiceLevel, Any]]:
    """Start the four kinds of traffic for the time of a block; collectives first, so that they are halted first."""
    stage, computes = session.stage, session.live.fabric.computes
    made: tuple[Job, ...] = (
        HFReduceJob(stage, config.hfreduce, hfreduce_ranks(session, config.hfreduce, config.rank_order)),
        NcclJob(stage, config.nccl, _nccl_ranks(session, config)),
        StorageJob(stage, config.storage, computes),
        BackgroundJob(stage, config.background, computes),
    )
    with started(session, made):
        yield {job.level: job for job in made}


def _nccl_ranks(session: Session, config: IsolationConfig) -> tuple[NodeId, ...]:
    """Return the first computes: one zone's as far as they go."""
    ranks = session.live.fabric.computes[: config.nccl_nodes]
    return ordered_ranks(session, config.rank_order, ranks, nccl_flows(config.nccl.algorithm, len(ranks)))


def busiest_switch_port(ports: pd.DataFrame, fabric: Fabric) -> Port:
    """Return the port of a switch that sends the most, as a fraction of its link, summed over phases played alone."""
    by_name = {str(port): port for port, _ in fabric.directed_ports() if port.node.is_switch}
    totals = sent_by_port(ports[ports["port"].isin(by_name)])
    relative = {name: total / fabric.link_at[by_name[name]].rate_bps for name, total in totals.items()}
    return by_name[max(relative, key=lambda name: relative[name])]


def summarize(
    session: Session, config: IsolationConfig, port: Port, at_port: Shares, verification: Verification
) -> dict[str, Any]:
    """Return the tables and metrics of a run."""
    fabric = session.live.fabric
    lanes = plan_lanes(config.queues, Queueing.LANES)
    ideal = {
        ServiceLevel.HFREDUCE.label: metrics.ideal_hfreduce_algbw(fabric.nic_rate_bps),
        ServiceLevel.NCCL.label: metrics.ideal_algbw(
            fabric.nic_rate_bps, sent_fraction(config.nccl.algorithm, config.nccl_nodes)
        ),
    }
    figures = {outcome.phase.name: _phase_metrics(session, outcome) for outcome in session.phases}
    titles = {outcome.phase.name: outcome.phase.title for outcome in session.phases}
    return {
        "title": "Isolation: training, storage and other traffic on one fabric",
        "answer": _answer(config, figures),
        "lane_shares": {lane.name: lane.share for lane in lanes.lanes},
        "ideal_algbw_Bps": ideal,
        "metrics": {f"{phase}.{name}": value for phase, found in figures.items() for name, value in found.items()},
        "tables": [
            _collectives_table(session, figures, ideal),
            _storage_table(session, figures),
            _background_table(session, figures),
            _network_table(session, figures),
            *stalls_tables(titles, figures),
            _shares_table(session, config, port, at_port),
        ],
        "side_by_side": _side_by_side(config, figures),
        "acknowledged_writes": verification.counts,
    }


def _phase_metrics(session: Session, outcome: PhaseOutcome) -> dict[str, float]:
    """Return all numbers of a phase by name; what did not play has none."""
    phase = outcome.phase
    steps = _of_phase(session.table("steps"), phase.name)
    operations = _of_phase(session.table("operations"), phase.name)
    found: dict[str, float] = {}
    for level in _COLLECTIVES:
        found |= _collective_metrics(level, steps[steps["service_level"] == level.label])
    for operation in ("read", "write", "flow"):
        found |= operation_metrics(operations, operation, phase.load_s)
    found["drops_packets"] = outcome.conservation.dropped_by_queues
    found["sent_packets"] = outcome.conservation.sent_packets
    found["retransmissions"] = outcome.conservation.retransmissions
    found["deepest_queue_bytes"] = _deepest_queue(session, outcome)
    return found | stall_metrics(session.table("stalls"), outcome)


def _of_phase(table: pd.DataFrame, phase: str) -> pd.DataFrame:
    return table[table["phase"] == phase]


def _collective_metrics(level: ServiceLevel, steps: pd.DataFrame) -> dict[str, float]:
    if steps.empty:
        return {}
    found = collective_medians(steps)
    found["slowest_step_s"] = float((steps["ended_s"] - steps["started_s"]).max())
    found["steps"] = len(steps)
    return {f"{level.label}.{name}": value for name, value in found.items()}


def _deepest_queue(session: Session, outcome: PhaseOutcome) -> int:
    ports = session.table("ports")
    inside = ports["at_s"].between(outcome.phase.started_s, outcome.phase.ended_s)
    return int(ports.loc[inside, "backlog_bytes"].max()) if inside.any() else 0


def _answer(config: IsolationConfig, figures: Mapping[str, Mapping[str, float]]) -> str:
    """Return the finding in a sentence."""

    def ratios(alone: str, name: str) -> list[str]:
        told = (told_ratio(figures[queueing.value], figures[alone], name, ".1f") for queueing in config.queueings)
        return [_in_words(one) for one in told]

    steps = ratios("hfreduce_alone", "hfreduce.step")
    told = [f"{step} times in {queueing.words}" for step, queueing in zip(steps, config.queueings, strict=True)]
    told[0] = f"{steps[0]} times as long as alone in {config.queueings[0].words}"
    return (
        f"With all other traffic an HFReduce step takes {_listed(told)}; the 99th percentile of storage reads is "
        f"{_listed(ratios('storage_alone', 'read.p99'))} times that alone."
    )


def _listed(parts: Sequence[str]) -> str:
    return " and ".join(part for part in (", ".join(parts[:-1]), parts[-1]) if part)


def _in_words(ratio: str | None) -> str:
    if ratio is None:
        return "an unknown number of"
    return ratio.replace("> ", "more than ").replace("< ", "less than ")


def _rows(
    session: Session,
    figures: Mapping[str, Mapping[str, float]],
    key: str,
    cells: Callable[[Mapping[str, float]], list[str]],
) -> list[list[str]]:
    """Return a table's rows: one for each phase that has ``key``."""
    titles = {outcome.phase.name: outcome.phase.title for outcome in session.phases}
    return [[titles[phase], *cells(found)] for phase, found in figures.items() if key in found]


def _times(value: float, alone: float) -> str:
    return f"{value / alone:.2f} x" if alone else "unknown"


def _collectives_table(
    session: Session, figures: Mapping[str, Mapping[str, float]], ideal: Mapping[str, float]
) -> dict[str, Any]:
    rows = []
    for level in (level.label for level in _COLLECTIVES):
        alone = figures[f"{level}_alone"].get(f"{level}.step_s", 0.0)

        def cells(found: Mapping[str, float], level: str = level, alone: float = alone) -> list[str]:
            algbw = found[f"{level}.algbw_Bps"]
            step = found[f"{level}.step_s"]
            return [
                level,
                format_bandwidth(algbw),
                format_bandwidth(found[f"{level}.busbw_Bps"]),
                f"{algbw / ideal[level]:.0%}",
                format_time(step),
                format_time(found[f"{level}.slowest_step_s"]),
                f"{found[f'{level}.steps']:.0f}",
                _times(step, alone),
            ]

        rows += _rows(session, figures, f"{level}.algbw_Bps", cells)
    columns = ["phase", "collective", "algbw", "busbw", "of ideal", "median step", "slowest", "steps", "time / alone"]
    note = "algbw and busbw as nccl-tests define them, median over steps; ideal: a full NIC at the busiest rank"
    return {"title": "Allreduce", "columns": columns, "rows": rows, "note": note}


def _storage_table(session: Session, figures: Mapping[str, Mapping[str, float]]) -> dict[str, Any]:
    rows = []
    for operation in ("read", "write"):
        alone = figures["storage_alone"].get(f"{operation}.bandwidth_Bps", 0.0)

        def cells(found: Mapping[str, float], operation: str = operation, alone: float = alone) -> list[str]:
            bandwidth = found[f"{operation}.bandwidth_Bps"]
            percentiles = [told_time(found, f"{operation}.{name}") for name in PERCENTILES]
            counts = [f"{found.get(f'{operation}.{name}', 0):.0f}" for name in ("operations", "failed")]
            return [operation, format_bandwidth(bandwidth), *percentiles, *counts, _times(bandwidth, alone)]

        rows += _rows(session, figures, f"{operation}.bandwidth_Bps", cells)
    columns = ["phase", "operation", "bandwidth", "p50", "p99", "p99.9", "completed", "failed", "bandwidth / alone"]
    note = f"percentiles of completion latency, as fio's, of operations that began while all of the load played; {NOTE}"
    return {"title": "Storage", "columns": columns, "rows": rows, "note": note}


def _background_table(session: Session, figures: Mapping[str, Mapping[str, float]]) -> dict[str, Any]:
    def cells(found: Mapping[str, float]) -> list[str]:
        percentiles = [told_time(found, f"flow.{name}") for name in PERCENTILES]
        counts = [f"{found.get(f'flow.{name}', 0):.0f}" for name in ("operations", "abandoned", "failed", "refused")]
        ratio = told_ratio(found, figures["other_alone"], "flow.p99")
        return [*percentiles, *counts, "unknown" if ratio is None else f"{ratio} x"]

    rows = _rows(session, figures, "flow.operations", cells)
    counted = ["completed", "abandoned", "failed", "refused"]
    return {
        "title": "Other traffic: completion time of flows",
        "columns": ["phase", "p50", "p99", "p99.9", *counted, "p99 / alone"],
        "rows": rows,
        "note": f"of flows that began while all of the load played; {NOTE}; refused: as max_flows of its host ran",
    }


def _network_table(session: Session, figures: Mapping[str, Mapping[str, float]]) -> dict[str, Any]:
    def cells(found: Mapping[str, float]) -> list[str]:
        drops, sent = found["drops_packets"], found["sent_packets"]
        return [
            f"{sent:.0f}",
            f"{drops:.0f}",
            f"{drops / max(1, sent):.2%}",
            f"{found['retransmissions']:.0f}",
            f"{found['deepest_queue_bytes'] / 1024:.0f} KiB",
        ]

    columns = ["phase", "packets sent", "dropped by queues", "of packets", "retransmissions", "deepest queue"]
    return {"title": "Network", "columns": columns, "rows": _rows(session, figures, "drops_packets", cells)}


_COMPARED = (
    ("HFReduce, algbw", "hfreduce.algbw_Bps", "hfreduce_alone"),
    ("NCCL, algbw", "nccl.algbw_Bps", "nccl_alone"),
    ("storage reads, bandwidth", "read.bandwidth_Bps", "storage_alone"),
    ("storage reads, p99 of latency", "read.p99_s", "storage_alone"),
    ("other flows, p99 of completion", "flow.p99_s", "other_alone"),
)


def _side_by_side(config: IsolationConfig, figures: Mapping[str, Mapping[str, float]]) -> dict[str, Any]:
    """Return what the figure of all queueings side by side shows: each measure of a phase over that alone."""
    phases = [queueing.value for queueing in config.queueings]
    panels = []
    for title, key, alone in _COMPARED:
        base, base_is_known = _value_of(figures[alone], key)
        found = [_value_of(figures[phase], key) for phase in phases]
        values = [value / base for value, _ in found if value is not None and base]
        if base_is_known and len(values) == len(phases):
            panel: dict[str, Any] = {"title": title, "values": values}
            if not all(is_known for _, is_known in found):
                panel["at_least"] = [not is_known for _, is_known in found]
            panels.append({**panel, "unit": _relative_to(key, base or 0.0)})
    drops = [figures[phase]["drops_packets"] for phase in phases]
    lost = [sum(figures[phase].get(f"flow.{name}", 0.0) for name in ("failed", "refused")) for phase in phases]
    found_counts = {"drops_packets": drops, "flows_without_end": lost}
    return {"unit": "times alone", "alone": 1.0, "queueings": phases, "panels": panels, **found_counts}


def _value_of(found: Mapping[str, float], key: str) -> tuple[float | None, bool]:
    """Return a number of a phase, None if it has none, and whether it is known, not only the least that it can be."""
    return percentile_of(found, key.removesuffix("_s")) if key.endswith("_s") else (found.get(key), True)


def _relative_to(key: str, base: float) -> str:
    """Return what a value over that alone is a multiple of, and which way is better."""
    if key.endswith("_s"):
        return f"times alone ({format_time(base)}), less is better"
    return f"times alone ({format_bandwidth(base)}), more is better"


def _shares_table(session: Session, config: IsolationConfig, port: Port, at_port: Shares) -> dict[str, Any]:
    rate = session.live.fabric.link_at[port].rate_bps
    lanes = plan_lanes(config.queues, Queueing.LANES)
    rows = []
    for level in (*DATA_LEVELS, ServiceLevel.CONTROL):
        got = [f"{shares[level] * 8 / rate:.1%}" for shares in at_port.values()]
        rows.append([level.label, f"{lanes.lane_of(level).share:.0%}", *got])
    totals = [f"{sum(shares.values()) * 8 / rate:.1%}" for shares in at_port.values()]
    rows.append(["all", "100%", *totals])
    return {
        "title": "Shares of the busiest port",
        "columns": ["service level", "configured share", *(f"measured, {Queueing(phase).words}" for phase in at_port)],
        "rows": rows,
        "note": "by DSCP, so acknowledgements count with their kind; other lanes may borrow what a lane does not use; "
        f"port {port} of {format_rate(rate)}",
    }
