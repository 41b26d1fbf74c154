"""The tables that ``resync`` adds to a result: who sent what to the node that came back, and what each lane carried."""

from __future__ import annotations

from fabric.tables import NO_UNIT, Column, Table, common

TABLES = {
    "resync_attempts": Table(
        "One row per attempt of a target's predecessor to bring it up to date.",
        {
            **common("phase"),
            "chain": Column("int64", NO_UNIT, "number of the chain"),
            "sender": Column("category", NO_UNIT, "the storage node that sends: its target serves last in the chain"),
            "target": Column("category", NO_UNIT, "the storage node that has come back"),
            "began_s": Column("float64", "s", "time at which it began"),
            "ended_s": Column("float64", "s", "time at which it ended"),
            "chunks": Column("int64", "count", "chunks sent"),
            "sent_bytes": Column("int64", "bytes", "bytes of these chunks"),
            "outcome": Column("category", NO_UNIT, "`done`, `stopped` (it is tried again) or `forked`"),
        },
    ),
    "resync_shares": Table(
        "One row per storage node that shares chains with the one that came back.",
        {
            **common("phase"),
            "peer": Column("category", NO_UNIT, "the storage node"),
            "promised_chains": Column(
                "float64", "count", "what it is to send by 3FS's placement, in chains: its part of those they share"
            ),
            "placed_chains": Column("int64", "count", "chains in which it serves last, which it therefore sends"),
            "expected_bytes": Column(
                "int64", "bytes", "bytes of the data set's chunks in these; 0 where the node had its own"
            ),
            "sent_bytes": Column("int64", "bytes", "bytes of chunks that it has sent"),
        },
    ),
    "lane_bytes": Table(
        "One row per Service Level and cause: what the programs of storage handed to their connections.",
        {
            **common("phase", "service_level"),
            "cause": Column(
                "category",
                NO_UNIT,
                "`read`, `write`, `forward` (copies along chains), `resync`, `pull` (requests for the data of these), "
                "`control` or `greeting`",
            ),
            "frame_bytes": Column("int64", "bytes", "bytes of whole frames of storage's protocol"),
            "payload_bytes": Column("int64", "bytes", "bytes of chunks in them"),
        },
    ),
    "routing_changes": Table(
        "One row per change of a chain by the cluster manager.",
        {
            **common("phase"),
            "at_s": Column("float64", "s", "time of the change"),
            "chain": Column("int64", NO_UNIT, "number of the chain"),
            "version": Column("int64", NO_UNIT, "version of the chain"),
            "serving": Column("int64", "count", "targets that serve from then on"),
            "syncing": Column("category", NO_UNIT, "the target that is brought up to date; empty if none is"),
        },
    ),
}
