"""Whom does the congestion of an incast slow, and how fast is the incast itself?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from experiments.routing_incast.bystanders import APART, CROSSING
from experiments.routing_incast.cases import INCAST, OF_CASE, AnyFound, Variant, beside
from experiments.routing_incast.config import RoutingIncastConfig, choose
from fabric.metrics import Metric, metric_path, metrics_of
from fabric.records.figure_forms import Bars, Level, Looks, Number
from fabric.records.palette import GREY
from runs.case_tables import CaseTable
from runs.study import Part, Played, Question
from traffic.flows.fan_in_measures import READERS, READS, SLOWDOWN, WORST, reader_numbers, slowdowns

KINDS = (APART, CROSSING)


def _measure(played: Played[Variant, RoutingIncastConfig]) -> list[Metric]:
    """The readers' rates, and how much slower bystanders were than alone."""
    case, rows, operations = played.case, played.rows("operations"), played.session.table("operations")
    alone = operations[operations["phase"] == case.alone()]
    found = [one for kind in (INCAST, *KINDS) for one in _of_kind(case, kind, rows, reader_numbers(rows, kind))]
    for kind in KINDS if case.is_beside else ():
        before, with_it = (table[table["operation"] == kind] for table in (alone, rows))
        found += _of_kind(case, kind, rows, slowdowns(before, with_it, played.config.congested.slowed))
    return found


def _of_kind(case: Variant, kind: str, rows: pd.DataFrame, values: Mapping[str, float]) -> list[Metric]:
    """Return the numbers of the reads of a kind, which one job makes."""
    jobs = rows[rows["operation"] == kind]["job"]
    named = {metric_path(kind, name): value for name, value in values.items()}
    return metrics_of(case.name, str(jobs.iloc[0]) if len(jobs) else "", named, is_named_by_job=False)


def _readers(found: AnyFound) -> list[Part[Variant]]:
    """Return the bystanders of each kind beside the incast, and alone."""
    readers = [Part(kind, one) for one in beside(found) for kind in KINDS]
    return [one for one in readers if "slowdown" in one.values]


def _bystanders(found: AnyFound) -> dict[str, Any]:
    _, pairs = choose(found.config, found.fabric)
    return {kind: [f"{pair.server} → {pair.reader}" for pair in chosen] for kind, chosen in pairs.items()}


SLOWED = Question[Variant, RoutingIncastConfig](
    measure=_measure,
    measures=READERS,
    tables=(
        CaseTable(
            "Bystanders, alone and with the incast",
            (
                *OF_CASE,
                "pairs {part}, MB/s alone {alone.bandwidth_Bps|.3f in MB/s}, with it {bandwidth_Bps|.3f in MB/s}, "
                "slower {slowdown|.2f x}, slowest {worst_slowdown|.2f x}, slowed {slowed_pairs|.0f}, "
                "p99 alone {alone.p99_s}, with it {p99_s}",
            ),
            lambda found: (
                "apart: share no port with the incast by static routes; crossing: share an uplink of a leaf with it; "
                "slower: bandwidth alone over bandwidth with the incast, mean over pairs; slowed: pairs with more than "
                f"{found.config.congested.slowed:g} x"
            ),
            rows=_readers,
        ),
        CaseTable(
            "Incast",
            (
                *OF_CASE,
                "reads {incast.reads|.0f}, p50 {incast.p50_s}, p99 {incast.p99_s}, goodput {incast.bandwidth_Bps}",
            ),
            "a read is of all servers, and ends with the last; goodput: while a read is in progress, mean over clients",
            rows=beside,
            having=READS.of(INCAST),
        ),
    ),
    more=lambda found: {"bystanders": _bystanders(found)},
    figures=(
        Bars(
            "slowdowns",
            "How many times slower bystanders are beside the incast than alone: the mean over pairs (bar) and the "
            "slowest (line). Pairs apart share no port with the incast by static routes; those crossing share an "
            "uplink of a leaf.",
            "Bystanders of an incast, by routing policy",
            numbers=tuple(Number(SLOWDOWN.of(kind), kind, upto=WORST.of(kind)) for kind in KINDS),
            x="{policy}",
            panels="{queueing}",
            labels=("", "slowdown beside alone (times)"),
            levels=(Level(Number(lambda _: 1.0, "as alone", colour=GREY), "--"),),
            looks=Looks(10.0, 4.2, bar_words="{:.3g}"),
        ),
    ),
)
