"""Do lanes keep training, storage and other traffic out of each other's way?

Phases on one fabric: HFReduce, NCCL, storage and other traffic each alone, in the first queueing of ``queueings``; then
all at once in each of them: one shared queue per port, lanes, and the same two without loss. The same jobs and seeds
play in all phases, so phases differ only in the other traffic and in the queues. Fire-Flyer 2 maps each kind to a
Virtual Lane with a share (arXiv 2408.14158v2, VI-A1).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Annotated, Any

import pandas as pd
from pydantic import Field

from experiments.run.config import QueueingsConfig, storage_faults
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
from traffic.job import Job
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
            counter.read()
            title = f"all in {queueing.words}"
            outcome = session.run_phase(queueing.value, title, list(jobs.values()), config.together_time)
            elapsed = outcome.phase.ended_s - outcome.phase.started_s
            at_port[queueing.value] = {level: size / elapsed for level, size in counter.read()[port].items()}
        verification = jobs[ServiceLevel.STORAGE].verify_acknowledged()
    return summarize(session, config, port, at_port, verification)


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
        rows = operations[operations["operation"] == operation]
        found |= _operation_metrics(operation, rows, phase.started_s, phase.ended_s)
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


def _operation_metrics(operation: str, rows: pd.DataFrame, started_s: float, ended_s: float) -> dict[str, float]:
    if rows.empty:
        return {}
    latency = metrics.operation_latency(rows)
    return {
        f"{operation}.bandwidth_Bps": metrics.operation_bandwidth(rows, started_s, ended_s),
        f"{operation}.p50_s": latency.p50_s,
        f"{operation}.p99_s": latency.p99_s,
        f"{operation}.p999_s": latency.p999_s,
        f"{operation}.operations": latency.operations,
    }


def _deepest_queue(session: Session, outcome: PhaseOutcome) -> int:
    ports = session.table("ports")
    inside = ports["at_s"].between(outcome.phase.started_s, outcome.phase.ended_s)
    return int(ports.loc[inside, "backlog_bytes"].max()) if inside.any() else 0


def _answer(config: IsolationConfig, figures: Mapping[str, Mapping[str, float]]) -> str:
    """Return the finding in a sentence."""

    def ratios(alone: str, key: str) -> list[str]:
        return [_ratio(figures[queueing.value], figures[alone], key) for queueing in config.queueings]

    steps = ratios("hfreduce_alone", "hfreduce.step_s")
    told = [f"{step} times in {queueing.words}" for step, queueing in zip(steps, config.queueings, strict=True)]
    told[0] = f"{steps[0]} times as long as alone in {config.queueings[0].words}"
    return (
        f"With all other traffic an HFReduce step takes {_listed(told)}; the 99th percentile of storage reads is "
        f"{_listed(ratios('storage_alone', 'read.p99_s'))} times that alone."
    )


def _listed(parts: Sequence[str]) -> str:
    return " and ".join(part for part in (", ".join(parts[:-1]), parts[-1]) if part)


def _ratio(together: Mapping[str, float], alone: Mapping[str, float], key: str) -> str:
    return f"{together[key] / alone[key]:.1f}" if key in together and key in alone else "an unknown number of"


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
            percentiles = [format_time(found[f"{operation}.{name}_s"]) for name in ("p50", "p99", "p999")]
            count = f"{found[f'{operation}.operations']:.0f}"
            return [operation, format_bandwidth(bandwidth), *percentiles, count, _times(bandwidth, alone)]

        rows += _rows(session, figures, f"{operation}.bandwidth_Bps", cells)
    columns = ["phase", "operation", "bandwidth", "p50", "p99", "p99.9", "operations", "bandwidth / alone"]
    return {"title": "Storage", "columns": columns, "rows": rows, "note": "percentiles of completion latency, as fio's"}


def _background_table(session: Session, figures: Mapping[str, Mapping[str, float]]) -> dict[str, Any]:
    alone = figures["other_alone"].get("flow.p99_s", 0.0)

    def cells(found: Mapping[str, float]) -> list[str]:
        percentiles = [format_time(found[f"flow.{name}_s"]) for name in ("p50", "p99", "p999")]
        return [*percentiles, f"{found['flow.operations']:.0f}", _times(found["flow.p99_s"], alone)]

    rows = _rows(session, figures, "flow.p99_s", cells)
    columns = ["phase", "p50", "p99", "p99.9", "flows completed", "p99 / alone"]
    return {"title": "Other traffic: completion time of flows", "columns": columns, "rows": rows}


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
        base = figures[alone].get(key)
        if base and all(key in figures[phase] for phase in phases):
            values = [figures[phase][key] / base for phase in phases]
            panels.append({"title": title, "values": values, "unit": _relative_to(key, base)})
    drops = [figures[phase]["drops_packets"] for phase in phases]
    return {"unit": "times alone", "alone": 1.0, "queueings": phases, "panels": panels, "drops_packets": drops}


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
