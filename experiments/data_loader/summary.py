"""What a run of ``data_loader`` says: epochs, and how long computing waited in them, beside what a rate alone gives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from experiments.data_loader.variants import DataLoaderConfig, Variant
from fabric.metrics import Numbers, metrics_of
from fabric.model.network import Fabric
from fabric.records.summary_table import SummaryTable
from fabric.units import format_bandwidth, format_share, format_time
from runs.counted_operations import operation_metrics, told_time
from runs.session import PhaseOutcome, Session
from traffic.metrics import payload_fraction
from traffic.storage.job import chosen
from traffic.storage.load_measures import loader_numbers


@dataclass(frozen=True)
class VariantOutcome:
    """What a variant came to, by name; ``epoch_s``: what its epoch would take if batches came at an even rate."""

    variant: Variant
    values: Mapping[str, float]
    ideal_s: float


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


def _seen(session: Session, config: DataLoaderConfig, variant: Variant, outcome: PhaseOutcome) -> VariantOutcome:
    name, fabric = variant.name, session.live.fabric
    batches, operations = (session.table(table) for table in ("loader_batches", "operations"))
    loader = Numbers(loader_numbers(batches[batches["phase"] == name]))
    reads = operation_metrics(operations[operations["phase"] == name], "read", outcome.phase.load_s)
    readers = len(chosen(fabric.computes, config.storage.dataloader.share))
    each = loader["loader.batches"] / loader["loader.epochs"] / readers
    mine = batches[batches["phase"] == name]
    batch_s = even_batch_s(fabric, readers, float(mine["size_bytes"].mean()))
    ideal_s = ideal_epoch_s(each, batch_s, variant.compute_s, variant.prefetch > 0)
    network = {
        "loader.ideal_epoch_s": ideal_s,
        "drops_packets": float(outcome.conservation.dropped_by_queues),
        "retransmissions": float(outcome.conservation.retransmissions),
    }
    return VariantOutcome(variant, Numbers({**loader, **reads, **network}), ideal_s)


def answer(found: Sequence[VariantOutcome]) -> str:
    """Return the finding in words."""
    groups: dict[str, list[str]] = {}
    for one in found:
        told = f"{format_share(one.values['loader.waiting_fraction'])} {one.variant.ahead_words}"
        groups.setdefault(one.variant.group, []).append(told)
    parts = (f"{group}: {', '.join(told)}" for group, told in groups.items())
    return f"Computing waits for data, of a reader's time: {'; '.join(parts)}."


def epochs_table(found: Sequence[VariantOutcome]) -> SummaryTable:
    """Return a row a variant."""
    rows = []
    for one in found:
        values = one.values
        rows.append(
            [
                one.variant.group,
                str(one.variant.prefetch),
                format_time(values["loader.epoch_s"]),
                format_time(one.ideal_s),
                format_time(values["loader.computing_s"]),
                format_time(values["loader.waiting_s"]),
                format_time(values["loader.first_wait_s"]),
                format_share(values["loader.waiting_fraction"], 1),
                format_bandwidth(values["loader.node_Bps"]),
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
    for one in found:
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
