"""The table that a replay adds to a result: each flow beside theory."""

from __future__ import annotations

from fabric.tables import NO_UNIT, Column, Table, common

TABLES = {
    "replayed": Table(
        "One row per flow of the workload file, in its order.",
        {
            "line": Column("int64", NO_UNIT, "line of the file"),
            **common("host", "peer"),
            "size_bytes": Column("int64", "bytes", "bytes of the flow"),
            "started_s": Column("float64", "s", "time at which it started"),
            "ended_s": Column("float64", "s", "time at which its last byte was read"),
            "took_s": Column("float64", "s", "from start to end: the flow completion time"),
            "theory_s": Column("float64", "s", "the same for fluids that share links max-min fairly"),
        },
    ),
}
