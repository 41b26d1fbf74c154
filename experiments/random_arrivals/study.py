"""How long does a packet wait at a link whose packets come at random?

A host sends single packets of one size to another, at the times of a Poisson process, by an open loop. Each waits at
the host's link for those before it; all later links are as fast or faster, so nothing waits there again. That is M/D/1,
where the mean wait is rho / (2 (1 - rho)) times what a packet takes, at a load of rho (Pollaczek and Khinchine).
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from typing import Any

from experiments.random_arrivals.config import HEADERS_BYTES, RandomArrivalsConfig
from fabric.model.network import Fabric
from runs.case_tables import CaseTable, Column, say
from runs.cases import Case, axis
from runs.session import Session
from runs.study import Found, Outcome, Study
from traffic.flows.random_arrivals import Burst, RandomArrivalsJob
from traffic.flows.random_waits import MEASURES, waits


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
            times_s = (job.sent_ns / 1e9, job.came_ns / 1e9)
            counted[case.name] = waits(*times_s, case.load, wire_s, config.frames, config.batches)
    return STUDY.summarize(session, config, cases, counted)


def frame_time_s(fabric: Fabric, payload_bytes: int) -> float:
    """Return what a packet takes on a NIC's link."""
    return (payload_bytes + HEADERS_BYTES) * 8 / fabric.nic_rate_bps


def off_fraction(one: Outcome[Arrivals]) -> float:
    """Return how far the mean wait is from theory."""
    return one["mean_wait_s"] / one["theory_wait_s"] - 1


def _measured(found: Found[Arrivals, RandomArrivalsConfig]) -> list[Outcome[Arrivals]]:
    return [one for one in found.outcomes if "mean_wait_s" in one.values]


def _answer(found: Found[Arrivals, RandomArrivalsConfig]) -> str:
    worst = max(_measured(found), key=lambda one: abs(off_fraction(one)), default=None)
    if worst is None:
        return "No packet came."
    words = say(worst, "the farthest off at a load of {load}")
    return f"Mean waits are within {abs(off_fraction(worst)):.1%} of theory, {words}."


STUDY = Study[Arrivals, RandomArrivalsConfig](
    title="Random arrivals: how long packets wait at a link",
    cases=Arrivals.grid,
    measure=lambda played: played.counted,
    measures=MEASURES,
    answer=_answer,
    tables=(
        CaseTable(
            "Waits",
            (
                "load {load}, mean wait {mean_wait_s|.3f us}, standard error {error_s|.3f us}, "
                "M/D/1 {theory_wait_s|.3f us}",
                Column("off", off_fraction, "+.1%"),
                "these arrivals {explained_wait_s|.3f us}, a packet off {most_off_s|.3f us}, "
                "longest {longest_wait_s|.3f us}, lost {lost_packets}",
            ),
            "errors: of means of batches; these arrivals: Lindley's recursion of when they were sent",
            rows=_measured,
        ),
    ),
)
