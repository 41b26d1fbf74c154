"""Tables that only storage jobs write."""

from __future__ import annotations

from fabric.tables import NO_UNIT, Column, Table, common

LOADER_BATCHES = Table(
    "One row per batch of a data loader that reads epochs, once computing was ready for it.",
    {
        **common("phase", "job", "service_level", "host"),
        "epoch": Column("int64", "count", "number of the epoch; without a `count` a later phase begins a million on"),
        "batch": Column("int64", "count", "number of the batch in the reader's epoch, from 0"),
        "size_bytes": Column("int64", "bytes", "bytes of its samples; 0 if they could not be read"),
        "asked_s": Column("float64", "s", "when its samples were asked for; none if the phase ended before"),
        "ready_s": Column("float64", "s", "when all of them were there; none if they were not asked for"),
        "due_s": Column("float64", "s", "when computing was ready for it: it waits from then on"),
        "started_s": Column("float64", "s", "when it began to be computed; none if the phase ended before"),
        "ended_s": Column("float64", "s", "when it was computed; none if the phase ended before"),
    },
)

STORAGE_CHAINS = Table(
    "One row per chain at the start of a phase, and per change of one by the cluster manager.",
    {
        **common("at_s", "phase", "job"),
        "chain": Column("int64", NO_UNIT, "number of the chain"),
        "version": Column("int64", NO_UNIT, "version of the chain"),
        "targets": Column("int64", "count", "targets that the chain has"),
        "serving": Column("int64", "count", "targets that serve from then on"),
        "syncing": Column("category", NO_UNIT, "target that is brought up to date; empty if none is"),
    },
)

STORAGE_RESYNCS = Table(
    "One row per attempt of a target's predecessor to bring it up to date.",
    {
        **common("phase", "job"),
        "chain": Column("int64", NO_UNIT, "number of the chain"),
        "sender": Column("category", NO_UNIT, "storage node that sends: its target serves last in the chain"),
        "target": Column("category", NO_UNIT, "storage node that has come back"),
        "started_s": Column("float64", "s", "time at which it began"),
        "ended_s": Column("float64", "s", "time at which it ended"),
        "chunks": Column("int64", "count", "chunks sent"),
        "size_bytes": Column("int64", "bytes", "bytes of these chunks"),
        "outcome": Column("category", NO_UNIT, "`done`, `stopped` (it is tried again) or `forked`"),
    },
)
