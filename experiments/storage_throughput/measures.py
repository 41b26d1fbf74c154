"""What the numbers of a run of ``storage_throughput`` mean."""

from __future__ import annotations

from fabric.measures import Better, Measure

USE_MEAN = Measure("use.<links>.mean", "share of their rate that links of a kind carried, mean over links")
USE_MOST = Measure("use.<links>.most", "share of its rate that the busiest link of a kind carried")
MEASURES = (
    Measure(
        "read.share_of_nics", "bytes of reads per second over what the NICs of the storage nodes carry", Better.MORE
    ),
    Measure("read.readers", "compute nodes that read"),
    USE_MEAN,
    USE_MOST,
    Measure("kept_fraction", "speed of another job beside reads, over its speed without them", Better.MORE),
)
