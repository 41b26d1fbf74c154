"""What a run of ``graysort`` says: how long each phase took, how busy NICs were, and what that is for the paper's
data."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from experiments.graysort.variants import PAPER_BYTES, PAPER_NODES, PAPER_S, Computing, GraySortConfig, Variant
from fabric.metrics import metrics_of
from fabric.model.network import Fabric
from fabric.records.cells import Quantity, Row, measured, quantity
from fabric.records.summary_table import SummaryTable
from fabric.units import format_share
from runs.session import PhaseOutcome, Session
from runs.true_scale import true_time, why_alone
from traffic.metrics import payload_fraction
from traffic.sorting.graph import EXCHANGE, MEET, Exchange, SortShape


@dataclass(frozen=True)
class Nics:
    """What NICs carry, in bytes per second each way: those of a compute node, and of all storage nodes together."""

    node_Bps: float  # noqa: N815 - bytes, not bits
    storage_Bps: float  # noqa: N815

    @classmethod
    def of(cls, fabric: Fabric) -> Nics:
        """Return those of a fabric, of which a compute node uses one."""
        nic_Bps = fabric.nic_rate_bps / 8  # noqa: N806
        return cls(nic_Bps, nic_Bps * sum(len(fabric.nics_of[node]) for node in fabric.storages))


@dataclass(frozen=True)
class Moved:
    """What a sort moves, in bytes: into and out of a compute node, and out of and into all storage nodes together."""

    node_in: float
    node_out: float
    storage_out: float
    storage_in: float

    @classmethod
    def of(cls, shape: SortShape, replicas: int) -> Moved:
        """Return what a sort moves: a write passes from replica to replica."""
        own = shape.node_bytes
        exchanged = own * (shape.ranks - 1) / shape.ranks if shape.exchange is Exchange.NODES else 0.0
        passed = shape.passes * own
        whole = passed * shape.ranks
        return cls(passed + exchanged, passed + exchanged, whole * replicas, whole * replicas)

    def shares(self, nics: Nics, seconds: float) -> dict[str, float]:
        """Return what part of NICs this took in a time, of payload alone."""
        return {
            "compute_nic_fraction": max(self.node_in, self.node_out) / nics.node_Bps / seconds,
            "storage_nic_fraction": max(self.storage_in, self.storage_out) / nics.storage_Bps / seconds,
        }

    def least_s(self, nics: Nics, payload: float) -> float:
        """Return how long it takes at least, if NICs carry so much of their rate as payload."""
        return max(self.shares(nics, 1.0).values()) / payload


@dataclass(frozen=True)
class VariantOutcome:
    """What a variant came to, by name of the measure."""

    variant: Variant
    values: Mapping[str, float]


def summarize(session: Session, config: GraySortConfig, playing: Sequence[Variant]) -> dict[str, Any]:
    """Return the tables and metrics of a run."""
    outcomes = {outcome.phase.name: outcome for outcome in session.phases}
    found = [_seen(session, config, variant, outcomes[variant.name]) for variant in playing]
    return {
        "title": "GraySort's shape",
        "answer": answer(found),
        "metrics": [
            metric
            for one in found
            for metric in metrics_of(one.variant.name, "sort", one.values, is_named_by_job=False)
        ],
        "tables": [sorts_table(session.live.fabric, config, found)],
        "graysort": figure_data(found),
    }


def _seen(session: Session, config: GraySortConfig, variant: Variant, outcome: PhaseOutcome) -> VariantOutcome:
    fabric, shape = session.live.fabric, variant.sort(config.sort).shape
    rows = session.table("work_operations")
    times = phase_times(rows[rows["phase"] == variant.name])
    moved, nics = Moved.of(shape, config.sort.files.replicas), Nics.of(fabric)
    all_s = times["all_s"]
    values = {
        **times,
        "node_Bps": shape.node_bytes / all_s,
        "least_s": moved.least_s(nics, payload_fraction(fabric.mtu_bytes)),
        **moved.shares(nics, all_s),
        **papers_data(fabric, variant, all_s, shape.node_bytes),
        "drops_packets": float(outcome.conservation.dropped_by_queues),
        "retransmissions": float(outcome.conservation.retransmissions),
    }
    return VariantOutcome(variant, values)


def papers_data(fabric: Fabric, variant: Variant, all_s: float, node_bytes: float) -> dict[str, float]:
    """Return how long the paper's data would take by a variant's time per byte, at the true rate: what the network
    alone takes follows from scaled rates, too, with computing it is known at the true rate only."""
    if variant.computing is not Computing.NONE and why_alone(fabric) is not None:
        return {}
    return {"papers_data_s": true_time(fabric, all_s) * PAPER_BYTES / PAPER_NODES / node_bytes}


def phase_times(operations: pd.DataFrame) -> dict[str, float]:
    """Return how long a sort and its two phases took, by the rows of its operations: the first phase ends when all
    partitions are where they can be sorted."""
    began, ended = float(operations["started_s"].min()), float(operations["ended_s"].max())
    kinds = operations["name"].astype(str).str.split(" ").str[0]
    met = float(operations[kinds.isin([MEET, EXCHANGE])]["ended_s"].max())
    return {"all_s": ended - began, "apart_s": met - began, "sort_s": ended - met}


def answer(found: Sequence[VariantOutcome]) -> str:
    """Return the finding in words."""
    network = {
        one.variant.exchange_words: one.values["papers_data_s"]
        for one in found
        if one.variant.computing is Computing.NONE
    }
    told = [
        f"{words} {_seconds(seconds).words}, {format_share(seconds / PAPER_S)}" for words, seconds in network.items()
    ]
    if not told:
        return "No variant was played without computing, so what the network alone takes is not known."
    return (
        f"For the published 110.5 TiB on 50 nodes, which took {PAPER_S:,.0f} s, the network alone would take, by its "
        f"time per byte here: {'; '.join(told)}."
    )


def _seconds(value_s: float) -> Quantity:
    return quantity(value_s, ",.0f s")


def sorts_table(fabric: Fabric, config: GraySortConfig, found: Sequence[VariantOutcome]) -> SummaryTable:
    """Return a row a variant."""
    rows: list[Row] = []
    for one in found:
        values = one.values
        rows.append(
            [
                one.variant.exchange_words,
                one.variant.computing.words,
                *(measured(values, name) for name in ("all_s", "least_s", "apart_s", "sort_s")),
                measured(values, "compute_nic_fraction"),
                measured(values, "storage_nic_fraction"),
                _seconds(values.get("papers_data_s", math.nan)),
                measured(values, "drops_packets"),
            ]
        )
    columns = ["exchange", "computing", "all", "NICs' least", "taking apart", "sorting"]
    shape = config.sort.shape
    return SummaryTable(
        title="GraySort's shape",
        columns=[*columns, "compute NICs", "storage NICs", "for the paper's data", "dropped"],
        rows=rows,
        note=f"{shape.ranks} nodes with {shape.node_bytes / 2**20:.4g} MiB each. NICs: payload, of their rate each "
        "way, over all of the time; NICs' least: how long the fuller of them takes at its rate. for the paper's data: "
        f"110.5 TiB on 50 nodes at this time per byte; they took {PAPER_S:,.0f} s"
        + ("" if fabric.scale == 1 else f", at the true rate; with computing, {why_alone(fabric)}"),
    )


def figure_data(found: Sequence[VariantOutcome]) -> dict[str, Any]:
    """Return what the figure draws."""
    return {
        "paper_s": PAPER_S,
        "bars": [
            {
                "title": one.variant.title,
                "apart_s": one.values["papers_data_s"] * one.values["apart_s"] / one.values["all_s"],
                "sort_s": one.values["papers_data_s"] * one.values["sort_s"] / one.values["all_s"],
                "least_s": one.values["papers_data_s"] * one.values["least_s"] / one.values["all_s"],
            }
            for one in found
            if "papers_data_s" in one.values
        ],
    }
