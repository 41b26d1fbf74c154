"""What a run of ``incast`` says: a row a variant, whether a limit on senders keeps throughput, and the figure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import pandas as pd

from experiments.incast.variants import IncastConfig, Variant
from fabric.measures import Better, Measure
from fabric.metrics import Metric, metrics_of
from fabric.model.lanes import Queueing, ServiceLevel, plan_lanes
from fabric.records.summary_table import SummaryTable
from fabric.results import Phase
from fabric.stalls.intervals import BLOCKED_SHARE
from fabric.units import format_size
from runs.counted_operations import (
    PERCENTILES,
    counted_s,
    percentile_of,
    read_metrics,
    told_ratio,
    told_time,
)
from runs.session import PhaseOutcome, Session
from runs.stall_metrics import stall_metrics, stalled_fractions
from traffic import metrics

KEPT = 0.95
"""A limit keeps throughput with this part of the best that any limit or none has, or of what a NIC delivers if that is
less: bytes of a read are counted evenly over its time, which may be more in the counted time than there were."""


@dataclass(frozen=True)
class VariantOutcome:
    """What a variant came to, by name of the measure: of reads, where a latency is missing if none ended, and of the
    network."""

    variant: Variant
    reads: Mapping[str, float]
    network: Mapping[str, float] = field(default_factory=dict)

    @cached_property
    def values(self) -> Mapping[str, float]:
        """Return the values of reads and of the network."""
        return {**self.reads, **self.network}

    @property
    def metrics(self) -> list[Metric]:
        """Both, as metrics."""
        reads = metrics_of(self.variant.name, ServiceLevel.STORAGE.label, self.reads, is_named_by_job=False)
        return [*reads, *metrics_of(self.variant.name, "", self.network)]

    @property
    def bandwidth_Bps(self) -> float:  # noqa: N802 - bytes, not bits
        """What the client read, in bytes per second."""
        return self.values["read.bandwidth_Bps"]


def summarize(
    session: Session, config: IncastConfig, playing: Sequence[Variant], cuts: Mapping[str, int]
) -> dict[str, Any]:
    """Return the tables and metrics of a run."""
    outcomes = {outcome.phase.name: outcome for outcome in session.phases}
    found = [_seen(session, config, one, outcomes[one.name], cuts[one.name]) for one in playing]
    nic_Bps = session.live.fabric.nic_rate_bps / 8  # noqa: N806 - bytes, not bits
    delivered_Bps = nic_Bps * metrics.payload_fraction(session.live.fabric.mtu_bytes)  # noqa: N806
    return {
        "title": "Incast: storage nodes answer one client",
        "answer": answer(found, delivered_Bps),
        "metrics": [metric for one in found for metric in one.metrics],
        "tables": [limits_table(found, delivered_Bps), variants_table(found, nic_Bps)],
        "incast": figure_data(found, nic_Bps),
    }


def _seen(session: Session, config: IncastConfig, variant: Variant, outcome: PhaseOutcome, cuts: int) -> VariantOutcome:
    fabric, phase, counted = session.live.fabric, outcome.phase, outcome.conservation
    port = str(fabric.peer(fabric.nics_of[fabric.computes[0]][0].port))
    lane = plan_lanes(config.queues, variant.queueing).lane_of(ServiceLevel.STORAGE).name
    reads = read_metrics(session.table("operations"), phase, config.warm_up)
    network = {
        **queue_metrics(session.table("ports"), port, lane, phase, config.warm_up),
        "drops_packets": counted.dropped_by_queues,
        "retransmissions": counted.retransmissions,
        "timeouts": counted.timeouts,
        "cuts": cuts,
    }
    if variant.queueing.is_lossless:
        stalls = session.table("stalls")
        network |= stall_metrics(stalls, outcome)
        network["blocked_ports"] = blocked_ports(stalls, phase)
    return VariantOutcome(variant, reads, network)


MEASURES = (
    Measure("queue_mean_bytes", "bytes that wait at the leaf's port to the client, mean over samples", Better.LESS),
    Measure("queue_most_bytes", "most bytes that wait at the leaf's port to the client in a sample", Better.LESS),
    Measure("cuts", "times that DCQCN cut the rate of a sender"),
    Measure("blocked_ports", "ports with a lane that is blocked by its share of stalled time", Better.LESS),
)


def queue_metrics(ports: pd.DataFrame, port: str, lane: str, phase: Phase, warm_up_s: float) -> dict[str, float]:
    """Return how much waited at a port's lane, over the samples after the warm-up of a phase."""
    inside = ports["at_s"].between(*counted_s(phase, warm_up_s))
    waiting = ports[inside & (ports["port"] == port) & (ports["lane"] == lane)]["backlog_bytes"]
    if waiting.empty:
        return {}
    return {"queue_mean_bytes": float(waiting.mean()), "queue_most_bytes": float(waiting.max())}


