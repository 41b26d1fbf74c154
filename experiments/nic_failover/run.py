"""A NIC's link fails: what is left of an allreduce's bandwidth, and how soon?

NCCL's rings run over some hosts, one or more over each NIC, first with every link and then with a NIC's link cut in the
middle and not mended. Ranks see that nothing comes, and the job begins again over the NICs whose links are up at every
rank. With one NIC there is none left, so the job stands still until the link is back.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Annotated, Any

import pandas as pd
from pydantic import Field, model_validator

from fabric.config import TimeS
from fabric.failures.schedule import Failure, FailureSchedule
from fabric.metrics import Metric
from fabric.model.lanes import Queueing
from fabric.model.network import Fabric, Link
from fabric.records.cells import Quantity, count_of, quantity
from fabric.records.summary_table import SummaryTable
from runs.config import QueueingConfig
from runs.jobs import started
from runs.phase_lengths import PhaseLengths
from runs.session import Session
from traffic.collectives.bandwidth import with_bandwidths
from traffic.collectives.job import ElementsBytes, PieceBytes, piece_faults
from traffic.collectives.nccl import MOST_CHANNELS, NcclConfig, NcclJob

WHOLE, CUT = "whole", "cut"


class NicFailoverConfig(QueueingConfig):
    """Rings over hosts with several NICs; in the second phase, a NIC's link is cut."""

    queueing: Annotated[Queueing, Field(strict=False)] = Field(
        default=Queueing.LANES, description="Queueing in which both phases play."
    )
    nodes: Annotated[int, Field(ge=2, le=65_536)] = Field(
        default=4, description="Hosts of the rings: the first ones of the fabric."
    )
    rings_per_nic: Annotated[int, Field(ge=1, le=32)] = Field(default=1, description="Rings over each NIC.")
    size: ElementsBytes = Field(default=256 * 1024, description="Bytes that each host contributes to a step.")
    slice: PieceBytes = Field(default=16 * 1024, description="Size of the pieces that a rank forwards.")
    stall_timeout: Annotated[TimeS, Field(gt=0)] = Field(
        default=1.0, description="How long a rank waits without a byte before the job begins again; longer than a step."
    )
    nic: Annotated[int, Field(ge=0, le=64)] = Field(
        default=0, description="Number of the first host's NIC whose link is cut."
    )
    cut_at: Annotated[TimeS, Field(gt=0)] = Field(
        default=2.0, description="When the link is cut in the second phase, counted from when all ranks play."
    )
    phase_time: Annotated[TimeS, Field(gt=0)] = Field(default=10.0, description="Length of each phase.")

    @model_validator(mode="after")
    def _verify_times(self) -> NicFailoverConfig:
        if self.cut_at >= self.phase_time:
            raise ValueError(f"cut_at: {self.cut_at:g} s is not within phase_time {self.phase_time:g} s; lower it")
        return self

    @property
    def cuts_links(self) -> bool:
        """Whatever its config says."""
        return True

    @property
    def phase_lengths(self) -> PhaseLengths:
        """All phases are as long."""
        return PhaseLengths.of(self, "phase_time")

    def faults(self, fabric: Fabric) -> Iterator[str]:
        """Yield what does not fit the fabric."""
        yield from super().faults(fabric)
        if self.failures:
            yield "failures: this experiment cuts a link of its own; remove them"
        yield from piece_faults("slice", self.slice, self.size)
        hosts = fabric.computes[: self.nodes]
        if len(hosts) < self.nodes:
            yield f"nodes: {self.nodes} exceed the {len(hosts)} compute nodes of {fabric.name}; lower it"
        fewest = min(len(fabric.nics_of[host]) for host in hosts)
        if (rings := fewest * self.rings_per_nic) > MOST_CHANNELS:
            found = f"{self.rings_per_nic} on {fewest} NICs are {rings} rings"
            yield f"rings_per_nic: {found}, and a job has {MOST_CHANNELS} at most; lower it"
        if self.nic >= fewest:
            yield f"nic: {self.nic}: hosts have NICs 0 to {fewest - 1}; choose one of them"

    def job_config(self, nics: int) -> NcclConfig:
        """Return the job's config where hosts have so many NICs."""
        return NcclConfig(
            size=self.size,
            slice=self.slice,
            channels=nics * self.rings_per_nic,
            stall_timeout=self.stall_timeout,
            failover=True,
        )


def run_nic_failover(session: Session, config: NicFailoverConfig) -> dict[str, Any]:
    """Play both phases and return the summary."""
    fabric = session.live.fabric
    hosts = fabric.computes[: config.nodes]
    nics = len(fabric.nics_of[hosts[0]])
    link = fabric.link_at[fabric.nics_of[hosts[0]][config.nic].port]
    session.use_queueing(config.queueing)
    for phase, title, schedule in (
        (WHOLE, "all links", None),
        (CUT, f"{link} cut", FailureSchedule.of([Failure(link, config.cut_at, math.inf)])),
    ):
        job = NcclJob(session.stage, config.job_config(nics), hosts)
        with started(session, [job]):
            session.warm_up(job)
            session.run_phase(phase, title, [job], config.phase_time, schedule)
    failures, restarts = session.table("failures"), session.table("restarts")
    cut_s = float(failures["done_s"].min()) if len(failures) else math.nan
    return summarize(session.table("steps"), restarts, cut_s, link, nics)


def summarize(steps: pd.DataFrame, restarts: pd.DataFrame, cut_s: float, link: Link, nics: int) -> dict[str, Any]:
    """Return the table and metrics of a run. ``cut_s``: when the link was cut, by the clock of the tables."""
    timed = with_bandwidths(steps)
    whole = float(timed[timed["phase"] == WHOLE]["busbw"].median())
    resumed = restarts[restarts["phase"] == CUT]["resumed_s"].dropna()
    resumed_s = float(resumed.max()) if len(resumed) else math.inf
    after = timed[(timed["phase"] == CUT) & (timed["started_s"] >= resumed_s)]
    left = float(after["busbw"].median()) / whole if len(after) else 0.0
    theory = (nics - 1) / nics
    again_s = resumed_s - cut_s if len(after) else math.nan
    metrics = [
        Metric(WHOLE, "", "busbw_Bps", whole),
        Metric(CUT, "", "busbw_Bps", left * whole),
        Metric(CUT, "", "left_fraction", left),
        Metric(CUT, "", "theory_left_fraction", theory),
        Metric(CUT, "", "again_after_s", again_s),
        Metric(CUT, "", "steps", float(len(after))),
    ]
    rates = (quantity(rate, "rate") for rate in (8 * whole, 8 * left * whole))
    again = quantity(again_s, "time")
    parts = (quantity(left, ".1%"), quantity(theory, ".1%"), again if again.is_measured else "not while it lasts")
    return {
        "title": "A NIC's link fails during an allreduce",
        "answer": _answer(nics, link, left, again),
        "metrics": metrics,
        "cut_s": cut_s,
        "tables": [
            SummaryTable(
                title="Bandwidth left",
                columns=["NICs per host", "busbw before", "after", "left", "in theory", "steps again after"],
                rows=[[count_of(nics), *rates, *parts]],
                note="medians of steps; after: those begun since the job last began again",
            )
        ],
    }


def _answer(nics: int, link: Link, left: float, again: Quantity) -> str:
    answer = f"With {nics} NIC{'s' * (nics > 1)} per host and {link} cut, {left:.1%} of the bandwidth are left"
    return f"{answer}, {again.words} after the cut." if again.is_measured else f"{answer}."
