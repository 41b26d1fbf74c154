"""What the experiment says of a run: its answer, tables and metrics, all from rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pandas as pd

from experiments.isolation.config import IsolationConfig, Mix
from fabric.metrics import Metric, by_phase, metrics_of
from fabric.model.lanes import DATA_LEVELS, Queueing, ServiceLevel, plan_lanes
from fabric.model.network import Port
from fabric.records.cells import Cell, Quantity, Row, count_of, measured, quantity, ratio
from fabric.records.summary_table import SummaryTable
from fabric.units import format_bandwidth, format_rate, format_time
from runs.counted_operations import (
    NOTE,
    PERCENTILES,
    operation_metrics,
    percentile_of,
)
from runs.session import PhaseOutcome, Session
from runs.stall_metrics import stall_metrics, stalls_tables
from traffic import metrics
from traffic.collectives.nccl import sent_fraction
from traffic.collectives.step_numbers import collective_medians
from traffic.storage.client.verification import Verification

_COLLECTIVES = (ServiceLevel.HFREDUCE, ServiceLevel.NCCL)
Shares = dict[str, dict[ServiceLevel, float]]
"""Bytes a second of each service level at the busiest port, by phase."""


def summarize(
    session: Session, config: IsolationConfig, port: Port, at_port: Shares, verification: Verification
) -> dict[str, Any]:
    """Return the tables and metrics of a run."""
    fabric = session.live.fabric
    lanes = plan_lanes(config.queues, Queueing.LANES)
    ideal = {
        ServiceLevel.HFREDUCE.label: metrics.ideal_hfreduce_algbw(fabric.nic_rate_bps),
        ServiceLevel.NCCL.label: metrics.ideal_algbw(
            fabric.nic_rate_bps, sent_fraction(config.nccl.algorithm, config.nccl_nodes, config.nccl.collective)
        ),
    }
    measured = [metric for outcome in session.phases for metric in _phase_metrics(session, outcome)]
    figures = by_phase(measured)
    titles = {outcome.phase.name: outcome.phase.title for outcome in session.phases}
    return {
        "title": "Isolation: training, storage and other traffic on one fabric",
        "answer": _answer(config, figures),
        "lane_shares": {lane.name: lane.share for lane in lanes.lanes},
        "busiest_port": str(port),
        "ideal_algbw_Bps": ideal,
        "metrics": measured,
        "tables": [
            _collectives_table(session, figures, ideal),
            _storage_table(session, figures),
            _background_table(session, config, figures),
            _network_table(session, figures),
            *stalls_tables(titles, figures),
            _shares_table(session, config, port, at_port),
        ],
        "side_by_side": _side_by_side(config, figures),
        "isolation": _kept_and_got(session, config, figures, port, at_port),
        "acknowledged_writes": verification.counts,
    }


_OPERATIONS = {"read": ServiceLevel.STORAGE, "write": ServiceLevel.STORAGE, "flow": ServiceLevel.OTHER}


def _phase_metrics(session: Session, outcome: PhaseOutcome) -> Iterator[Metric]:
    """Yield all numbers of a phase; what did not play has none."""
    phase = outcome.phase
    steps = _of_phase(session.table("steps"), phase.name)
    operations = _of_phase(session.table("operations"), phase.name)
    for level in _COLLECTIVES:
        found = _collective_metrics(steps[steps["service_level"] == level.label])
        yield from metrics_of(phase.name, level.label, found)
    for operation, level in _OPERATIONS.items():
        found = operation_metrics(operations, operation, phase.load_s)
        yield from metrics_of(phase.name, level.label, found, is_named_by_job=False)
    network = {
        "drops_packets": outcome.conservation.dropped_by_queues,
        "sent_packets": outcome.conservation.sent_packets,
        "retransmissions": outcome.conservation.retransmissions,
        "deepest_queue_bytes": _deepest_queue(session, outcome),
        **stall_metrics(session.table("stalls"), outcome),
    }
    yield from metrics_of(phase.name, "", network)


def _of_phase(table: pd.DataFrame, phase: str) -> pd.DataFrame:
    return table[table["phase"] == phase]


def _collective_metrics(steps: pd.DataFrame) -> dict[str, float]:
    if steps.empty:
        return {}
    found = collective_medians(steps)
    found["slowest_step_s"] = float((steps["ended_s"] - steps["started_s"]).max())
    found["steps"] = len(steps)
    return found


def _deepest_queue(session: Session, outcome: PhaseOutcome) -> int:
    ports = session.table("ports")
    inside = ports["at_s"].between(outcome.phase.started_s, outcome.phase.ended_s)
    return int(ports.loc[inside, "backlog_bytes"].max()) if inside.any() else 0


def _answer(config: IsolationConfig, figures: Mapping[str, Mapping[str, float]]) -> str:
    """Return the finding in a sentence or two."""
    heavy = [mix for mix in config.mixes if mix.is_heavy]
    if not heavy:
        return _slowed(config, figures)
    moderate = [mix for mix in config.mixes if not mix.is_heavy]
    hfreduce, reads = (_told_kept(figures, heavy, key, alone) for key, alone in (_HFREDUCE_KEPT, _READS_KEPT))
    promised = _promised(config)[ServiceLevel.HFREDUCE.label]
    if Queueing.LANES in config.queueings:
        hfreduce += f" (promised in lanes: {promised:.0%})"
    return (
        f"While other traffic offers {heavy[0].other_load:.0%} of every NIC's rate, HFReduce keeps {hfreduce} of its "
        f"bandwidth alone, storage reads {reads}. While it offers {moderate[0].other_load:.0%}, HFReduce keeps "
        f"{_told_kept(figures, moderate, *_HFREDUCE_KEPT)}."
    )


_HFREDUCE_KEPT = ("hfreduce.algbw_Bps", "hfreduce_alone")
_READS_KEPT = ("read.bandwidth_Bps", "storage_alone")


def _told_kept(figures: Mapping[str, Mapping[str, float]], mixes: Sequence[Mix], key: str, alone: str) -> str:
    """Return what a program keeps of its bandwidth alone in each queueing: ``20% in one shared queue and ...``."""
    kept = [_kept(figures, mix.phase, key, alone) for mix in mixes]
    told = ["an unknown part" if one is None else f"{one:.0%}" for one in kept]
    return _listed([f"{one} in {mix.queueing.words}" for one, mix in zip(told, mixes, strict=True)])


def _kept(figures: Mapping[str, Mapping[str, float]], phase: str, key: str, alone: str) -> float | None:
    value, base = figures[phase].get(key), figures[alone].get(key)
    return None if value is None or not base else value / base


def _promised(config: IsolationConfig) -> dict[str, float]:
    """Return what part of each link the lane of each service level has, whatever the others do."""
    lanes = plan_lanes(config.queues, Queueing.LANES)
    return {level.label: lanes.guaranteed_share(level) for level in (*DATA_LEVELS, ServiceLevel.CONTROL)}


def _slowed(config: IsolationConfig, figures: Mapping[str, Mapping[str, float]]) -> str:
    """Return how much longer steps and reads take in company."""

    def ratios(alone: str, name: str) -> list[str]:
        told = (ratio(figures[queueing.value], figures[alone], name, ".1f") for queueing in config.queueings)
        return [_in_words(one) for one in told]

    steps = ratios("hfreduce_alone", "hfreduce.step_s")
    told = [f"{step} times in {queueing.words}" for step, queueing in zip(steps, config.queueings, strict=True)]
    told[0] = f"{steps[0]} times as long as alone in {config.queueings[0].words}"
    return (
        f"With all other traffic an HFReduce step takes {_listed(told)}; the 99th percentile of storage reads is "
        f"{_listed(ratios('storage_alone', 'read.p99_s'))} times that alone."
    )


def _listed(parts: Sequence[str]) -> str:
    return " and ".join(part for part in (", ".join(parts[:-1]), parts[-1]) if part)


def _in_words(times: Quantity) -> str:
    if not times.is_measured:
        return "an unknown number of"
    return times.words.replace("> ", "more than ").replace("< ", "less than ")


def _rows(
    session: Session,
    figures: Mapping[str, Mapping[str, float]],
    key: str,
    cells: Callable[[Mapping[str, float]], Row],
) -> list[Row]:
    """Return a table's rows: one for each phase that has ``key``."""
    titles = {outcome.phase.name: outcome.phase.title for outcome in session.phases}
    return [[titles[phase], *cells(found)] for phase, found in figures.items() if key in found]


