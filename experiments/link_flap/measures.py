"""What the numbers of a run of ``link_flap`` mean."""

from __future__ import annotations

from fabric.measures import Better, Measure

REPAIR_MEDIAN = Measure(
    "repair.<part>_p50_s",
    "time of this part of the controller's repairs, median over cuts",
    Better.LESS,
    is_of_many=True,
)
REPAIR_MOST = Measure("repair.<part>_max_s", "time of this part of the controller's repairs, the longest", Better.LESS)
MEASURES = (
    Measure("<place>.<duration>.cuts", "cuts at such a link, as long as this"),
    Measure("<place>.<duration>.crossing_flows", "flows that crossed the link as it was cut"),
    Measure(
        "<place>.<duration>.blackout_<statistic>_s",
        "time without an arrival after a cut, over crossing flows",
        Better.LESS,
    ),
    Measure(
        "<place>.<duration>.stall_<statistic>_s",
        "time by which a cut made a step of training longer, over cuts",
        Better.LESS,
    ),
    Measure("<place>.<duration>.slowest_read_s", "time of the slowest read that met a cut", Better.LESS),
    Measure("<place>.<duration>.slowest_write_s", "time of the slowest write that met a cut", Better.LESS),
    Measure("<place>.<duration>.retries", "operations of storage that were tried again", Better.LESS),
    Measure("step_s", "time of a step of training without cuts, median", Better.LESS, is_of_many=True),
    Measure("stall_s", "longest step without cuts less the median: a stall shorter than this is noise"),
    REPAIR_MEDIAN,
    REPAIR_MOST,
    Measure(
        "carrier_lost_max_s", "from when a cut was asked for until the port has no carrier, the longest", Better.LESS
    ),
)
