"""What the numbers of a run of ``dcqcn_frontier`` mean."""

from __future__ import annotations

from fabric.measures import Better, Measure

MEASURES = (
    Measure("read_Bps", "bytes of reads per second", Better.MORE),
    Measure("read_p99_s", "99th percentile of the time that reads take", Better.LESS),
    Measure(
        "read_p99_at_least_s",
        "the least that this percentile can be: the read at this rank did not complete",
        Better.LESS,
    ),
    Measure("marked_packets", "packets that switches marked"),
    Measure("cuts", "times that DCQCN lowered a rate"),
    Measure(
        "claim_holds", "1 if no set of DCQCN's parameters works for both programs and lanes without it do, 0 otherwise"
    ),
    Measure("suiting_points", "sets of DCQCN's parameters that suit both programs"),
    Measure("working_points", "sets of these that keep ports from standing still for too long"),
    Measure(
        "nearest_fraction",
        "lowest share of what lanes without DCQCN give, over measures, with its parameters nearest to suiting both",
        Better.MORE,
    ),
)
