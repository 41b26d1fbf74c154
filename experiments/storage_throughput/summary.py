"""What a run of ``storage_throughput`` says: what was read of what NICs have, and how busy each kind of link was."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Any

import numpy as np
import pandas as pd

from experiments.storage_throughput.measures import USE_MEAN, USE_MOST
from experiments.storage_throughput.variants import READS, StorageThroughputConfig, Variant, alone_phase
from fabric.metrics import Metric, metrics_of
from fabric.model.identity import Role
from fabric.model.lanes import Queueing, ServiceLevel
from fabric.model.network import Fabric, Port
from fabric.percentiles import nearest_ranks
from fabric.records.summary_table import SummaryTable
from fabric.results import Phase
from runs.counted_operations import begun_in, counted_s, read_metrics, told_time
from runs.job_config import PlacedJob
from runs.session import PhaseOutcome, Session
from traffic.measures import JobRows, speed_text, windows_of

PAPER_SHARE = 8 / 9
"""Of 9 TB/s reads reached 8 (arXiv 2408.14158v2, VI-B)."""
BESIDE_SHARE = 6.6 * 2**40 / 9e12
"""So many TiB/s 3FS's own measurement reached, with training behind it, of as many NICs (3FS's README)."""
_ROLES = {
    Role.COMPUTE: "compute node",
    Role.STORAGE: "storage node",
    Role.LEAF: "leaf",
    Role.SPINE: "spine",
    Role.CORE: "core",
    Role.INTER_ZONE: "zone switch",
}
ON_THE_WAY = ("storage node to leaf", "leaf to spine", "spine to leaf", "leaf to compute node")
"""The kinds of links that a read's data passes, in that order."""
_PERCENTILES = ("p50", "p99")


@dataclass(frozen=True)
class KindUse:
    """How busy the links of a kind were in one direction, as shares of their rate: the mean link, the 99th percentile
    of links, the busiest."""

    kind: str
    links: int
    mean: float
    p99: float
    most: float


@dataclass(frozen=True)
class VariantOutcome:
    """What a variant came to, and how busy links were, kind by kind."""

    variant: Variant
    metrics: Sequence[Metric]
    uses: Sequence[KindUse]

    @cached_property
    def values(self) -> Mapping[str, float]:
        """What it came to, by name of the measure."""
        return {one.name_in_phase: one.value for one in self.metrics}

    @property
    def busiest(self) -> KindUse:
        """The kind of link that is busiest on average: what is left of it is left to all."""
        return max(self.uses, key=lambda use: use.mean)


def nics_Bps(fabric: Fabric) -> float:  # noqa: N802 - bytes, not bits
    """Return what all NICs of all storage nodes have, in bytes per second."""
    return sum(len(fabric.nics_of[node]) for node in fabric.storages) * fabric.nic_rate_bps / 8


def kind_of(fabric: Fabric, port: Port) -> str:
    """Return the kind of link that a port sends on: from what to what."""
    return " to ".join(_ROLES[node.role] for node in (port.node, fabric.peer(port).node))


def summarize(
    session: Session,
    config: StorageThroughputConfig,
    playing: Sequence[Variant],
    others: Mapping[Queueing, Sequence[PlacedJob]] = MappingProxyType({}),
) -> dict[str, Any]:
    """Return the tables and metrics of a run. ``others``: what played beside reads, in each queueing."""
    outcomes = {outcome.phase.name: outcome for outcome in session.phases}
    fabric = session.live.fabric
    found = [_seen(session, config, variant, outcomes[variant.name]) for variant in playing]
    beside = list(_beside(session, found, others))
    beside_tables = [beside_table(beside)] if beside else []
    return {
        "title": "Reads of all compute nodes from all storage nodes",
        "answer": answer(fabric, found),
        "metrics": [
            *(metric for one in found for metric in one.metrics),
            *_use_metrics(found),
            *{metric.path: metric for one in beside for metric in one.metrics()}.values(),
        ],
        "tables": [reads_table(fabric, found), *beside_tables, links_table(found)],
        "storage_throughput": figure_data(found),
    }


