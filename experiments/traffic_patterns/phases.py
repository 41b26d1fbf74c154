"""A phase of a traffic pattern: which ports its flows take, what they deliver, and its rows of both tables."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

import pandas as pd

from controllers.planning.ecmp import TCP, FiveTuple
from controllers.planning.fairness import max_min_of_parts_bps
from controllers.planning.paths import path_load, planned_path
from controllers.planning.plan import RoutePlan
from controllers.planning.policies import Policy
from experiments.traffic_patterns.tables import FLOWS, UPLINKS
from fabric.model.identity import Role
from fabric.model.network import Fabric, Port
from fabric.model.patterns import NicPair
from runs.job_metrics import sent_by_port
from traffic.metrics import payload_fraction


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
