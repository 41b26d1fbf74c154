"""What the numbers of a run of ``traffic_patterns`` mean."""

from __future__ import annotations

from fabric.measures import Better, Measure

MEASURES = (
    Measure("flows", "flows of a draw"),
    Measure("nics_used_fraction", "what flows delivered, over what all NICs can receive", Better.MORE),
    Measure(
        "theory_nics_used_fraction",
        "what flows would deliver at their max-min fair rates, over what all NICs can receive",
    ),
    Measure("share_p50_fraction", "goodput over the flow's max-min fair rate, median over flows", Better.MORE),
    Measure("share_least_fraction", "goodput over the flow's max-min fair rate, the lowest of a flow", Better.MORE),
    Measure("uplink_flows_mean", "flows on an uplink of a leaf, mean"),
    Measure("uplink_flows_most", "flows on an uplink of a leaf, the most", Better.LESS),
    Measure("uplink_flows_variance", "flows on an uplink of a leaf, variance over uplinks", Better.LESS),
    Measure("uplinks_idle_fraction", "share of the uplinks that no flow uses", Better.LESS),
    Measure(
        "carried_off_fraction",
        "most by which what an uplink carried differs from what its flows delivered, over its rate",
        Better.LESS,
    ),
    Measure("theory_uplink_flows_variance", "variance of the flows on an uplink, if hashes choose evenly"),
    Measure("theory_uplinks_idle_fraction", "share of the uplinks that no flow uses, if hashes choose evenly"),
)