@dataclass(frozen=True)
class OtherJob:
    """What another job was measured by, in bytes per second: without reads, and beside a variant's. None if it got
    nothing done."""

    variant: Variant
    name: str
    measure: str
    alone_Bps: float | None  # noqa: N815 - bytes, not bits
    beside_Bps: float | None  # noqa: N815

    @property
    def kept(self) -> float | None:
        """What part of its speed it kept."""
        return self.beside_Bps / self.alone_Bps if self.alone_Bps and self.beside_Bps is not None else None

    def metrics(self) -> Iterator[Metric]:
        """Yield its numbers."""
        alone = alone_phase(self.variant.queueing)
        if self.alone_Bps is not None:
            yield Metric(alone, self.name, self.measure, self.alone_Bps)
        if self.beside_Bps is not None:
            yield Metric(self.variant.name, self.name, self.measure, self.beside_Bps)
        if self.kept is not None:
            yield Metric(self.variant.name, self.name, "kept_fraction", self.kept)


def _beside(
    session: Session, found: Sequence[VariantOutcome], others: Mapping[Queueing, Sequence[PlacedJob]]
) -> Iterator[OtherJob]:
    """Yield what other jobs came to, beside each variant that they played beside."""
    for one in found:
        if one.variant.is_beside:
            for job in others[one.variant.queueing]:
                alone, beside = (
                    _numbers(session, job, phase) for phase in (alone_phase(one.variant.queueing), one.variant.name)
                )
                measure = next((name for name in job.measures.speeds if name in alone), job.measures.speeds[0])
                yield OtherJob(one.variant, job.name, measure, alone.get(measure), beside.get(measure))


def _numbers(session: Session, job: PlacedJob, phase: str) -> Mapping[str, float]:
    """Return what the kind of a job reports of it in a phase."""

    def mine(name: str) -> pd.DataFrame:
        table = session.table(name)
        return table[(table["phase"] == phase) & (table["job"] == job.name)]

    return job.measures.of(JobRows(mine, windows_of(mine("jobs"))))


def beside_table(beside: Sequence[OtherJob]) -> SummaryTable:
    """Return a row a variant and other job."""
    rows = [
        [
            one.variant.title,
            one.name,
            *("-" if rate is None else speed_text(one.measure, rate) for rate in (one.alone_Bps, one.beside_Bps)),
            "-" if one.kept is None else f"{one.kept:.0%}",
        ]
        for one in beside
    ]
    return SummaryTable(
        title="Other jobs beside the reads",
        columns=["variant", "job", "without reads", "beside them", "kept"],
        rows=rows,
        note="algbw (median step) of collectives; of graphs what all ranks send in a step over its time",
    )


def _use_metrics(found: Sequence[VariantOutcome]) -> Iterator[Metric]:
    """Yield how busy each kind of link was, on average and the busiest."""
    for one in found:
        for use in one.uses:
            kind = use.kind.replace(" ", "_")
            yield Metric(one.variant.name, "", USE_MEAN.of(kind), use.mean)
            yield Metric(one.variant.name, "", USE_MOST.of(kind), use.most)


def _seen(session: Session, config: StorageThroughputConfig, variant: Variant, outcome: PhaseOutcome) -> VariantOutcome:
    fabric, phase, counted = session.live.fabric, outcome.phase, outcome.conservation
    in_time = counted_s(phase, config.warm_up)
    rows = session.table("operations")
    rows = rows[rows["job"] == READS]
    reads = read_metrics(rows, phase, config.warm_up)
    of_storage = {
        **reads,
        "read.share_of_nics": reads["read.bandwidth_Bps"] / nics_Bps(fabric),
        "read.readers": float(_begun(rows, in_time, phase)["host"].nunique()),
    }
    network = {
        "drops_packets": float(counted.dropped_by_queues),
        "retransmissions": float(counted.retransmissions),
    }
    measured = [
        *metrics_of(variant.name, ServiceLevel.STORAGE.label, of_storage, is_named_by_job=False),
        *metrics_of(variant.name, "", network),
    ]
    return VariantOutcome(variant, measured, link_uses(fabric, session.table("ports"), in_time))


def _begun(operations: pd.DataFrame, in_time: tuple[float, float], phase: Phase) -> pd.DataFrame:
    is_read = (operations["phase"] == phase.name) & operations["operation"].isin(["read", "read_failed"])
    return begun_in(operations[is_read], in_time)


