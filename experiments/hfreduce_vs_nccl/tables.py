"""The table that results of this experiment have in addition: what each limit of a node served."""

from __future__ import annotations

from fabric.tables import NO_UNIT, Column, Table, common

TABLES = {
    "node_limits": Table(
        "One row per phase, node of it and limit of the node, over the steps of the phase.",
        {
            **common("phase", "host"),
            "limit": Column("category", NO_UNIT, "what limits: a link of the node in one direction, or a budget"),
            "served_bytes": Column("int64", "bytes", "bytes that it served, each with its weight"),
            "rate_bps": Column("int64", "bit/s", "its rate"),
            "busy": Column("float64", "fraction", "what it served, of what it could have in the time of the steps"),
        },
    ),
}
