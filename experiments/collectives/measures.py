"""What the numbers of a run of ``collectives`` mean."""

from __future__ import annotations

from fabric.measures import Better, Measure

TIME = Measure("size_<bytes>.time_s", "time of a collective of so many bytes, out of place, mean", Better.LESS)
BUSBW = Measure("size_<bytes>.busbw_Bps", "its algbw times the factor of nccl-tests", Better.MORE)
IN_PLACE = Measure("size_<bytes>.in_place.time_s", "time of a collective of so many bytes, in place, mean", Better.LESS)
MEASURES = (
    TIME,
    BUSBW,
    IN_PLACE,
    Measure("ideal_busbw_Bps", "busbw of the closed form"),
    Measure("of_closed_form_fraction", "busbw at the largest size over that of the closed form", Better.MORE),
    Measure(
        "busiest_link_of_nic",
        "load of the busiest link over that of the busiest NIC, by the routes as planned",
        Better.LESS,
    ),
)
