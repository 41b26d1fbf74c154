"""How busy each kind of link of a fabric was, in the order in which data passes that is read from storage."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from fabric.measures import Measure
from fabric.model.identity import Role
from fabric.model.network import Fabric, Port
from fabric.percentiles import nearest_ranks

_ROLES = {
    Role.COMPUTE: "compute node",
    Role.STORAGE: "storage node",
    Role.LEAF: "leaf",
    Role.SPINE: "spine",
    Role.CORE: "core",
    Role.INTER_ZONE: "zone switch",
}
ON_THE_WAY = ("storage node to leaf", "leaf to spine", "spine to leaf", "leaf to compute node")
"""The kinds of links that a read's data passes, in that order."""

USE_MEAN = Measure("use.<links>.mean", "share of their rate that links of a kind carried, mean over links")
USE_MOST = Measure("use.<links>.most", "share of its rate that the busiest link of a kind carried")


@dataclass(frozen=True)
class KindUse:
    """How busy the links of a kind were in one direction, as shares of their rate: the mean link, the 99th percentile
    of links, the busiest."""

    kind: str
    links: int
    mean: float
    p99: float
    most: float

    @property
    def named(self) -> dict[str, float]:
        """It by the names of measures."""
        kind = label_of(self.kind)
        return {USE_MEAN.of(kind): self.mean, USE_MOST.of(kind): self.most}


def label_of(kind: str) -> str:
    """Return what names of measures call a kind of links."""
    return kind.replace(" ", "_")


def kind_of(fabric: Fabric, port: Port) -> str:
    """Return the kind of link that a port sends on: from what to what."""
    return " to ".join(_ROLES[node.role] for node in (port.node, fabric.peer(port).node))


def link_uses(fabric: Fabric, ports: pd.DataFrame, in_time: tuple[float, float]) -> list[KindUse]:
    """Return how busy each kind of link between nodes was from the first to the last sample of a stretch of time; none
    if there are no two."""
    links = {str(port): (port, link) for port, link in fabric.directed_ports()}
    rows = ports[ports["at_s"].between(*in_time) & ports["port"].isin(links)]
    times = np.unique(rows["at_s"])
    if len(times) < 2:
        return []
    sent = rows.groupby(["at_s", "port"], observed=True)["sent_bytes"].sum()
    bps = (sent.loc[times[-1]] - sent.loc[times[0]]) * 8 / float(times[-1] - times[0])
    by_kind: dict[str, list[float]] = {}
    for name, rate in bps.items():
        port, link = links[str(name)]
        by_kind.setdefault(kind_of(fabric, port), []).append(rate / link.rate_bps)
    return [
        KindUse(kind, len(shares), float(np.mean(shares)), nearest_ranks(shares, 99)[0], max(shares))
        for kind, shares in sorted(by_kind.items(), key=lambda one: _place(one[0]))
    ]


def _place(kind: str) -> tuple[int, str]:
    """Sort kinds of links as a read's data passes them, then those that only requests pass."""
    return ON_THE_WAY.index(kind) if kind in ON_THE_WAY else len(ON_THE_WAY), kind
