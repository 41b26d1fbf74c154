"""How much of GraySort's half hour on 3FS would the network alone take?

smallpond sorted 110.5 TiB with 50 compute nodes and 25 storage nodes in 30 minutes and 14 seconds (3FS's README): tasks
take the data apart into partitions, then each partition is sorted, and both phases read from and write to 3FS. Only the
shape is played: the same steps, by fewer nodes, with some MB each. Once without computing, so that the network is all
there is; its time per byte then says how long it would take for the published amount.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import partial

import pandas as pd

from experiments.graysort.config import PAPER_BYTES, PAPER_NODES, PAPER_S, Computing, GraySortConfig, Sort
from fabric.measures import Better, Measure
from fabric.metrics import Metric, metrics_of
from fabric.model.lanes import ServiceLevel
from fabric.model.network import Fabric
from fabric.records.figure_forms import Bars, Level, Looks, Number
from fabric.records.figure_forms import Numbers as Known
from fabric.records.summary_table import SummaryTable
from fabric.units import format_share
from runs.case_tables import Column, case_table
from runs.session import Session
from runs.study import Found, Played, Study
from runs.true_scale import true_time, why_alone
from traffic.metrics import payload_fraction
from traffic.sorting.graph import EXCHANGE, MEET, Exchange, SortShape
from traffic.stepped_job import FiniteSteps
from traffic.work.job import WorkJob
from traffic.work.operation_names import word_of


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


def papers_data(fabric: Fabric, case: Sort, all_s: float, node_bytes: float) -> dict[str, float]:
    """Return how long the paper's data would take by a case's time per byte, at the true rate: what the network
    alone takes follows from scaled rates, too, with computing it is known at the true rate only."""
    if case.computing is not Computing.NONE and why_alone(fabric) is not None:
        return {}
    return {"papers_data_s": true_time(fabric, all_s) * PAPER_BYTES / PAPER_NODES / node_bytes}


def phase_times(operations: pd.DataFrame) -> dict[str, float]:
    """Return how long a sort and its two phases took, by the rows of its operations: the first phase ends when all
    partitions are where they can be sorted."""
    began, ended = float(operations["started_s"].min()), float(operations["ended_s"].max())
    kinds = operations["name"].astype(str).map(word_of)
    met = float(operations[kinds.isin([MEET, EXCHANGE])]["ended_s"].max())
    return {"all_s": ended - began, "apart_s": met - began, "sort_s": ended - met}


MEASURES = (
    Measure("all_s", "time of the sort", Better.LESS),
    Measure("apart_s", "time of its first phase, until all partitions are where they can be sorted", Better.LESS),
    Measure("sort_s", "time of its second phase, which sorts the partitions", Better.LESS),
    Measure("node_Bps", "data of a node over the time of the sort", Better.MORE),
    Measure("least_s", "time that the bytes of the sort take at least on the NICs of the fabric"),
    Measure(
        "compute_nic_fraction", "payload over what a compute node's NICs carry in the time of the sort", Better.MORE
    ),
    Measure(
        "storage_nic_fraction", "payload over what all storage nodes' NICs carry in the time of the sort", Better.MORE
    ),
    Measure(
        "papers_data_s",
        "time of the published 110.5 TiB on 50 nodes, by the time per byte here at full rate",
        Better.LESS,
    ),
)


def _play(session: Session, config: GraySortConfig, case: Sort) -> None:
    session.use_queueing(config.queueing)
    session.tell(case.title)
    nodes = session.live.fabric.computes[: config.sort.ranks]
    job = WorkJob(session.stage, case.sort(config.sort), nodes, level=ServiceLevel.STORAGE, name="sort")
    with closing(job):
        job.start()
        job.warm_up()
        session.run_phase(case.name, case.title, [FiniteSteps(job, partial(job.run_steps, 1))], 0.0)


def _measure(played: Played[Sort, GraySortConfig]) -> list[Metric]:
    fabric, config, shape = played.fabric, played.config.sort, played.case.sort(played.config.sort).shape
    times = phase_times(played.rows("work_operations"))
    moved, nics, all_s = Moved.of(shape, config.files.replicas), Nics.of(fabric), times["all_s"]
    values = {
        **times,
        "node_Bps": shape.node_bytes / all_s,
        "least_s": moved.least_s(nics, payload_fraction(fabric.mtu_bytes)),
        **moved.shares(nics, all_s),
        **papers_data(fabric, played.case, all_s, shape.node_bytes),
        **played.packets(),
    }
    return metrics_of(played.case.name, "sort", values, is_named_by_job=False)


def _answer(found: Found[Sort, GraySortConfig]) -> str:
    told = [
        f"{one.case.exchange_words} {_seconds(one['papers_data_s'])}, {format_share(one['papers_data_s'] / PAPER_S)}"
        for one in found.outcomes
        if one.case.computing is Computing.NONE
    ]
    if not told:
        return "No variant was played without computing, so what the network alone takes is not known."
    return (
        f"For the published 110.5 TiB on 50 nodes, which took {PAPER_S:,.0f} s, the network alone would take, by its "
        f"time per byte here: {'; '.join(told)}."
    )


def _seconds(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:,.0f} s"


def _tables(found: Found[Sort, GraySortConfig]) -> Iterator[SummaryTable]:
    fabric, shape = found.fabric, found.config.sort.shape
    yield case_table(
        "GraySort's shape",
        found.outcomes,
        (
            Column("exchange", "exchange_words"),
            Column("computing", "computing"),
            Column("all", "all_s"),
            Column("NICs' least", "least_s"),
            Column("taking apart", "apart_s"),
            Column("sorting", "sort_s"),
            Column("compute NICs", "compute_nic_fraction", ".1%"),
            Column("storage NICs", "storage_nic_fraction", ".1%"),
            Column("for the paper's data", "papers_data_s", ",.0f s"),
            Column("dropped", "drops_packets"),
        ),
        f"{shape.ranks} nodes with {shape.node_bytes / 2**20:.4g} MiB each. NICs: payload, of their rate each way, "
        "over all of the time; NICs' least: how long the fuller of them takes at its rate. for the paper's data: "
        f"110.5 TiB on 50 nodes at this time per byte; they took {PAPER_S:,.0f} s"
        + ("" if fabric.scale == 1 else f", at the true rate; with computing, {why_alone(fabric)}"),
    )


def _of_papers(part: str, label: str) -> Number:
    """Return a part of the time that the published data would take."""

    def seconds(of: Known) -> float:
        return of["papers_data_s"] * of[part] / of["all_s"]

    return Number(seconds, label)


STUDY = Study(
    title="GraySort's shape",
    cases=Sort.grid,
    play=_play,
    measure=_measure,
    measures=MEASURES,
    answer=_answer,
    tables=_tables,
    figures=(
        Bars(
            "sort_times",
            "How long GraySort's 110.5 TiB would take on 50 nodes at the time per byte that was measured, by phase: "
            "without computing, and with the time of the published run. Lines: the fuller NICs at their rate.",
            "GraySort's shape: time for its data on 50 nodes",
            numbers=(_of_papers("apart_s", "taking the data apart"), _of_papers("sort_s", "sorting partitions")),
            x="{title}",
            labels=("time of the sort (s)", ""),
            stacked=True,
            marks=(_of_papers("least_s", "NICs at their rate"),),
            levels=(Level(Number(lambda _: PAPER_S, "published")),),
            looks=Looks(height=3.6, horizontal=True),
        ),
    ),
)
