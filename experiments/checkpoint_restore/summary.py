"""What a run of ``checkpoint_restore`` says: how long restores took, and what of the storage nodes' NICs they had."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from experiments.checkpoint_restore.variants import Variant
from fabric.metrics import metrics_of
from fabric.model.network import Fabric
from fabric.records.cells import Row, measured, quantity
from fabric.records.summary_table import SummaryTable
from fabric.units import format_time
from runs.counted_operations import operation_metrics
from runs.session import PhaseOutcome, Session
from traffic.metrics import payload_fraction
from traffic.storage.load_measures import restore_numbers

GIB = 1 << 30


@dataclass(frozen=True)
class VariantOutcome:
    """What a variant came to, by name of the measure."""

    variant: Variant
    values: Mapping[str, float]


def most_Bps(fabric: Fabric) -> float:  # noqa: N802 - bytes, not bits
    """Return what all nodes can restore at most, in bytes per second: what the NICs of the storage nodes carry as
    payload, or those of the compute nodes if they are less."""
    nics = min(
        sum(len(fabric.nics_of[node]) for node in fabric.storages),
        len(fabric.computes),
    )
    return nics * fabric.nic_rate_bps / 8 * payload_fraction(fabric.mtu_bytes)


def summarize(session: Session, playing: Sequence[Variant]) -> dict[str, Any]:
    """Return the tables and metrics of a run."""
    outcomes = {outcome.phase.name: outcome for outcome in session.phases}
    found = [_seen(session, variant, outcomes[variant.name]) for variant in playing]
    return {
        "title": "Restores by all nodes at once",
        "answer": answer(session.live.fabric, found),
        "metrics": [
            metric
            for one in found
            for metric in metrics_of(one.variant.name, "storage", one.values, is_named_by_job=False)
        ],
        "tables": [restores_table(session.live.fabric, found)],
        "checkpoint_restore": figure_data(session.live.fabric, found),
    }


def _seen(session: Session, variant: Variant, outcome: PhaseOutcome) -> VariantOutcome:
    operations = session.table("operations")
    mine = operations[operations["phase"] == variant.name]
    counted = outcome.conservation
    return VariantOutcome(
        variant,
        {
            **restore_numbers(mine),
            **operation_metrics(mine, "read", outcome.phase.load_s),
            "drops_packets": float(counted.dropped_by_queues),
            "retransmissions": float(counted.retransmissions),
        },
    )


def answer(fabric: Fabric, found: Sequence[VariantOutcome]) -> str:
    """Return the finding in words."""
    most = most_Bps(fabric)
    done = sorted((one for one in found if "restore.all_s" in one.values), key=lambda one: one.values["restore.all_s"])
    if not done:
        return "No node restored all that it was to."

    def told(one: VariantOutcome) -> str:
        share = one.values["restore.all_Bps"] / most
        return f"{format_time(one.values['restore.all_s'])}, {share:.0%} of what the NICs carry ({one.variant.title})"

    return (
        f"{len(fabric.computes)} nodes restore from {len(fabric.storages)} storage nodes until the last one has all in "
        f"{told(done[0])} to {told(done[-1])}."
    )


def restores_table(fabric: Fabric, found: Sequence[VariantOutcome]) -> SummaryTable:
    """Return a row a variant."""
    rows: list[Row] = []
    for one in found:
        values = one.values
        times = [measured(values, f"{name}_s") for name in ("restore.all", "restore.median")]
        rates = [measured(values, name, ".2f in GiB/s") for name in ("restore.node_Bps", "restore.slowest_Bps")]
        share = values.get("restore.all_Bps", 0.0) / most_Bps(fabric)
        rows.append(
            [
                one.variant.queueing.words,
                one.variant.parts.words,
                one.variant.limit_words,
                *times,
                *rates,
                quantity(share, ".1%"),
                measured(values, "read.p50_s"),
                measured(values, "read.p99_s"),
                measured(values, "drops_packets"),
                measured(values, "retransmissions"),
                quantity(values.get("restore.failed", 0.0) + values.get("restore.abandoned", 0.0), ",.0f"),
            ]
        )
    columns = ["in", "restored", "request-to-send", "all have it after", "median node", "GiB/s a node", "slowest"]
    return SummaryTable(
        title="Restores by all nodes at once",
        columns=[*columns, "of the NICs", "median read", "p99", "dropped", "sent again", "not whole"],
        rows=rows,
        note=f"of the NICs: of the {most_Bps(fabric) / 1e9:.4g} GB/s of payload that those of the storage nodes carry, "
        "or of the compute nodes if that is less, until the last node has all; >: at least, since some are not whole",
    )


def figure_data(fabric: Fabric, found: Sequence[VariantOutcome]) -> dict[str, Any]:
    """Return what the figure draws: a group for each queueing, a bar for each variant."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for one in found:
        if "restore.node_Bps" in one.values:
            groups.setdefault(one.variant.queueing.words, []).append(
                {
                    "parts": one.variant.parts.words,
                    "limit": one.variant.limit_words,
                    "node_gibps": one.values["restore.node_Bps"] / GIB,
                    "slowest_gibps": one.values["restore.slowest_Bps"] / GIB,
                }
            )
    return {
        "even_gibps": most_Bps(fabric) / len(fabric.computes) / GIB,
        "groups": [{"title": title, "bars": bars} for title, bars in groups.items()],
    }
