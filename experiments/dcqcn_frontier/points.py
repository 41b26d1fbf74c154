"""What does each point get, steered by what, and which of them does no other one beat?"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pandas as pd

from experiments.dcqcn_frontier.cases import Setting
from experiments.dcqcn_frontier.config import DcqcnFrontierConfig
from experiments.dcqcn_frontier.reference import (
    ALGBW,
    MOST_STALLS,
    P99,
    READ,
    STALLS,
    WORST,
    AnyFound,
    AnyOutcome,
    alone_Bps,
    together,
)
from experiments.dcqcn_frontier.tables import TABLES
from fabric.records.cells import measured
from fabric.records.figure_forms import Looks, Number, Scatter, frontier, least_known
from runs.case_tables import CaseTable, Column
from runs.study import Question

LEAST_P99 = least_known(P99)


def _columns(found: AnyFound) -> list[Column | str]:
    best = frontier((one[READ], one[ALGBW]) for one in together(found) if one.case.profile)

    def of_set(head: str, value: Callable[[AnyOutcome], float | str], form: str | None = None) -> Column:
        return Column(head, lambda one: value(one) if one.case.profile else None, form)

    def marks(one: AnyOutcome) -> str:
        suits = one[WORST] >= found.config.suits
        works = suits and one[STALLS] <= MOST_STALLS
        words = ["frontier" * ((one[READ], one[ALGBW]) in best), "suits both" * suits, "works" * works]
        return ", ".join(filter(None, words)) if one.case.profile else ""

    return [
        "control {control}, in {queueing}",
        of_set("set", lambda one: one.case.profile),
        of_set("thresholds x", lambda one: one.case.thresholds, "g"),
        of_set("increase x", lambda one: one.case.increase, "g"),
        f"allreduce {{{ALGBW}|.2f GB/s}}, reads {{{READ}|.2f GB/s}}",
        Column("p99 of reads", lambda one: measured(one.values, P99) if LEAST_P99(one.values) else None),
        "marks {marked_packets}",
        of_set("rate cuts", lambda one: one["cuts"]),
        f"most stalled lane {{most_stalled_fraction|.0%}}, stalls over line's {{{STALLS}|.2f}}",
        Column("", marks),
    ]


def _note(found: AnyFound) -> tuple[str, ...]:
    allreduce, reads = (f"{rate / 1e9:.2f} GB/s" for rate in alone_Bps(found))
    return (
        f"alone, without congestion control: allreduce {allreduce}, reads {reads}",
        "frontier: no other set of DCQCN's parameters has more of both bandwidths",
        f"works: lanes are stalled for at most {MOST_STALLS:.0%} of the time "
        "for which they are with line in the same queueing",
    )


def _row(found: AnyFound, one: AnyOutcome) -> dict[str, Any]:
    """Return a row of the table ``points``."""
    case, marking = one.case, one.case.marking(found.config, found.fabric)
    steered = case.dcqcn(found.config, found.fabric).parameters(found.fabric) if case.profile else None
    named = {name: getattr(case, name) for name in ("control", "profile", "thresholds", "increase")}
    of_dcqcn = ("increase_period_s", "increase_bytes", "additive_step_bps", "hyper_step_bps")
    thresholds = {"kmin_bytes": "kmin", "kmax_bytes": "kmax", "pmax": "pmax"}
    return {
        **{"phase": case.name, "queueing": case.queueing.value, **named},
        **{name: getattr(marking, key, math.nan) for name, key in thresholds.items()},
        **{name: getattr(steered, name, math.nan) for name in of_dcqcn},
        **{"allreduce_bps": 8 * one[ALGBW], "read_bps": 8 * one[READ], "read_p99_s": LEAST_P99(one.values)},
        "cuts": int(one["cuts"]),
    }


def _keep(found: AnyFound) -> dict[str, Any]:
    rows = [_row(found, one) for one in together(found)]
    found.session.keep_frame("points", pd.DataFrame(rows, columns=list(TABLES["points"].columns)))
    return {}


POINTS = Question[Setting, DcqcnFrontierConfig](
    tables=(CaseTable("Points", _columns, _note, rows=together),),
    more=_keep,
    figures=(
        Scatter(
            "trade_off",
            "What two programs get of the same links, a dot for each variant. Lines: points of a group that no other "
            "one of it beats in both measures.",
            "What HFReduce and storage get of the same links",
            xs=(Number(READ, "storage reads (GB/s)", 1e-9), Number(LEAST_P99, "p99 of storage reads", is_time=True)),
            y=Number(ALGBW, "allreduce, algbw (GB/s)", 1e-9),
            colour="{control}, {queueing}",
            looks=Looks(11.0, 5.0, legend=3),
        ),
    ),
)