def _times(value: float, alone: float) -> Cell:
    return quantity(value / alone, ".2f x") if alone else "unknown"


def _collectives_table(
    session: Session, figures: Mapping[str, Mapping[str, float]], ideal: Mapping[str, float]
) -> SummaryTable:
    rows: list[Row] = []
    for level in (level.label for level in _COLLECTIVES):
        alone = figures[f"{level}_alone"].get(f"{level}.step_s", 0.0)

        def cells(found: Mapping[str, float], level: str = level, alone: float = alone) -> Row:
            algbw = found[f"{level}.algbw_Bps"]
            step = found[f"{level}.step_s"]
            return [
                level,
                quantity(algbw, "bandwidth"),
                measured(found, f"{level}.busbw_Bps"),
                quantity(algbw / ideal[level], ".0%"),
                quantity(step, "time"),
                measured(found, f"{level}.slowest_step_s"),
                measured(found, f"{level}.steps", ".0f"),
                _times(step, alone),
            ]

        rows += _rows(session, figures, f"{level}.algbw_Bps", cells)
    columns = ["phase", "collective", "algbw", "busbw", "of ideal", "median step", "slowest", "steps", "time / alone"]
    note = "algbw and busbw as nccl-tests define them, median over steps; ideal: a full NIC at the busiest rank"
    return SummaryTable(title="Allreduce", columns=columns, rows=rows, note=note)


