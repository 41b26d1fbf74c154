"""Numbers of reads from several servers: how fast readers read, and how much slower beside something than alone."""

from __future__ import annotations

import pandas as pd

from fabric.measures import Better, Measure
from traffic import metrics

READS = Measure("<readers>.reads", "reads that completed", Better.MORE)
BANDWIDTH = Measure(
    "<readers>.bandwidth_Bps",
    "bytes that a reader read over the time in which it had a read under way, mean over readers",
    Better.MORE,
)
SLOWDOWN = Measure(
    "<readers>.slowdown", "a reader's bandwidth alone over that beside the incast, mean over readers", Better.LESS
)
WORST = Measure(
    "<readers>.worst_slowdown", "a reader's bandwidth alone over that beside the incast, the largest", Better.LESS
)
SLOWED_PAIRS = Measure(
    "<readers>.slowed_pairs", "pairs of hosts that the incast slowed by more than the limit", Better.LESS
)
READERS = (READS, BANDWIDTH, SLOWDOWN, WORST, SLOWED_PAIRS)


def reader_numbers(operations: pd.DataFrame, kind: str) -> dict[str, float]:
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
        **done.percentiles["p50"].named("p50_s"),
        **done.percentiles["p99"].named("p99_s"),
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
