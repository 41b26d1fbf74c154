"""What the numbers of a run of ``routing_incast`` mean."""

from __future__ import annotations

from fabric.measures import Better, Measure

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
CONGESTED = Measure("congested_ports.<tier>", "ports of this tier whose queue stayed deep", Better.LESS)
MEASURES = (
    READS,
    BANDWIDTH,
    SLOWDOWN,
    WORST,
    SLOWED_PAIRS,
    Measure("congested_ports", "ports of switches whose queue stayed deep", Better.LESS),
    CONGESTED,
    Measure("moves", "destinations that adaptive routing moved to another path"),
    Measure("reorderings", "times that a sender's TCP found that a packet was only overtaken"),
)
