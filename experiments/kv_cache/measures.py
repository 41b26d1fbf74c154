"""What the numbers of a run of ``kv_cache`` mean."""

from __future__ import annotations

from fabric.measures import Better, Measure

MEASURES = (
    Measure("read.share_of_nics", "bytes of reads per second over what the clients' NICs carry", Better.MORE),
    Measure("read.by_link_Bps", "payload that reached the client per second, by the counters of its link", Better.MORE),
    Measure("link_busy_fraction", "share of its rate that the client's link carried"),
    Measure("kv_files_removed", "files of the cache that were removed"),
    Measure("dropped_packets", "packets that queues dropped in the phase", Better.LESS),
)