def _storage_table(session: Session, figures: Mapping[str, Mapping[str, float]]) -> SummaryTable:
    rows: list[Row] = []
    for operation in ("read", "write"):
        alone = figures["storage_alone"].get(f"{operation}.bandwidth_Bps", 0.0)

        def cells(found: Mapping[str, float], operation: str = operation, alone: float = alone) -> Row:
            bandwidth = found[f"{operation}.bandwidth_Bps"]
            percentiles = [measured(found, f"{operation}.{name}_s") for name in PERCENTILES]
            counts = [measured(found, f"{operation}.{name}", ".0f", otherwise=0) for name in ("operations", "failed")]
            return [operation, quantity(bandwidth, "bandwidth"), *percentiles, *counts, _times(bandwidth, alone)]

        rows += _rows(session, figures, f"{operation}.bandwidth_Bps", cells)
    columns = ["phase", "operation", "bandwidth", "p50", "p99", "p99.9", "completed", "failed", "bandwidth / alone"]
    note = f"percentiles of completion latency, as fio's, of operations that began while all of the load played; {NOTE}"
    return SummaryTable(title="Storage", columns=columns, rows=rows, note=note)


def _background_table(
    session: Session, config: IsolationConfig, figures: Mapping[str, Mapping[str, float]]
) -> SummaryTable:
    # Alone, others offer the moderate load: what they take at a heavy one has nothing to be compared with.
    of_alone = {"other_alone", *(mix.phase for mix in config.mixes if not mix.is_heavy)}
    rows: list[Row] = []
    for outcome in session.phases:
        found = figures[outcome.phase.name]
        if "flow.operations" not in found:
            continue
        percentiles = [measured(found, f"flow.{name}_s") for name in PERCENTILES]
        counts = [
            measured(found, f"flow.{name}", ".0f", otherwise=0)
            for name in ("operations", "abandoned", "failed", "refused")
        ]
        times = ratio(found, figures["other_alone"], "flow.p99_s")
        told = "-" if outcome.phase.name not in of_alone else times if times.is_measured else "unknown"
        rows.append([outcome.phase.title, *percentiles, *counts, told])
    counted = ["completed", "abandoned", "failed", "refused"]
    return SummaryTable(
        title="Other traffic: completion time of flows",
        columns=["phase", "p50", "p99", "p99.9", *counted, "p99 / alone"],
        rows=rows,
        note=f"of flows that began while all of the load played; {NOTE}; refused: as max_flows of its host ran",
    )


