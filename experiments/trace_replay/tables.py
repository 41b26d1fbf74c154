"""The table that a replay of traces adds to a result: what a step's time goes to."""

from __future__ import annotations

from fabric.tables import NO_UNIT, Column, Table, common

LAYERS = "replay_layers"
TABLES = {
    LAYERS: Table(
        "One row per rank, layer and kind of operation of the first step of a trace, as SimAI and ASTRA-sim report it. "
        "None of traces with too many operations for rows.",
        {
            **common("phase", "job"),
            "rank": Column("int64", "count", "number of the rank, from 0"),
            "layer": Column("category", NO_UNIT, "name of the operations in the trace"),
            "kind": Column("category", NO_UNIT, "`compute`, `send`, `receive`, `read`, `write`, or a collective"),
            "operations": Column("int64", "count", "how many operations these are"),
            "size_bytes": Column("int64", "bytes", "their messages or collectives in all"),
            "computed_s": Column("float64", "s", "time of its computing, of several streams the sum"),
            "exposed_s": Column("float64", "s", "time in which computing waited for its communication"),
            "hidden_s": Column("float64", "s", "other time in which its communication was under way"),
        },
    ),
}
