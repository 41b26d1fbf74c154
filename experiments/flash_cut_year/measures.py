"""What the numbers of a run of ``flash_cut_year`` mean."""

from __future__ import annotations

from fabric.measures import Better, Measure

MEASURES = (
    Measure("<duration>.cuts", "cuts of the year"),
    Measure("<duration>.training_lost_fraction", "training that cuts cost over that without cuts", Better.LESS),
    Measure("<duration>.storage_lost_fraction", "bytes of storage that cuts cost over those without cuts", Better.LESS),
    Measure(
        "<duration>.training_lost_per_cut_s", "training that a cut costs all jobs together, mean over cuts", Better.LESS
    ),
    Measure("<duration>.job_hits", "pairs of a cut and a job that felt it", Better.LESS),
    Measure("<duration>.cuts_felt", "cuts that any job felt", Better.LESS),
    Measure("<duration>.jobs_hit", "jobs that felt a cut", Better.LESS),
    Measure("<duration>.blackout_s", "time without network, summed over flows of probes", Better.LESS),
    Measure("<duration>.jobs_failed", "jobs that gave up", Better.LESS),
    Measure("<duration>.overlapping_fraction", "share of the cuts during which another link was down, too"),
)
