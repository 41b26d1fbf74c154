"""What the numbers of a run of ``graysort`` mean."""

from __future__ import annotations

from fabric.measures import Better, Measure

MEASURES = (
    Measure("all_s", "time of the sort", Better.LESS),
    Measure("apart_s", "time of its first phase, until all partitions are where they can be sorted", Better.LESS),
    Measure("sort_s", "time of its second phase, which sorts the partitions", Better.LESS),
    Measure("node_Bps", "data of a node over the time of the sort", Better.MORE),
    Measure("least_s", "time that the bytes of the sort take at least on the NICs of the fabric"),
    Measure(
        "compute_nic_fraction", "payload over what a compute node's NICs carry in the time of the sort", Better.MORE
    ),
    Measure(
        "storage_nic_fraction", "payload over what all storage nodes' NICs carry in the time of the sort", Better.MORE
    ),
    Measure(
        "papers_data_s",
        "time of the published 110.5 TiB on 50 nodes, by the time per byte here at full rate",
        Better.LESS,
    ),
)