def link_uses(fabric: Fabric, ports: pd.DataFrame, in_time: tuple[float, float]) -> list[KindUse]:
    """Return how busy each kind of link between nodes was from the first to the last sample of a stretch of time; none
    if there are no two."""
    links = {str(port): (port, link) for port, link in fabric.directed_ports()}
    rows = ports[ports["at_s"].between(*in_time) & ports["port"].isin(links)]
    times = np.unique(rows["at_s"])
    if len(times) < 2:
        return []
    sent = rows.groupby(["at_s", "port"], observed=True)["sent_bytes"].sum()
    bps = (sent.loc[times[-1]] - sent.loc[times[0]]) * 8 / float(times[-1] - times[0])
    by_kind: dict[str, list[float]] = {}
    for name, rate in bps.items():
        port, link = links[str(name)]
        by_kind.setdefault(kind_of(fabric, port), []).append(rate / link.rate_bps)
    return [
        KindUse(kind, len(shares), float(np.mean(shares)), nearest_ranks(shares, 99)[0], max(shares))
        for kind, shares in sorted(by_kind.items(), key=lambda one: _place(one[0]))
    ]


def _place(kind: str) -> tuple[int, str]:
    """Sort kinds of links as a read's data passes them, then those that only requests pass."""
    return ON_THE_WAY.index(kind) if kind in ON_THE_WAY else len(ON_THE_WAY), kind


def answer(fabric: Fabric, found: Sequence[VariantOutcome]) -> str:
    """Return the finding in words."""
    most = nics_Bps(fabric)
    told = []
    for one in found:
        rate = one.values["read.bandwidth_Bps"]
        told.append(f"{one.variant.title}: {rate / 1e12:.3g} TB/s, {rate / most:.0%}")
        if one.uses:
            use = one.busiest
            told[-1] += f" ({use.kind}: {use.mean:.0%} busy on average, the busiest {use.most:.0%})"
    return (
        f"Of the {most / 1e12:.3g} TB/s that the NICs of {len(fabric.storages)} storage nodes have, "
        f"{len(fabric.computes)} compute nodes read: {'; '.join(told)}. The paper's reads reached 8 TB/s of 9, "
        f"{PAPER_SHARE:.0%}; 3FS's own measurement, with training behind it, {BESIDE_SHARE:.0%}."
    )


def reads_table(fabric: Fabric, found: Sequence[VariantOutcome]) -> SummaryTable:
    """Return a row a variant."""
    rows = []
    for one in found:
        values = one.values
        latencies = [told_time(values, f"read.{name}") for name in _PERCENTILES]
        rows.append(
            [
                one.variant.queueing.words,
                one.variant.limit_words,
                "others" if one.variant.is_beside else "-",
                f"{values['read.bandwidth_Bps'] / 1e12:.3g}",
                f"{values['read.share_of_nics']:.1%}",
                *latencies,
                f"{values['read.operations']:,.0f}",
                f"{values.get('read.failed', 0):,.0f}",
                f"{values['read.readers']:,.0f}",
                f"{values['drops_packets']:,.0f}",
                f"{values['retransmissions']:,.0f}",
            ]
        )
    columns = ["in", "request-to-send", "beside", "TB/s", "of the NICs", "median", "p99", "reads", "failed", "by"]
    return SummaryTable(
        title="Reads of all compute nodes",
        columns=[*columns, "dropped", "sent again"],
        rows=rows,
        note=f"of the NICs: of the {nics_Bps(fabric) / 1e12:.3g} TB/s that the storage nodes' NICs have, headers "
        f"included; the paper's 8 of 9 TB/s are {PAPER_SHARE:.1%}. A read's bytes count evenly over its time. "
        "by: how many compute nodes began one in the counted time",
    )


def links_table(found: Sequence[VariantOutcome]) -> SummaryTable:
    """Return a row a variant and kind of link."""
    rows = [
        [one.variant.title, use.kind, f"{use.links:,}", f"{use.mean:.1%}", f"{use.p99:.1%}", f"{use.most:.1%}"]
        for one in found
        for use in one.uses
    ]
    return SummaryTable(
        title="How busy links were, of their rate",
        columns=["variant", "links", "number", "mean", "p99 of links", "busiest"],
        rows=rows,
        note="each direction of a link by itself, over the counted time, in the order in which a read's data passes",
    )


def figure_data(found: Sequence[VariantOutcome]) -> dict[str, Any]:
    """Return what the figure draws: for each variant its share of the NICs and how busy each kind of link was."""
    return {
        "is_beside": any(one.variant.is_beside for one in found),
        "variants": [
            {
                "title": one.variant.title,
                "share": one.values["read.share_of_nics"],
                "uses": [{"kind": use.kind, "mean": use.mean, "p99": use.p99, "most": use.most} for use in one.uses],
            }
            for one in found
        ],
    }
