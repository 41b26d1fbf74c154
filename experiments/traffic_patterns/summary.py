"""The tables and metrics of traffic patterns: what flows delivered and how they met on uplinks, beside theory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from controllers.planning.collisions import Histogram
from controllers.planning.policies import Policy
from experiments.traffic_patterns.theory import expected_on_uplinks
from fabric.metrics import metrics_of
from fabric.model.network import Fabric
from fabric.model.patterns import compute_nics
from fabric.percentiles import nearest_ranks
from fabric.records.cells import Row, measured
from fabric.records.summary_table import SummaryTable
from traffic.metrics import payload_fraction

PERMUTATION = "permutation"


@dataclass(frozen=True)
class Variant:
    """What is played: a pattern, and the routes that it takes."""

    pattern: str
    policy: Policy

    @property
    def name(self) -> str:
        """As metrics have it."""
        return f"{self.pattern}_{self.policy.name}"

    def rows_of(self, frame: pd.DataFrame) -> pd.DataFrame:
        """Return its rows of a table."""
        return frame[(frame["pattern"] == self.pattern) & (frame["policy"] == self.policy.name)]

    def theory(self, fabric: Fabric, uplinks: pd.DataFrame) -> Histogram | None:
        """Return the share of uplinks with each number of flows in theory; None where none is known: static routes have
        dealt the destinations of all-to-all evenly, as the plan says and no chance."""
        if not self.policy.hashing and self.pattern != PERMUTATION:
            return None
        return expected_on_uplinks(fabric, self.policy, uplinks)


Found = dict[str, float]
"""Numbers of a variant, by their names."""


def summarize(
    fabric: Fabric, variants: Sequence[Variant], flows: pd.DataFrame, uplinks: pd.DataFrame, draws: int
) -> dict[str, Any]:
    """Return the tables and metrics of a run; ``flows`` and ``uplinks`` are its own tables."""
    theories = {variant: variant.theory(fabric, variant.rows_of(uplinks)) for variant in variants}
    found = {
        variant: _of_flows(fabric, variant.rows_of(flows), draws)
        | _of_uplinks(fabric, variant.rows_of(uplinks), theories[variant])
        for variant in variants
    }
    return {
        "title": f"Traffic patterns on {fabric.name}",
        "answer": _answer(found),
        "metrics": [metric for variant, one in found.items() for metric in metrics_of(variant.name, "", one)],
        "uplinks_in_theory": {variant.name: _listed(theory) for variant, theory in theories.items() if theory},
        "tables": [_flows_table(found, draws), *([_uplinks_table(found)] if len(uplinks) else [])],
    }


def _of_flows(fabric: Fabric, rows: pd.DataFrame, draws: int) -> Found:
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


def _of_uplinks(fabric: Fabric, rows: pd.DataFrame, theory: Histogram | None) -> Found:
    """Return how flows met on leaves' uplinks; ``carried_off_fraction`` is the most by which what an uplink carried
    differs from what its flows delivered, of its rate."""
    if rows.empty:
        return {}
    rates_bps = rows["port"].astype(str).map({str(port): link.rate_bps for port, link in fabric.link_at.items()})
    off = (rows["carried_bps"] - rows["delivered_bps"]).abs() / rates_bps
    found = {
        "uplink_flows_mean": float(rows["flows"].mean()),
        "uplink_flows_most": float(rows["flows"].max()),
        "uplink_flows_variance": float(rows["flows"].to_numpy().var()),
        "uplinks_idle_fraction": float((rows["flows"] == 0).mean()),
        "carried_off_fraction": float(off.max()),
    }
    if theory is None:
        return found
    return found | {
        "theory_uplink_flows_variance": _variance(theory),
        "theory_uplinks_idle_fraction": theory.get(0, 0.0),
    }


def _variance(histogram: Histogram) -> float:
    mean = sum(count * share for count, share in histogram.items())
    return sum((count - mean) ** 2 * share for count, share in histogram.items())


def _listed(histogram: Histogram) -> list[list[float]]:
    return [[count, share] for count, share in histogram.items()]


def _answer(found: Mapping[Variant, Found]) -> str:
    used = [
        f"{variant.pattern.replace('_', '-')} by {variant.policy.name} routes {one['nics_used_fraction']:.0%} "
        f"({one['theory_nics_used_fraction']:.0%} in theory)"
        for variant, one in found.items()
    ]
    return f"Of what all NICs could receive, there arrive: {', '.join(used)}."


def _flows_table(found: Mapping[Variant, Found], draws: int) -> SummaryTable:
    rows: list[Row] = [
        [
            variant.pattern,
            variant.policy.name,
            measured(one, "flows", ".0f"),
            measured(one, "nics_used_fraction"),
            measured(one, "theory_nics_used_fraction"),
            measured(one, "share_p50_fraction", ".2f"),
            measured(one, "share_least_fraction", ".2f"),
        ]
        for variant, one in found.items()
    ]
    return SummaryTable(
        title="What flows deliver",
        columns=["pattern", "routes", "flows", "of all NICs", "in theory", "of its fair share: median", "least"],
        rows=rows,
        note=f"{draws} draws of each; theory: flows share the links of their paths max-min fairly",
    )


def _uplinks_table(found: Mapping[Variant, Found]) -> SummaryTable:
    rows: list[Row] = [
        [
            variant.pattern,
            variant.policy.name,
            measured(one, "uplink_flows_mean", ".2f"),
            measured(one, "uplink_flows_most", ".0f"),
            measured(one, "uplink_flows_variance", ".2f"),
            measured(one, "theory_uplink_flows_variance", ".2f"),
            measured(one, "uplinks_idle_fraction"),
            measured(one, "theory_uplinks_idle_fraction"),
            measured(one, "carried_off_fraction"),
        ]
        for variant, one in found.items()
    ]
    return SummaryTable(
        title="Flows on leaves' uplinks",
        columns=["pattern", "routes", "mean", "most", "variance", "theory", "idle", "theory", "carried is off by"],
        rows=rows,
        note="theory: hashes throw flows into uplinks as balls into bins (binomial), static routes draw them from "
        "those that are an uplink's own (hypergeometric); carried: what an uplink sent beside what its flows "
        "delivered, the most of any, of its rate",
    )
