"""What a phase of a traffic pattern was planned to be and was, flow by flow and uplink by uplink."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

import pandas as pd

from fabric.model.identity import Role
from fabric.model.network import Fabric, Port
from fabric.model.patterns import NicPair
from runs.job_metrics import sent_by_port
from traffic.metrics import payload_fraction


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
