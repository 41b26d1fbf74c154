"""What does a flow deliver, of what all NICs could receive and of its fair share of its path?"""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from experiments.traffic_patterns.cases import MEASURED, THEORY, Variant
from experiments.traffic_patterns.config import TrafficPatternsConfig
from experiments.traffic_patterns.tables import FLOWS
from fabric.measures import Better, Measure
from fabric.model.network import Fabric
from fabric.model.patterns import compute_nics
from fabric.percentiles import nearest_ranks
from runs.case_tables import Answer, CaseTable
from runs.cases import Point
from runs.study import Question
from traffic.metrics import payload_fraction

_PERCENTS = range(0, 101, 5)


def flow_numbers(fabric: Fabric, rows: pd.DataFrame, draws: int) -> dict[str, float]:
    """Return what flows delivered: of what all NICs could receive, in theory, and of each flow's own fair share."""
    rates_bps = sum(fabric.link_at[nic.port].rate_bps for nic in compute_nics(fabric))
    most_bps = draws * rates_bps * payload_fraction(fabric.mtu_bytes)
    of_share = rows["goodput_bps"] / rows["fair_bps"]
    return {
        "flows": len(rows) / draws,
        "nics_used_fraction": float(rows["goodput_bps"].sum()) / most_bps,
        "theory_nics_used_fraction": float(rows["fair_bps"].sum()) / most_bps,
        "share_p50_fraction": nearest_ranks(of_share, 50)[0],
        "share_least_fraction": float(of_share.min()),
    }


def goodputs(flows: pd.DataFrame) -> Iterator[Point]:
    """Yield the distribution of goodput over flows point by point, beside theory."""
    for of, column in ((MEASURED, "goodput_bps"), (THEORY, "fair_bps")):
        values = nearest_ranks(flows[column], *_PERCENTS) if len(flows) else []
        for percent, value in zip(_PERCENTS, values, strict=False):
            yield Point({"flows_percent": str(percent), "of": of}, {"goodput_bps": value})


DELIVERED = Question[Variant, TrafficPatternsConfig](
    measure=lambda played: flow_numbers(
        played.fabric, played.case.rows(played.session.table, FLOWS), played.config.draws
    ),
    measures=(
        Measure("flows", "flows of a draw"),
        Measure("nics_used_fraction", "what flows delivered, over what all NICs can receive", Better.MORE),
        Measure(
            "theory_nics_used_fraction",
            "what flows would deliver at their max-min fair rates, over what all NICs can receive",
        ),
        Measure(
            "share_p50_fraction",
            "goodput over the flow's max-min fair rate, median over flows",
            Better.MORE,
            is_of_many=True,
        ),
        Measure("share_least_fraction", "goodput over the flow's max-min fair rate, the lowest of a flow", Better.MORE),
    ),
    points=lambda found, one: list(goodputs(one.case.rows(found.session.table, FLOWS))),
    answer=Answer(
        "Of what all NICs could receive, there arrive: {}.",
        each="{pattern} by {policy} routes {nics_used_fraction|.0%} ({theory_nics_used_fraction|.0%} in theory)",
    ),
    tables=(
        CaseTable(
            "What flows deliver",
            "pattern {pattern}, routes {policy}, flows {flows}, of all NICs {nics_used_fraction}, "
            "in theory {theory_nics_used_fraction}, of its fair share: median {share_p50_fraction|.2f}, "
            "least {share_least_fraction|.2f}",
            lambda of: f"{of.config.draws} draws of each; theory: flows share the links of their paths max-min fairly",
        ),
    ),
)
