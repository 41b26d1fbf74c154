"""How long does a packet wait at a link whose packets come at random?

A host sends single packets of one size to another, at the times of a Poisson process, by an open loop. Each waits at
the host's link for those before it; all later links are as fast or faster, so nothing waits there again. That is M/D/1,
where the mean wait is rho / (2 (1 - rho)) times what a packet takes, at a load of rho (Pollaczek and Khinchine).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from experiments.random_arrivals.config import HEADERS_BYTES, RandomArrivalsConfig
from fabric.measures import Better, Measure
from fabric.metrics import metrics_of
from fabric.model.network import Fabric
from fabric.records.summary_table import SummaryTable
from runs.case_tables import Column, case_table
from runs.cases import Case, axis
from runs.session import Session
from runs.study import Found, Outcome, Study
from traffic.flows.random_arrivals import Burst, RandomArrivalsJob


@dataclass(frozen=True)
class Arrivals(Case, name="load_{load}", title="at a load of {load}"):
    """Arrivals at a load of the link."""

    load: float = axis("loads", words="{:.0%}".format)


def run_random_arrivals(session: Session, config: RandomArrivalsConfig) -> dict[str, Any]:
    """Play every load with the same two programs, and return the summary."""
    session.use_queueing(config.queueing)
    source, sink = session.live.fabric.computes[:2]
    wire_s = frame_time_s(session.live.fabric, config.payload)
    cases, counted = Arrivals.grid(config), {}
    with closing(RandomArrivalsJob(session.stage, source, sink, config.payload)) as job:
        job.start()
        for number, case in enumerate(cases):
            job.burst = Burst(config.frames, wire_s / case.load, (config.seed, number))
            session.run_phase(case.name, case.title, [job], 0.0)
            counted[case.name] = waits(job.sent_ns / 1e9, job.came_ns / 1e9, case.load, wire_s, config)
    return STUDY.summarize(session, config, cases, counted)


def frame_time_s(fabric: Fabric, payload_bytes: int) -> float:
    """Return what a packet takes on a NIC's link."""
    return (payload_bytes + HEADERS_BYTES) * 8 / fabric.nic_rate_bps


Seconds = npt.NDArray[np.float64]


def waits(
    sent_s: Seconds, came_s: Seconds, load: float, wire_s: float, config: RandomArrivalsConfig
) -> dict[str, float]:
    """Return the mean wait of packets, its standard error, what theory says of such arrivals (M/D/1) and of these very
    ones. ``sent_s`` and ``came_s``: of each packet, in the order of sending, shape (n,).

    What a packet takes that does not wait is the median of what each took beyond the wait that those before it explain.
    ``most_off_s`` is how far a single packet was from that.
    """
    found = {"theory_wait_s": load / (2 * (1 - load)) * wire_s, "lost_packets": float(config.frames - len(sent_s))}
    if len(sent_s) < config.batches:
        return found
    explained_s = lindley(sent_s, wire_s)
    beyond_s = came_s - sent_s - explained_s
    unhindered_s = float(np.median(beyond_s))
    waited_s = came_s - sent_s - unhindered_s
    means = [float(batch.mean()) for batch in np.array_split(waited_s, config.batches)]
    return found | {
        "mean_wait_s": float(waited_s.mean()),
        "error_s": float(np.std(means, ddof=1)) / len(means) ** 0.5,
        "explained_wait_s": float(explained_s.mean()),
        "most_off_s": float(np.abs(beyond_s - unhindered_s).max()),
        "longest_wait_s": float(waited_s.max()),
    }


def lindley(sent_s: Seconds, wire_s: float) -> Seconds:
    """Return how long each packet has to wait for those before it: W' = max(0, W + S - gap) (Lindley, 1952)."""
    found = np.zeros(len(sent_s))
    for number, gap_s in enumerate(np.diff(sent_s), start=1):
        found[number] = max(0.0, found[number - 1] + wire_s - gap_s)
    return found


def off_fraction(one: Outcome[Arrivals]) -> float:
    """Return how far the mean wait is from theory."""
    return one["mean_wait_s"] / one["theory_wait_s"] - 1


def _measured(found: Found[Arrivals, RandomArrivalsConfig]) -> list[Outcome[Arrivals]]:
    return [one for one in found.outcomes if "mean_wait_s" in one.values]


def _answer(found: Found[Arrivals, RandomArrivalsConfig]) -> str:
    worst = max(_measured(found), key=lambda one: abs(off_fraction(one)), default=None)
    if worst is None:
        return "No packet came."
    load = worst.case.format("{load}")
    return f"Mean waits are within {abs(off_fraction(worst)):.1%} of theory, the farthest off at a load of {load}."


def _tables(found: Found[Arrivals, RandomArrivalsConfig]) -> Iterator[SummaryTable]:
    def us(head: str, name: str) -> Column:
        return Column(head, name, ".3f us")

    yield case_table(
        "Waits",
        _measured(found),
        (
            Column("load", "load"),
            us("mean wait", "mean_wait_s"),
            us("standard error", "error_s"),
            us("M/D/1", "theory_wait_s"),
            Column("off", off_fraction, "+.1%"),
            us("these arrivals", "explained_wait_s"),
            us("a packet off", "most_off_s"),
            us("longest", "longest_wait_s"),
            Column("lost", "lost_packets"),
        ),
        "errors: of means of batches; these arrivals: Lindley's recursion of when they were sent",
    )


MEASURES = (
    Measure("theory_wait_s", "mean wait of such arrivals in theory (M/D/1)"),
    Measure("lost_packets", "packets that were sent and did not arrive", Better.LESS),
    Measure("mean_wait_s", "mean wait of packets at the link"),
    Measure("error_s", "standard error of the mean wait, of means of batches", Better.LESS),
    Measure("explained_wait_s", "mean wait that these arrivals explain, by Lindley's recursion"),
    Measure(
        "most_off_s", "most that the wait of a packet differs from what the arrivals before it explain", Better.LESS
    ),
    Measure("longest_wait_s", "longest wait of a packet"),
)


STUDY = Study(
    title="Random arrivals: how long packets wait at a link",
    cases=Arrivals.grid,
    measure=lambda played: metrics_of(played.case.name, "", played.counted),
    measures=MEASURES,
    answer=_answer,
    tables=_tables,
)
