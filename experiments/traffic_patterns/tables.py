"""The tables of flows and of leaves' uplinks that results of ``traffic_patterns`` have beside those of all runs."""

from __future__ import annotations

from fabric.tables import NO_UNIT, Column, Table, common

FLOWS, UPLINKS = "pattern_flows", "pattern_uplinks"
_PLAYED = {
    **common("phase"),
    "pattern": Column("category", NO_UNIT, "traffic pattern"),
    "policy": Column("category", NO_UNIT, "routing policy"),
}
TABLES = {
    FLOWS: Table(
        "One row per phase and flow of a traffic pattern.",
        {
            **_PLAYED,
            "source": Column("category", NO_UNIT, "port of the NIC that sends"),
            "destination": Column("category", NO_UNIT, "port of the NIC that receives"),
            "goodput_bps": Column("float64", "bit/s", "payload that arrived per second of the measured time"),
            "fair_bps": Column(
                "float64", "bit/s", "the same if all flows shared the links of their paths max-min fairly"
            ),
        },
    ),
    UPLINKS: Table(
        "One row per phase and uplink of a leaf.",
        {
            **_PLAYED,
            **common("port"),
            "flows": Column("int64", "count", "flows whose path has this uplink"),
            "flows_of_leaf": Column("int64", "count", "flows that leave this leaf"),
            "delivered_bps": Column("float64", "bit/s", "what these flows delivered, with headers"),
            "carried_bps": Column("float64", "bit/s", "what the uplink sent in the measured time"),
        },
    ),
}
