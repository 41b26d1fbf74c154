"""What the numbers of a run of ``storage_failure`` mean."""

from __future__ import annotations

from fabric.measures import Better, Measure

DONE = Measure("<operation>s", "operations of this kind that completed", Better.MORE)
GAVE_UP = Measure("<operation>s_failed", "operations of this kind that were given up", Better.LESS)
LONGEST = Measure(
    "longest_<operation>_s", "longest time that a caller waited for an operation that completed", Better.LESS
)
MEASURES = (
    Measure("noticed_s", "from the failure until no chain counted on the node", Better.LESS),
    Measure("whole_s", "from its return until all its targets served", Better.LESS),
    DONE,
    GAVE_UP,
    LONGEST,
    Measure("resyncs", "targets that were filled again"),
    Measure("resync_chunks", "chunks that were sent to fill targets again"),
    Measure("resync_bytes", "bytes that were sent to fill targets again"),
    Measure("lost", "acknowledged writes that were gone, damaged or older than what was acknowledged", Better.LESS),
    Measure("primary_taken_over_s", "from the failure of the primary manager until another took over", Better.LESS),
)
