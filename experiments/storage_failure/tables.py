"""The table that ``storage_failure`` adds to a result: how chains changed."""

from __future__ import annotations

from fabric.tables import NO_UNIT, Column, Table, common

TABLES = {
    "chain_changes": Table(
        "One row per target of a chain that the cluster manager has changed, in the order of the chain.",
        {
            **common("phase"),
            "at_s": Column("float64", "s", "time at which the cluster manager made the change"),
            "chain": Column("int64", NO_UNIT, "number of the chain"),
            "version": Column("int64", NO_UNIT, "version of the chain"),
            "target": Column("category", NO_UNIT, "the target, by its node and the number of its disk"),
            "state": Column("category", NO_UNIT, "its public state, e.g. `serving`"),
        },
    ),
}
