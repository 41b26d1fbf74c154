"""What the numbers of a run of ``lossless_soak`` mean."""

from __future__ import annotations

from fabric.measures import Better, Measure

MEASURES = (
    Measure("seconds", "time that all rounds played, in seconds"),
    Measure("flaps", "links that were cut"),
    Measure("flows", "flows that started"),
    Measure("flows_completed", "flows that delivered all their bytes", Better.MORE),
    Measure("bytes", "bytes that hosts sent"),
    Measure("packets", "packets that hosts sent"),
    Measure("drops", "frames that lossless ports dropped of their own", Better.LESS),
    Measure("leaked_bytes", "bytes of credits that were never returned", Better.LESS),
    Measure("unexplained_stalls", "lanes that stalled without waiting for a busy link", Better.LESS),
    Measure("deadlocks", "circles of lanes that waited for each other", Better.LESS),
    Measure("lost_in_cuts", "frames that were lost on links as these were cut"),
    Measure("without_a_way", "frames that rules dropped since a cut left them no route"),
    Measure("unaccounted_packets", "packets that were sent, and neither delivered nor counted as lost", Better.LESS),
    Measure("looks", "times that the audit looked at all lanes"),
    Measure("long_stalls", "stalls that lasted for the limit or longer", Better.LESS),
    Measure("longest_stall_s", "time of the longest stall", Better.LESS),
    Measure("rounds_broken_off", "rounds that a deadlock broke off while routes changed", Better.LESS),
)
