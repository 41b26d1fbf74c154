"""What the numbers of a run of ``trace_replay`` mean."""

from __future__ import annotations

from fabric.measures import Better, Measure

MEDIAN = Measure("<kind>_median_s", "time of communication of this kind, median", Better.LESS, is_of_many=True)
MEASURES = (
    Measure(
        "step_s",
        "time of a step of the trace, until its last rank ended, median over steps",
        Better.LESS,
        is_of_many=True,
    ),
    Measure("longest_step_s", "time of the longest step of the trace", Better.LESS),
    Measure("computed_s", "time that the rank that computes most does so in a step"),
    Measure("sent_bytes", "bytes that all ranks sent in a step"),
    Measure("ranks", "ranks of the trace"),
    Measure("operations", "operations of the trace in a step"),
    Measure("left_out", "operations of the trace that were not played"),
    MEDIAN,
)