def _network_table(session: Session, figures: Mapping[str, Mapping[str, float]]) -> SummaryTable:
    def cells(found: Mapping[str, float]) -> Row:
        drops, sent = found["drops_packets"], found["sent_packets"]
        return [
            count_of(sent),
            count_of(drops),
            quantity(drops / max(1, sent), ".2%"),
            measured(found, "retransmissions", ".0f"),
            measured(found, "deepest_queue_bytes", ".0f KiB"),
        ]

    columns = ["phase", "packets sent", "dropped by queues", "of packets", "retransmissions", "deepest queue"]
    return SummaryTable(title="Network", columns=columns, rows=_rows(session, figures, "drops_packets", cells))


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


def _shares_table(session: Session, config: IsolationConfig, port: Port, at_port: Shares) -> SummaryTable:
    rate = session.live.fabric.link_at[port].rate_bps
    titles = {mix.phase: mix.words for mix in config.mixes}
    lanes = plan_lanes(config.queues, Queueing.LANES)
    rows: list[Row] = []
    for level in (*config.queues.data_levels, ServiceLevel.CONTROL):
        got = [quantity(shares[level] * 8 / rate, ".1%") for shares in at_port.values()]
        rows.append([level.label, quantity(lanes.lane_of(level).share, ".0%"), *got])
    totals = [quantity(sum(shares.values()) * 8 / rate, ".1%") for shares in at_port.values()]
    rows.append(["all", quantity(1.0, ".0%"), *totals])
    return SummaryTable(
        title="Shares of the busiest port",
        columns=["service level", "configured share", *(titles[phase] for phase in at_port)],
        rows=rows,
        note="by DSCP, so acknowledgements count with their kind; other lanes may borrow what a lane does not use; "
        f"port {port} of {format_rate(rate)}",
    )


_PROGRAMS = (
    ("HFReduce", "hfreduce", "hfreduce.algbw_Bps", "hfreduce_alone"),
    ("storage reads", "storage", "read.bandwidth_Bps", "storage_alone"),
    ("NCCL", "nccl", "nccl.algbw_Bps", "nccl_alone"),
)
"""What the figure shows of each program: its name, its service level, the metric and the phase alone."""


def _kept_and_got(
    session: Session, config: IsolationConfig, figures: Mapping[str, Mapping[str, float]], port: Port, at_port: Shares
) -> dict[str, Any]:
    """Return what the experiment's figure shows: what each program keeps of its bandwidth alone in each phase, and
    what part of one port's link each service level got there."""
    rate_bps = session.live.fabric.link_at[port].rate_bps
    promised = _promised(config)
    return {
        "port": str(port),
        "rate_bps": rate_bps,
        "promised": promised,
        "phases": [
            {"name": mix.phase, "queueing": mix.queueing.value, "other_load": mix.other_load} for mix in config.mixes
        ],
        "kept": [
            {
                "title": title,
                "promised": promised[level],
                "values": [_kept(figures, mix.phase, key, alone) for mix in config.mixes],
            }
            for title, level, key, alone in _PROGRAMS
        ],
        "got": {
            phase: {level.label: size_Bps * 8 / rate_bps for level, size_Bps in shares.items()}
            for phase, shares in at_port.items()
        },
    }
