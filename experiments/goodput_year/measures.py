"""What the numbers of a run of ``goodput_year`` mean."""

from __future__ import annotations

from fabric.measures import Better, Measure

FAILURES_OF = Measure("<kind>.failures", "failures of this kind that a job had")
MEAN = Measure(
    "<kind>.<part>_mean_s", "time that this part of a failure's cost takes, mean over failures of the kind", Better.LESS
)
MOST = Measure(
    "<kind>.<part>_most_s",
    "time that this part of a failure's cost takes, the most of a failure of the kind",
    Better.LESS,
)
PART_MEAN = Measure(
    "<part>_mean_s", "time that this part of a suspension or of a node's leave takes, mean", Better.LESS
)
STORM = Measure(
    "<storm>_fraction", "bytes of all nodes at once per second over what the storage NICs carry, median", Better.MORE
)
RUNTIME = Measure("<machine>.runtime_fraction", "runtime goodput of a year, median over seeds", Better.MORE)
TOTAL = Measure("<machine>.total_fraction", "total goodput of a year, median over seeds", Better.MORE)
LOST = Measure("<machine>.lost_per_failure_mean_s", "time that a failure of the year costs, mean", Better.LESS)
MEASURES = (
    FAILURES_OF,
    MEAN,
    MOST,
    Measure("over_five_minutes_fraction", "share of the failures that cost more than five minutes", Better.LESS),
    Measure("cut.stalled_mean_s", "time by which a cut made a step longer, mean over cuts", Better.LESS),
    PART_MEAN,
    STORM,
    Measure("times_as_long", "time of communication with what failed, over that without", Better.LESS),
    Measure("stall_s", "time that the allreduce stands still until routes avoid the switch", Better.LESS),
    Measure("lost_s", "time that steps wait for the storage node that is lost", Better.LESS),
    Measure("resync_s", "time that steps wait while the storage node is filled again", Better.LESS),
    Measure("found_s", "from the start of a restore until all nodes know that its data is wrong", Better.LESS),
    Measure("again_s", "time of the restore of the checkpoint before", Better.LESS),
    Measure("wrong_copies", "chunks whose copies differ", Better.LESS),
    Measure("validation_s", "time of a node's validation", Better.LESS),
    RUNTIME,
    TOTAL,
    LOST,
)
