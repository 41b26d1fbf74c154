"""Does the paper's claim hold: do no parameters of DCQCN suit both programs, where lanes without it do?

It holds in a queueing if no point with DCQCN suits both programs and works, and the reference gives each program its
share of what it gets alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial
from typing import Any

from experiments.dcqcn_frontier.cases import Setting
from experiments.dcqcn_frontier.config import DcqcnFrontierConfig
from experiments.dcqcn_frontier.finding import answer
from experiments.dcqcn_frontier.reference import (
    SHARES,
    WORST,
    AnyFound,
    Kind,
    beside_reference,
    kinds_of,
    lanes_do,
    limiting,
)
from fabric.measures import Better, Measure
from fabric.metrics import Metric, metrics_of
from fabric.records.cells import Cell, joined, quantity
from runs.case_tables import CaseTable, Column
from runs.study import Question

SET = "{profile} x{thresholds} x{increase}"


def _over_points(found: AnyFound) -> Iterator[Metric]:
    for kind in kinds_of(found, with_dcqcn=True):
        share = kind.nearest("{name}", works=True)[WORST]
        counts = {"suiting_points": float(len(kind.suiting)), "working_points": float(len(kind.working))}
        holds = {"claim_holds": float(lanes_do(found) and not kind.working)}
        nearest = {} if math.isnan(share) else {"nearest_fraction": share}
        yield from metrics_of(kind.case.queueing.value, "", {**holds, **counts, **nearest})


def _named(found: AnyFound) -> dict[str, Any]:
    """Return the claim in each queueing, with the names of points."""
    return {
        kind.case.queueing.value: {
            "points": len(kind.outcomes),
            "suiting": [one.case.name for one in kind.suiting],
            "working": [one.case.name for one in kind.working],
            "nearest": kind.nearest("{name}", works=True).case.name,
            "holds": lanes_do(found) and not kind.working,
        }
        for kind in kinds_of(found, with_dcqcn=True)
    }


def _best(kind: Kind, share: str) -> float | str:
    return max((value for value in kind.each(share) if not math.isnan(value)), default="unknown")


def _worst(kind: Kind) -> Cell:
    one = kind.nearest(SET)
    share = "unknown" if math.isnan(one[WORST]) else quantity(one[WORST], ".0%")
    return joined([share, f"({limiting(one)})"], " ")


CLAIM = Question[Setting, DcqcnFrontierConfig](
    measures=(
        Measure(
            "claim_holds",
            "1 if no set of DCQCN's parameters works for both programs and lanes without it do, 0 otherwise",
        ),
        Measure("suiting_points", "sets of DCQCN's parameters that suit both programs"),
        Measure("working_points", "sets of these that keep ports from standing still for too long"),
        Measure(
            "nearest_fraction",
            "lowest share of what lanes without DCQCN give, over measures, with its parameters nearest to suiting both",
            Better.MORE,
        ),
    ),
    aside=beside_reference,
    over_cases=_over_points,
    answer=answer,
    tables=(
        CaseTable(
            "Do they suit both?",
            (
                "control {control}, in {queueing}",
                Column("points", lambda kind: len(kind.outcomes)),
                Column("suit both", lambda kind: len(kind.suiting)),
                Column("and work", lambda kind: len(kind.working) if kind.case.profile else None),
                *(Column(f"best {name}", partial(_best, share=share), ".0%") for name, share in SHARES.items()),
                Column("nearest", lambda kind: kind.nearest(SET).case.format(SET) if kind.case.profile else "-"),
                Column("its worst measure", _worst),
            ),
            lambda found: (
                f"parts of what line in lossless lanes gives; to suit, all three must reach {found.config.suits:.0%} "
                "(of the p99, the reference over it)"
            ),
            rows=kinds_of,
        ),
    ),
    more=lambda found: {"claims": _named(found)},
)
