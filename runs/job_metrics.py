"""Numbers that several experiments take from the tables of a run: what ports sent, and what waited at them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection

import pandas as pd

from fabric.measures import Better, Measure
from fabric.model.identity import NodeId, Role
from fabric.model.network import Fabric, Port
from fabric.results import Phase

UNEVEN = Measure("uplinks_most_ratio", "bytes of the busiest uplink over the mean of its leaf, the most of any leaf")
CONGESTED = (
    Measure("congested_ports", "ports of switches whose queue stayed deep", Better.LESS),
    Measure("congested_ports.<tier>", "ports of this tier whose queue stayed deep", Better.LESS),
)
QUEUES = (
    Measure("queue_mean_bytes", "bytes that wait at the leaf's port to the client, mean over samples", Better.LESS),
    Measure("queue_most_bytes", "most bytes that wait at the leaf's port to the client in a sample", Better.LESS),
)


def sent_by_port(ports: pd.DataFrame) -> dict[str, float]:
    """Return how many bytes each port sent in all its lanes, from the first of some rows of ``ports`` to the last."""
    sent = ports.groupby(["port", "lane"], observed=True)["sent_bytes"].agg(["min", "max"])
    totals = (sent["max"] - sent["min"]).groupby("port", observed=True).sum()
    return {str(name): float(total) for name, total in totals.items()}


def sent_over_time(ports: pd.DataFrame, port: Port, in_time: tuple[float, float]) -> pd.Series[float]:
    """Return how many bytes a port had sent in all its lanes, at each sample of a stretch of time."""
    rows = ports[ports["at_s"].between(*in_time) & (ports["port"] == str(port))]
    return rows.groupby("at_s")["sent_bytes"].sum()


def marked_packets(ports: pd.DataFrame, in_time: tuple[float, float]) -> int:
    """Return how many packets switches marked from the first to the last sample of a stretch of time."""
    inside = ports[ports["at_s"].between(*in_time)]
    marks = inside.groupby(["port", "lane"], observed=True)["marked_packets"]
    return int((marks.max() - marks.min()).sum())


def queue_numbers(ports: pd.DataFrame, port: str, lane: str, in_time: tuple[float, float]) -> dict[str, float]:
    """Return how much waited at a port's lane, over the samples of a stretch of time; nothing without any."""
    inside = ports["at_s"].between(*in_time)
    waiting = ports[inside & (ports["port"] == port) & (ports["lane"] == lane)]["backlog_bytes"]
    if waiting.empty:
        return {}
    return {"queue_mean_bytes": float(waiting.mean()), "queue_most_bytes": float(waiting.max())}


def unevenness(fabric: Fabric, ports: pd.DataFrame, in_time: tuple[float, float]) -> float:
    """Return what the busiest uplink of a leaf carried over the mean of all, the most of any leaf; NaN: none sent."""
    sent = sent_by_port(ports[ports["at_s"].between(*in_time)])
    found = []
    for leaf in fabric.with_role(Role.LEAF):
        carried = [sent.get(str(port), 0.0) for port in fabric.uplinks_of(leaf)]
        if sum(carried):
            found.append(max(carried) * len(carried) / sum(carried))
    return max(found, default=math.nan)


def deep_shares(ports: pd.DataFrame, phase: Phase, backlog_bytes: int) -> dict[str, float]:
    """Return the fraction of samples in which more than that waits at each port, in all its lanes together, while a
    phase's load played.

    ``ports`` is the table of that name. Ports that never queue so much are there, too, with 0.
    """
    inside = ports[ports["at_s"].between(*phase.load_s)]
    backlog = inside.groupby(["port", "at_s"], observed=True)["backlog_bytes"].sum()
    deep = (backlog > backlog_bytes).groupby("port", observed=True).mean()
    return {str(port): float(share) for port, share in deep.items()}


def deep_ports(ports: pd.DataFrame, phase: Phase, backlog_bytes: int, share: float) -> list[str]:
    """Return by name the ports at which more than that waits in more than a share of samples."""
    shares = deep_shares(ports, phase, backlog_bytes)
    return sorted(port for port, found in shares.items() if found > share)


def congested_numbers(
    fabric: Fabric, clients: Collection[NodeId], ports: pd.DataFrame, phase: Phase, backlog_bytes: int, share: float
) -> dict[str, float]:
    """Return how many ports of switches are deep (:func:`deep_ports`), and how many of each of :data:`TIERS`."""
    tier_of = {str(port): tier for port, tier in tiers(fabric, clients).items()}
    counts = Counter(tier_of[port] for port in deep_ports(ports, phase, backlog_bytes, share))
    return {
        "congested_ports": sum(counts[tier] for tier in TIERS),
        **{congested_name(one): counts[one] for one in TIERS},
    }


def congested_name(tier: str) -> str:
    """Return the name of a tier's number of congested ports, such as ``congested_ports.leaf_to_spine``."""
    return CONGESTED[1].of(tier.replace(" → ", "_to_").replace(" ", "_"))


def tiers(fabric: Fabric, clients: Collection[NodeId]) -> dict[Port, str]:
    """Return what kind each port is: by what it sends from and to, those to clients apart."""
    found = {}
    for port, _ in fabric.directed_ports():
        peer = fabric.peer(port).node
        if not peer.is_switch:
            found[port] = TO_CLIENT if peer in clients else TO_OTHERS
        elif not port.node.is_switch:
            found[port] = FROM_HOSTS
        else:
            found[port] = _SWITCH_TIERS.get((port.node.role, peer.role), OTHER)
    return found


TO_CLIENT, TO_OTHERS, FROM_HOSTS = "leaf → client", "leaf → other hosts", "host → leaf"
UP, DOWN, OTHER = "leaf → spine", "spine → leaf", "inter-zone"
TIERS = (TO_CLIENT, DOWN, UP, TO_OTHERS, OTHER)
"""Of switches, from the client backwards."""
_SWITCH_TIERS = {(Role.LEAF, Role.SPINE): UP, (Role.SPINE, Role.LEAF): DOWN}
