"""What the numbers of a run of ``hfreduce_vs_nccl`` mean."""

from __future__ import annotations

from fabric.measures import Better, Measure

MEASURES = (
    Measure("network_ideal_Bps", "algbw that the network allows, by the bytes that the busiest NIC sends"),
    Measure("limit_Bps", "algbw that the tightest limit inside a node allows, less headers"),
    Measure(
        "busiest_link_of_nic",
        "load of the busiest link over that of the busiest NIC, by the routes as planned",
        Better.LESS,
    ),
    Measure("times_nccl", "algbw over that of NCCL's ring on as many nodes", Better.MORE),
    Measure("algbw_Bps_per_price", "algbw at full scale over the price of a node", Better.MORE),
)