def blocked_ports(stalls: pd.DataFrame, phase: Phase) -> int:
    """Return how many ports had a lane that stood still for more than the part of its time by which it is blocked."""
    fractions = stalled_fractions(stalls, phase)
    return int(fractions[fractions > BLOCKED_SHARE].index.get_level_values("port").nunique())


# The answer -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Kept:
    """Of one number of servers, control and queueing: without a limit, and with the smallest that keeps throughput;
    None: no limit does."""

    unlimited: VariantOutcome
    limited: VariantOutcome | None

    def ratio(self, measure: str) -> float | None:
        """Return a measure with the limit over that without; None if one of the two is missing."""
        if self.limited is None or not self.unlimited.values.get(measure) or measure not in self.limited.values:
            return None
        return self.limited.values[measure] / self.unlimited.values[measure]

    def percentile_ratio(self, name: str, spec: str = ".2f") -> str | None:
        """Return the same of a percentile such as ``read.p99``, as it is told."""
        return None if self.limited is None else told_ratio(self.limited.values, self.unlimited.values, name, spec)


def kept(found: Sequence[VariantOutcome], delivered_Bps: float) -> list[Kept]:  # noqa: N803 - bytes, not bits
    """Return for each setting that was played without a limit what the smallest limit does that keeps throughput.

    ``delivered_Bps``: what a NIC delivers, in bytes per second.
    """
    made = []
    for unlimited in (one for one in found if one.variant.limit is None):
        others = sorted(
            (one for one in found if _differs_by_limit(one, unlimited)), key=lambda one: one.variant.limit or 0
        )
        best = min(delivered_Bps, max(one.bandwidth_Bps for one in (unlimited, *others)))
        enough = [one for one in others if one.bandwidth_Bps >= KEPT * best]
        made.append(Kept(unlimited, enough[0] if enough else None))
    return made


def _differs_by_limit(one: VariantOutcome, unlimited: VariantOutcome) -> bool:
    a, b = one.variant, unlimited.variant
    return a.limit is not None and (a.queueing, a.control, a.servers) == (b.queueing, b.control, b.servers)


def answer(found: Sequence[VariantOutcome], delivered_Bps: float) -> str:  # noqa: N803
    """Return the finding in words, for the most servers that were played."""
    most = max(one.variant.servers for one in found)
    told = []
    for one in kept(found, delivered_Bps):
        variant = one.unlimited.variant
        if variant.servers != most:
            continue
        setting = f"{variant.control} in {variant.queueing.words}"
        if one.limited is None:
            told.append(f"{setting}: no limit keeps it")
            continue
        ratios = [(word, one.percentile_ratio(f"read.{name}")) for word, name in (("median", "p50"), ("p99", "p99"))]
        words = " and ".join(f"{value} times the {word}" for word, value in ratios if value is not None)
        rates = " for ".join(f"{seen.bandwidth_Bps / 1e9:.1f}" for seen in (one.limited, one.unlimited))
        told.append(f"{setting}: {one.limited.variant.limit}, {rates} GB/s" + (f" at {words}" if words else ""))
    if not told:
        return "No variant was played without a limit, so there is nothing to compare with; add off to request_to_send."
    listed = "; ".join(told)
    return (
        f"With {most} servers, the fewest senders at once that keep {KEPT:.0%} of the best throughput, beside no "
        f"limit: {listed}."
    )


