"""The table that ``time_sharing`` adds to a result: each life of each job of the list."""

from __future__ import annotations

from fabric.tables import NO_UNIT, Column, Table, common

TABLES = {
    "sharing_lives": Table(
        "One row per life of a job of the list, as it was played with packets, and as it was composed.",
        {
            **common("phase"),
            "part": Column("category", NO_UNIT, "`packets` or `composed`"),
            "policy": Column("category", NO_UNIT, "the policy"),
            "listed": Column("int64", NO_UNIT, "number of the job in the list"),
            "user": Column("category", NO_UNIT, "whose job it is"),
            "priority": Column("category", NO_UNIT, "its priority"),
            "nodes": Column("category", NO_UNIT, "nodes that it had, in the order of ranks"),
            "queued_at": Column("float64", "s", "when the life began to wait, in seconds of the list"),
            "had_from": Column("float64", "s", "when it got its nodes, in seconds of the list"),
            "had_until": Column("float64", "s", "when it had left them, in seconds of the list"),
            "end": Column("category", NO_UNIT, "`finished`, `suspended`, `killed`, `lost` or `stopped`"),
            "lost": Column("float64", "s", "steps of it that were made in vain, in seconds"),
        },
    ),
}
