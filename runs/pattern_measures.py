"""What flows of a traffic pattern deliver, and how they meet on leaves' uplinks, beside theory: the tables
``pattern_flows`` and ``pattern_uplinks``, numbers of their rows, and their distributions in figures."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import pandas as pd

from controllers.planning.collisions import Histogram, UplinkTheory, mixture
from controllers.planning.ecmp import TCP, FiveTuple
from controllers.planning.fairness import max_min_of_parts_bps
from controllers.planning.paths import path_load, planned_path
from controllers.planning.plan import RoutePlan
from controllers.planning.policies import Policy
from controllers.routing import Routing
from fabric.measures import Better, Measure
from fabric.model.identity import NodeId, Role
from fabric.model.network import Fabric, Port
from fabric.model.patterns import NicPair, compute_nics
from fabric.percentiles import nearest_ranks
from fabric.results import Result
from fabric.tables import NO_UNIT, Column, Table, common
from runs.cases import Point
from runs.job_metrics import sent_by_port
from runs.plans import planned
from traffic.metrics import payload_fraction

FLOWS, UPLINKS = "pattern_flows", "pattern_uplinks"
_PERMUTATION = "permutation"
_PLAYED = {
    **common("phase"),
    "pattern": Column("category", NO_UNIT, "traffic pattern"),
    "policy": Column("category", NO_UNIT, "routing policy"),
}
TABLES = {
    FLOWS: Table(
        "One row per phase and flow of a traffic pattern.",
        {
            **_PLAYED,
            "source": Column("category", NO_UNIT, "port of the NIC that sends"),
            "destination": Column("category", NO_UNIT, "port of the NIC that receives"),
            "goodput_bps": Column("float64", "bit/s", "payload that arrived per second of the measured time"),
            "fair_bps": Column(
                "float64", "bit/s", "the same if all flows shared the links of their paths max-min fairly"
            ),
        },
    ),
    UPLINKS: Table(
        "One row per phase and uplink of a leaf.",
        {
            **_PLAYED,
            **common("port"),
            "flows": Column("int64", "count", "flows whose path has this uplink"),
            "flows_of_leaf": Column("int64", "count", "flows that leave this leaf"),
            "delivered_bps": Column("float64", "bit/s", "what these flows delivered, with headers"),
            "carried_bps": Column("float64", "bit/s", "what the uplink sent in the measured time"),
        },
    ),
}
MEASURES = (
    Measure("flows", "flows of a draw"),
    Measure("nics_used_fraction", "what flows delivered, over what all NICs can receive", Better.MORE),
    Measure(
        "theory_nics_used_fraction",
        "what flows would deliver at their max-min fair rates, over what all NICs can receive",
    ),
    Measure("share_p50_fraction", "goodput over the flow's max-min fair rate, median over flows", Better.MORE),
    Measure("share_least_fraction", "goodput over the flow's max-min fair rate, the lowest of a flow", Better.MORE),
    Measure("uplink_flows_mean", "flows on an uplink of a leaf, mean"),
    Measure("uplink_flows_most", "flows on an uplink of a leaf, the most", Better.LESS),
    Measure("uplink_flows_variance", "flows on an uplink of a leaf, variance over uplinks", Better.LESS),
    Measure("uplinks_idle_fraction", "share of the uplinks that no flow uses", Better.LESS),
    Measure(
        "carried_off_fraction",
        "most by which what an uplink carried differs from what its flows delivered, over its rate",
        Better.LESS,
    ),
    Measure("theory_uplink_flows_variance", "variance of the flows on an uplink, if hashes choose evenly"),
    Measure("theory_uplinks_idle_fraction", "share of the uplinks that no flow uses, if hashes choose evenly"),
)


def flow_paths(
    plan: RoutePlan, fabric: Fabric, policy: Policy, ports: Mapping[NicPair, tuple[int, int]]
) -> dict[NicPair, Mapping[Port, float]]:
    """Return what part of each flow takes each port on its way. ``ports``: those of its connection, the source's
    first."""
    keys = {flow: FiveTuple(flow[0].ip, flow[1].ip, TCP, *of_flow) for flow, of_flow in ports.items()}
    if policy.sprays:
        return {flow: path_load(plan, fabric, *flow) for flow in keys}
    return {flow: dict.fromkeys(planned_path(plan, fabric, *flow, key), 1.0) for flow, key in keys.items()}


def fair_shares_bps(fabric: Fabric, paths: Mapping[NicPair, Mapping[Port, float]]) -> dict[NicPair, float]:
    """Return the payload that each flow delivers if all share the links of their paths max-min fairly, in bit/s."""
    payload = payload_fraction(fabric.mtu_bytes)
    rates = max_min_of_parts_bps(fabric, list(paths.values()))
    return {flow: rate * payload for flow, rate in zip(paths, rates, strict=True)}


@dataclass(frozen=True)
class PatternPhase:
    """A phase: the ports of each flow, with the part of it that takes each; what it delivered, and its max-min fair
    share (bit/s of payload)."""

    name: str
    pattern: str
    policy: str
    paths: Mapping[NicPair, Mapping[Port, float]]
    goodput_bps: Mapping[NicPair, float]
    fair_bps: Mapping[NicPair, float]

    def frames(self, fabric: Fabric, ports: pd.DataFrame, measured_s: tuple[float, float]) -> dict[str, pd.DataFrame]:
        """Return its rows of both tables, by their names."""
        return {FLOWS: self.flows_frame(), UPLINKS: self.uplinks_frame(fabric, ports, measured_s)}

    def flows_frame(self) -> pd.DataFrame:
        """Return a row of ``pattern_flows`` for each flow."""
        rows = [
            {
                **self._played,
                "source": str(flow[0].port),
                "destination": str(flow[1].port),
                "goodput_bps": self.goodput_bps[flow],
                "fair_bps": self.fair_bps[flow],
            }
            for flow in self.paths
        ]
        return pd.DataFrame(rows)

    def uplinks_frame(self, fabric: Fabric, ports: pd.DataFrame, measured_s: tuple[float, float]) -> pd.DataFrame:
        """Return a row of ``pattern_uplinks`` for each uplink of a leaf. ``ports``: the run's samples; ``measured_s``:
        when the measured time began and ended."""
        flows: Counter[Port] = Counter()
        delivered_bps: dict[Port, float] = defaultdict(float)
        for flow, path in self.paths.items():
            flows.update(path.keys())
            for port, part in path.items():
                delivered_bps[port] += part * self.goodput_bps[flow] / payload_fraction(fabric.mtu_bytes)
        within = ports[ports["at_s"].between(*measured_s)]
        seconds = float(within["at_s"].max() - within["at_s"].min())
        sent = sent_by_port(within)
        rows = []
        for leaf in fabric.with_role(Role.LEAF):
            uplinks = fabric.uplinks_of(leaf)
            leaving = sum(flows[port] for port in uplinks)
            rows += [
                {
                    **self._played,
                    "port": str(port),
                    "flows": flows[port],
                    "flows_of_leaf": leaving,
                    "delivered_bps": delivered_bps[port],
                    "carried_bps": sent.get(str(port), 0.0) * 8 / seconds,
                }
                for port in uplinks
            ]
        return pd.DataFrame(rows)

    @property
    def _played(self) -> dict[str, str]:
        return {"phase": self.name, "pattern": self.pattern, "policy": self.policy}


def expected_on_uplinks(fabric: Fabric, policy: Policy, is_permutation: bool, uplinks: pd.DataFrame) -> Histogram:
    """Return the share of leaves' uplinks with each number of flows in theory, given how many leave each leaf in each
    phase. ``uplinks``: rows of ``pattern_uplinks``; without
    ``is_permutation`` all NICs send to all.

    Empty if there are none, or no theory is known: sprayed flows are on all, and static routes have dealt the
    destinations of all-to-all evenly, as the plan says and no chance.
    """
    if uplinks.empty or policy.sprays or not (policy.hashing or is_permutation):
        return {}
    theory = UplinkTheory(fabric, planned(fabric, Routing(policy=policy)), policy)
    leaves = uplinks["port"].astype(str).str.partition(":")[0]
    return mixture(
        (theory.of_leaf(NodeId.parse(str(leaf)), int(rows["flows_of_leaf"].iloc[0])), len(rows))
        for (_, leaf), rows in uplinks.groupby(["phase", leaves], observed=True)
    )


@dataclass(frozen=True)
class PatternRows:
    """Rows of a pattern by one policy: its flows, leaves' uplinks, and how many flows these have in theory."""

    flows: pd.DataFrame
    uplinks: pd.DataFrame
    theory: Histogram

    @classmethod
    def of(cls, table: Callable[[str], pd.DataFrame], fabric: Fabric, pattern: str, policy: Policy) -> PatternRows:
        """Return those of both tables, which are given by name."""
        flows, uplinks = (
            rows[(rows["pattern"] == pattern) & (rows["policy"] == policy.name)]
            for rows in map(table, (FLOWS, UPLINKS))
        )
        return cls(flows, uplinks, expected_on_uplinks(fabric, policy, pattern == _PERMUTATION, uplinks))

    def numbers(self, fabric: Fabric, draws: int) -> dict[str, float]:
        """Return their numbers."""
        return {**flow_numbers(fabric, self.flows, draws), **uplink_numbers(fabric, self.uplinks, self.theory)}


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


