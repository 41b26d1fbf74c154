"""What a run of ``data_loader`` says: epochs, and how long computing waited in them, beside what a rate alone gives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from experiments.data_loader.variants import DataLoaderConfig, Variant
from fabric.measures import Measure
from fabric.metrics import metrics_of
from fabric.model.network import Fabric
from fabric.records.summary_table import SummaryTable
from fabric.units import format_bandwidth, format_share
from runs.counted_operations import operation_metrics, told_time
from runs.session import PhaseOutcome, Session
from traffic.metrics import payload_fraction
from traffic.storage.job import chosen
from traffic.storage.load_measures import loader_numbers


@dataclass(frozen=True)
class VariantOutcome:
    """What a variant came to, by name; ``ideal_s``: what its epoch would take if batches came at an even rate, None if
    none was whole."""

    variant: Variant
    values: Mapping[str, float]
    ideal_s: float | None


def ideal_epoch_s(batches: float, batch_s: float, compute_s: float, is_ahead: bool) -> float:
    """Return how long an epoch of so many batches takes if each takes ``batch_s`` to read.

    Without asking ahead a batch is read, then computed. Else the first one is read, and each one behind it takes the
    longer of both; the last one is computed.
    """
    if not is_ahead:
        return batches * (batch_s + compute_s)
    return batch_s + (batches - 1) * max(batch_s, compute_s) + compute_s


def even_batch_s(fabric: Fabric, readers: int, batch_bytes: float) -> float:
    """Return how long a batch takes to read if all readers read at once, and share the storage nodes' NICs evenly, or
    are held by their own."""
    payload_Bps = fabric.nic_rate_bps / 8 * payload_fraction(fabric.mtu_bytes)  # noqa: N806 - bytes, not bits
    nics = sum(len(fabric.nics_of[node]) for node in fabric.storages)
    return batch_bytes / min(payload_Bps, nics * payload_Bps / readers)


def summarize(session: Session, config: DataLoaderConfig, playing: Sequence[Variant]) -> dict[str, Any]:
    """Return the tables and metrics of a run."""
    outcomes = {outcome.phase.name: outcome for outcome in session.phases}
    found = [_seen(session, config, variant, outcomes[variant.name]) for variant in playing]
    return {
        "title": "Epochs of data loaders",
        "answer": answer(found),
        "metrics": [
            metric
            for one in found
            for metric in metrics_of(one.variant.name, "storage", one.values, is_named_by_job=False)
        ],
        "tables": [epochs_table(found)],
        "data_loader": figure_data(found),
    }


MEASURES = (
    Measure("loader.ideal_epoch_s", "time of an epoch if all clients read at once and each batch came at an even rate"),
)


def _seen(session: Session, config: DataLoaderConfig, variant: Variant, outcome: PhaseOutcome) -> VariantOutcome:
    name, fabric = variant.name, session.live.fabric
    batches, operations = (session.table(table) for table in ("loader_batches", "operations"))
    mine = batches[batches["phase"] == name]
    loader = loader_numbers(mine, [outcome.phase.load_s])
    reads = operation_metrics(operations[operations["phase"] == name], "read", outcome.phase.load_s)
    readers = len(chosen(fabric.computes, config.storage.dataloader.share))
    network = {
        "drops_packets": float(outcome.conservation.dropped_by_queues),
        "retransmissions": float(outcome.conservation.retransmissions),
    }
    if not loader.get("loader.epochs"):
        return VariantOutcome(variant, {**loader, **reads, **network}, None)
    each = loader["loader.batches"] / loader["loader.epochs"] / readers
    batch_s = even_batch_s(fabric, readers, float(mine["size_bytes"].mean()))
    ideal_s = ideal_epoch_s(each, batch_s, variant.compute_s, variant.prefetch > 0)
    return VariantOutcome(variant, {**loader, **reads, "loader.ideal_epoch_s": ideal_s, **network}, ideal_s)


def answer(found: Sequence[VariantOutcome]) -> str:
    """Return the finding in words."""
    groups: dict[str, list[str]] = {}
    for one in found:
        if one.ideal_s is not None:
            told = f"{format_share(one.values['loader.waiting_fraction'])} {one.variant.ahead_words}"
            groups.setdefault(one.variant.group, []).append(told)
    if not groups:
        return "No epoch was whole."
    parts = (f"{group}: {', '.join(told)}" for group, told in groups.items())
    return f"Computing waits for data, of a reader's time: {'; '.join(parts)}."


def epochs_table(found: Sequence[VariantOutcome]) -> SummaryTable:
    """Return a row a variant."""
    rows = []
    for one in found:
        values = one.values
        names = ("epoch", "ideal_epoch", "computing", "waiting", "first_wait")
        is_whole = one.ideal_s is not None
        rows.append(
            [
                one.variant.group,
                str(one.variant.prefetch),
                *(told_time(values, f"loader.{name}") for name in names),
                f"{values['loader.waiting_fraction']:.1%}" if "loader.waiting_fraction" in values else "-",
                format_bandwidth(values["loader.node_Bps"]) if is_whole else "-",
                told_time(values, "read.p99"),
                f"{values['drops_packets']:,.0f}",
            ]
        )
    columns = ["a batch", "ahead", "epoch", "at an even rate", "computes", "waits", "of that first"]
    return SummaryTable(
        title="An epoch of each reader",
        columns=[*columns, "waits, of its time", "a node", "read p99", "dropped"],
        rows=rows,
        note="epoch: until the last reader has computed; what one computes and waits is the mean over readers. at an "
        "even rate: if all read at once and each batch took its share of the storage nodes' NICs. first: an epoch's "
        "first batch",
    )


def figure_data(found: Sequence[VariantOutcome]) -> dict[str, Any]:
    """Return what the figure draws, by group of variants that only differ in how far ahead they ask."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for one in (one for one in found if one.ideal_s is not None):
        values = one.values
        groups.setdefault(one.variant.group, []).append(
            {
                "prefetch": one.variant.prefetch,
                "computing_s": values["loader.computing_s"],
                "first_wait_s": values["loader.first_wait_s"],
                "later_wait_s": values["loader.waiting_s"] - values["loader.first_wait_s"],
                "ideal_s": one.ideal_s,
            }
        )
    return {"groups": [{"title": title, "bars": bars} for title, bars in groups.items()]}
