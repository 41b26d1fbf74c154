"""The table that a replayed year adds to a result."""

from __future__ import annotations

from experiments.link_flap.tables import ROUTING
from fabric.tables import NO_UNIT, Column, Table, common

TABLES = {
    "days": Table(
        "One row per day of a replayed year.",
        {
            **common("phase"),
            "routing": ROUTING,
            "duration_s": Column("float64", "s", "how long each cut lasts"),
            "day": Column("int64", NO_UNIT, "number of the day"),
            "cuts": Column("int64", "count", "cuts of the day"),
            "goodput_lost": Column("float64", "fraction", "training lost, as a fraction of an undisturbed day's"),
            "blackout_s": Column("float64", "s", "time without network, added up over all flows of probes"),
        },
    ),
}
