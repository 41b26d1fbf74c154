"""How far congestion spreads: the ports whose queues stay deep, and how much slower flows are than alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping

import pandas as pd

from experiments.routing_incast.config import CongestedConfig
from fabric.results import Phase
from traffic import metrics


def deep_shares(ports: pd.DataFrame, phase: Phase, backlog_bytes: int) -> dict[str, float]:
    """Return the fraction of samples in which more than that waits at each port, in all its lanes together, while a
    phase's load played.

    ``ports`` is the table of that name. Ports that never queue so much are there, too, with 0.
    """
    inside = ports[ports["at_s"].between(*phase.load_s)]
    backlog = inside.groupby(["port", "at_s"], observed=True)["backlog_bytes"].sum()
    deep = (backlog > backlog_bytes).groupby("port", observed=True).mean()
    return {str(port): float(share) for port, share in deep.items()}


def congested_ports(ports: pd.DataFrame, phase: Phase, config: CongestedConfig) -> list[str]:
    """Return the congested ports of a phase, by name."""
    shares = deep_shares(ports, phase, config.backlog)
    return sorted(port for port, share in shares.items() if share > config.share)


def count_by_tier(congested: Collection[str], tier_of: Mapping[str, str], tiers: Collection[str]) -> dict[str, int]:
    """Return how many ports of each tier are congested; ports of no tier named count nowhere."""
    counts = Counter(tier_of[port] for port in congested)
    return {tier: counts[tier] for tier in tiers}


def read_metrics(operations: pd.DataFrame, kind: str) -> dict[str, float]:
    """Return percentiles of a phase's reads of one kind, and the mean of the readers' bandwidths; nothing if none
    completed.

    Percentiles are of all reads that began (``p99_s``, or ``p99_at_least_s``). A reader's bandwidth is what it read
    over the time in which it had a read under way.
    """
    reads = operations[operations["operation"] == kind]
    done = metrics.completion(operations, kind)
    if done is None or reads.empty:
        return {}
    return {
        "reads": len(reads),
        **done.percentiles["p50"].named("p50"),
        **done.percentiles["p99"].named("p99"),
        "bandwidth_Bps": float(reader_bandwidths(reads).mean()),
    }


def reader_bandwidths(reads: pd.DataFrame) -> pd.Series[float]:
    """Return each reader's bandwidth in bytes/s, by host and peer."""
    timed = reads.assign(time_s=reads["ended_s"] - reads["started_s"])
    sums = timed.groupby(["host", "peer"], observed=True)[["size_bytes", "time_s"]].sum()
    return sums["size_bytes"] / sums["time_s"]


def slowdowns(alone: pd.DataFrame, beside: pd.DataFrame, slowed: float) -> dict[str, float]:
    """Return how many times slower readers are beside something than alone: the mean, the worst, and how many
    pairs are slowed.

    A reader that got nothing is not compared: it has no row that ended. Nothing if no reader can be.
    """
    if alone.empty or beside.empty:
        return {}
    ratios = (reader_bandwidths(alone) / reader_bandwidths(beside)).dropna()
    if ratios.empty:
        return {}
    return {
        "slowdown": float(ratios.mean()),
        "worst_slowdown": float(ratios.max()),
        "slowed_pairs": int((ratios > slowed).sum()),
    }
