"""What the numbers of a run of ``resync`` mean."""

from __future__ import annotations

from fabric.measures import Better, Measure

READ_RATE = Measure("read_<when>_Bps", "bytes of reads per second, beside or during the resync", Better.MORE)
STEP = Measure(
    "step_<when>_s",
    "time of a step of the allreduce, beside or during the resync, median",
    Better.LESS,
    is_of_many=True,
)
READ_TIME = Measure(
    "read_<when>_<percentile>_s",
    "percentile of the time that reads take, beside or during the resync",
    Better.LESS,
    is_of_many=True,
)
READ_TIME_WHILE_ROLLING = Measure(
    "read_<percentile>_s", "percentile of the time that reads take", Better.LESS, is_of_many=True
)
SLOWDOWN = Measure("<load>_slowdown", "speed of this load beside the resync over that during it", Better.LESS)
MEASURES = (
    Measure("whole_s", "from the node's return until all its targets served", Better.LESS),
    Measure("sending_s", "time in which anything was sent to fill it again", Better.LESS),
    Measure("resync_bytes", "bytes that were sent to fill it again"),
    Measure("expected_bytes", "bytes that filling it again takes, by what its targets lacked"),
    Measure("most_off_bytes", "difference from its part, of the peer that sent the most more or less", Better.LESS),
    Measure("attempts", "attempts to fill a target again"),
    Measure("attempts_stopped", "attempts to fill a target that were stopped", Better.LESS),
    Measure("busiest_over_mean", "bytes that the busiest peer sent over their mean", Better.LESS),
    Measure("placed_over_mean", "chains that the peer that sends most of them sends, over the mean"),
    Measure("lost", "acknowledged writes that were gone, damaged or older than what was acknowledged", Better.LESS),
    Measure("second_resync_bytes", "bytes that were sent after its second return"),
    Measure("second_resyncs", "targets that were filled again after its second return"),
    READ_RATE,
    READ_TIME,
    Measure(
        "read_<when>_<percentile>_at_least_s",
        "the least that this percentile can be: the read at this rank did not complete",
        Better.LESS,
        is_least=True,
        is_of_many=True,
    ),
    STEP,
    SLOWDOWN,
    Measure("reads", "reads that began"),
    Measure("reads_failed", "reads that failed or were cut off", Better.LESS),
    Measure("reads_delayed", "reads that took more than a second", Better.LESS),
    Measure("chain_versions", "changes of chains"),
    Measure("waves", "stretches of time in which delayed reads began", Better.LESS),
    READ_TIME_WHILE_ROLLING,
    Measure(
        "read_<percentile>_at_least_s",
        "the least that this percentile can be: the read at this rank did not complete",
        Better.LESS,
        is_least=True,
        is_of_many=True,
    ),
    Measure("read_longest_s", "time of the longest read, one that failed included", Better.LESS),
)
