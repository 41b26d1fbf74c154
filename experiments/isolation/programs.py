"""What do programs keep of what each has alone?"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from operator import methodcaller
from typing import Any

from experiments.isolation.cases import COLLECTIVES, OPERATIONS, AnyFound, Mix
from experiments.isolation.config import IsolationConfig
from fabric.measures import Better, Measure
from fabric.metrics import metric_path
from fabric.model.lanes import ServiceLevel
from fabric.records.figure_forms import Bars, Looks, Number, Places
from runs.case_tables import CaseTable
from runs.counted_operations import NOTE
from runs.study import Outcome, Part, Played, Point, Question, of_job
from traffic import metrics
from traffic.collectives.nccl import sent_fraction
from traffic.collectives.step_numbers import collective_numbers

RATES = {
    "HFReduce, algbw": ("hfreduce.algbw_Bps", ServiceLevel.HFREDUCE),
    "NCCL, algbw": ("nccl.algbw_Bps", ServiceLevel.NCCL),
    "storage reads, bandwidth": ("read.bandwidth_Bps", ServiceLevel.STORAGE),
}
"""What figures compare with the same alone, and whose lane it is in."""
COMPLETED = "p50 {p50_s}, p99 {p99_s}, p99.9 {p999_s}, completed {operations|.0f or 0}"
BARS = partial(
    Bars,
    colour="{queueing}",
    panels="others offer {load} of each NIC",
    marks=(Number("promised", "promised by its lane", size=14.0),),
    looks=Looks(11.0, 1.2, legend=5, horizontal=True, percent_y=True, bar_words="{:.0%}", places=Places(0.6)),
)
"""A figure of shares beside those that lanes promise."""


def _steps(played: Played[Any, IsolationConfig], job: str) -> dict[str, float]:
    steps = played.rows("steps", job)
    slowest = {} if steps.empty else {"slowest_step_s": float((steps["ended_s"] - steps["started_s"]).max())}
    return {**collective_numbers(steps), **slowest}


def _parts(*parts: str) -> Callable[[AnyFound], list[Part[Any]]]:
    """Return the rows of parts in all cases in which they play."""
    return lambda found: [row for part in parts for one in found.outcomes if (row := Part(part, one)).is_measured]


def _ideal_Bps(found: AnyFound) -> dict[str, float]:  # noqa: N802 - bytes, not bits
    """Return the algbw of each collective with a full NIC at the busiest rank."""
    nccl, rate_bps = found.config.nccl, found.fabric.nic_rate_bps
    fraction = sent_fraction(nccl.algorithm, found.config.nccl_nodes, nccl.collective)
    return {
        ServiceLevel.HFREDUCE.label: metrics.ideal_hfreduce_algbw(rate_bps),
        ServiceLevel.NCCL.label: metrics.ideal_algbw(rate_bps, fraction),
    }


def _theory(found: AnyFound, one: Outcome[Any]) -> dict[str, float]:
    ideal = _ideal_Bps(found).items()
    return {name: rate for part, rate in ideal if (name := metric_path(part, "algbw_Bps")) in one.values}


def _points(found: AnyFound, one: Outcome[Any]) -> list[Point]:
    promised = found.config.queues.promised
    return [
        Point({"program": words}, {"kept": one.times(rate).value, "promised": promised[level.label]})
        for words, (rate, level) in RATES.items()
        if isinstance(one.case, Mix)
    ]


PROGRAMS = Question[Any, IsolationConfig](
    measure=(
        *(of_job(one.label, partial(_steps, job=one.label), is_named_by_job=True) for one in COLLECTIVES),
        *(of_job(level.label, methodcaller("operations", operation)) for operation, level in OPERATIONS.items()),
    ),
    measures=(Measure("slowest_step_s", "time of the slowest step", Better.LESS),),
    theory=_theory,
    points=_points,
    tables=(
        CaseTable(
            "Allreduce",
            "phase {title}, collective {part}, algbw {algbw_Bps}, busbw {busbw_Bps}, "
            "of ideal {algbw_Bps / algbw_in_theory_Bps|.0%}, median step {step_s}, slowest {slowest_step_s}, "
            "steps {steps|.0f}, time / alone {step_s / alone}",
            "algbw and busbw as nccl-tests define them, median over steps; ideal: a full NIC at the busiest rank",
            rows=_parts("hfreduce", "nccl"),
        ),
        CaseTable(
            "Storage",
            f"phase {{title}}, operation {{part}}, bandwidth {{bandwidth_Bps}}, {COMPLETED}, "
            "failed {failed|.0f or 0}, bandwidth / alone {bandwidth_Bps / alone}",
            ("percentiles of completion latency, as fio's, of operations that began in the load of all", NOTE),
            rows=_parts("read", "write"),
        ),
        CaseTable(
            "Other traffic: completion time of flows",
            f"phase {{title}}, {COMPLETED}, abandoned {{abandoned|.0f or 0}}, failed {{failed|.0f or 0}}, "
            "refused {refused|.0f or 0}, p99 / alone {p99_s / alone}",
            ("of flows that began while all of the load played", NOTE, "refused: as max_flows of its host ran"),
            rows=_parts("flow"),
        ),
    ),
    more=lambda found: {"ideal_algbw_Bps": _ideal_Bps(found)},
    figures=(
        BARS(
            "isolation",
            "The bandwidth of each program with all others, over that alone; black: what its lane promises.",
            "What one shared queue costs, and what lanes keep",
            numbers=(Number("kept", ""),),
            x="{program}",
            labels=("bandwidth kept, of that alone", ""),
        ),
    ),
)