def uplink_numbers(fabric: Fabric, rows: pd.DataFrame, theory: Histogram) -> dict[str, float]:
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
    if theory:
        mean = sum(count * share for count, share in theory.items())
        found["theory_uplink_flows_variance"] = sum((count - mean) ** 2 * share for count, share in theory.items())
        found["theory_uplinks_idle_fraction"] = theory.get(0, 0.0)
    return found


# In figures -----------------------------------------------------------------------------------------------------------

MEASURED, THEORY = "measured", "in theory"
_PERCENTS = range(0, 101, 5)
_LIKELY = 0.9999
"""Of uplinks: what theory says of the others is not shown."""


def distributions(rows: PatternRows) -> Iterator[Point]:
    """Yield distributions point by point beside theory: of goodput over flows, and of flows over uplinks."""
    flows, uplinks = rows.flows, rows.uplinks
    for of, column in ((MEASURED, "goodput_bps"), (THEORY, "fair_bps")):
        goodputs = nearest_ranks(flows[column], *_PERCENTS) if len(flows) else []
        for percent, value in zip(_PERCENTS, goodputs, strict=False):
            yield Point({"flows_percent": str(percent), "of": of}, {"goodput_bps": value})
    shares = uplinks["flows"].value_counts(normalize=True)
    counted = dict(zip(shares.index.tolist(), shares.tolist(), strict=True))
    for of, histogram in ((MEASURED, counted), (THEORY, rows.theory)):
        reached = 0.0
        for count in range(int(max(histogram, default=-1)) + 1):
            if of == MEASURED or reached < _LIKELY:
                reached += histogram.get(count, 0.0)
                yield Point({"flows": str(count), "of": of}, {"uplinks_fraction": reached})


def earlier_cases(result: Result) -> Iterator[Point]:
    """Yield the distributions of a result whose summary lists no cases, from its rows."""
    theories = result.summary.get("uplinks_in_theory", {})
    flows, uplinks = result.table(FLOWS), result.table(UPLINKS)
    for (pattern, policy), mine in flows.groupby(["pattern", "policy"], sort=False, observed=True):
        theory = {int(count): share for count, share in theories.get(f"{pattern}_{policy}", ())}
        own = uplinks[(uplinks["pattern"] == pattern) & (uplinks["policy"] == policy)]
        for part in distributions(PatternRows(mine, own, theory)):
            settings = {"pattern": str(pattern).replace("_", "-"), "policy": str(policy), **part.settings}
            yield Point(settings, part.numbers)