def limits_table(found: Sequence[VariantOutcome], delivered_Bps: float) -> SummaryTable:  # noqa: N803
    """Return what the smallest limit that keeps throughput does."""
    rows = []
    for one in kept(found, delivered_Bps):
        variant = one.unlimited.variant
        ratios = [one.percentile_ratio(f"read.{name}", ".2g") for name in PERCENTILES]
        queue = one.ratio("queue_mean_bytes")
        limit = "none does" if one.limited is None else str(one.limited.variant.limit)
        cells = ["-" if value is None else f"{value} x" for value in ratios]
        cells.append("-" if queue is None else f"{queue:.2g} x")
        rows.append([variant.queueing.words, variant.control, str(variant.servers), limit, *cells])
    return SummaryTable(
        title="Does a limit on senders keep throughput?",
        columns=["in", "control", "servers", "fewest at once", "median", "p99", "p99.9", "queue"],
        rows=rows,
        note=f"fewest: the smallest limit with {KEPT:.0%} of the best bandwidth, with whichever limit; the others: "
        "over what they are without a limit",
    )


def variants_table(found: Sequence[VariantOutcome], nic_Bps: float) -> SummaryTable:  # noqa: N803 - bytes, not bits
    """Return a row a variant."""
    rows = []
    for one in found:
        variant, values = one.variant, one.values
        latencies = [told_time(values, f"read.{name}") for name in PERCENTILES]
        queues = [
            format_size(round(values[name])) if name in values else "-"
            for name in ("queue_mean_bytes", "queue_most_bytes")
        ]
        lossless = variant.queueing.is_lossless
        rows.append(
            [
                variant.queueing.words,
                variant.control,
                str(variant.servers),
                "off" if variant.limit is None else str(variant.limit),
                f"{one.bandwidth_Bps / 1e9:.2f} GB/s",
                f"{one.bandwidth_Bps / nic_Bps:.0%}",
                *latencies,
                f"{values.get('read.failed', 0):,.0f}",
                *queues,
                f"{values['drops_packets']:,.0f}",
                f"{values['timeouts']:,.0f}",
                f"{values.get('stalls', 0):,.0f}" if lossless else "-",
                f"{values['blocked_ports']:.0f}" if lossless else "-",
            ]
        )
    return SummaryTable(
        title="Variants",
        columns=[
            *("in", "control", "servers", "at once", "bandwidth", "of the NIC", "median", "p99", "p99.9", "failed"),
            *("queue, mean", "queue, most", "drops", "timeouts", "pauses", "blocked ports"),
        ],
        rows=rows,
        note="queue: at the leaf's port to the client; timeouts: retransmission timeouts of TCP; pauses: how often "
        f"a lane found no room; blocked: stalled for more than {BLOCKED_SHARE:.0%} of the phase",
    )


def figure_data(found: Sequence[VariantOutcome], nic_Bps: float) -> dict[str, Any]:  # noqa: N803
    """Return what the figure shows: a line a queueing and control, for each number of servers."""
    lines: dict[tuple[Queueing, str, int], list[VariantOutcome]] = {}
    for one in found:
        lines.setdefault((one.variant.queueing, one.variant.control, one.variant.servers), []).append(one)
    return {
        "nic_Bps": nic_Bps,
        "lines": [
            {
                "queueing": queueing.value,
                "control": control,
                "servers": servers,
                "limits": ["off" if one.variant.limit is None else str(one.variant.limit) for one in group],
                "bandwidth_Bps": [one.bandwidth_Bps for one in group],
                "p50_s": [percentile_of(one.values, "read.p50")[0] for one in group],
                "p99_s": [percentile_of(one.values, "read.p99")[0] for one in group],
                "queue_bytes": [one.values.get("queue_mean_bytes") for one in group],
            }
            for (queueing, control, servers), group in lines.items()
        ],
    }
