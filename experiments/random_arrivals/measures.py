"""What the numbers of a run of ``random_arrivals`` mean."""

from __future__ import annotations

from fabric.measures import Better, Measure

MEASURES = (
    Measure("theory_wait_s", "mean wait of such arrivals in theory (M/D/1)"),
    Measure("lost_packets", "packets that were sent and did not arrive", Better.LESS),
    Measure("mean_wait_s", "mean wait of packets at the link"),
    Measure("error_s", "standard error of the mean wait, of means of batches", Better.LESS),
    Measure("explained_wait_s", "mean wait that these arrivals explain, by Lindley's recursion"),
    Measure(
        "most_off_s", "most that the wait of a packet differs from what the arrivals before it explain", Better.LESS
    ),
    Measure("longest_wait_s", "longest wait of a packet"),
)
