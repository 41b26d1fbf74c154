"""The table that only storage jobs write."""

from __future__ import annotations

from fabric.tables import Column, Table, common

LOADER_BATCHES = Table(
    "One row per batch of a data loader that reads epochs, once it was computed.",
    {
        **common("phase", "job", "service_level", "host"),
        "epoch": Column("int64", "count", "number of the epoch, from 0 over the job's life"),
        "batch": Column("int64", "count", "number of the batch in the reader's epoch, from 0"),
        "size_bytes": Column("int64", "bytes", "bytes of its samples; 0 if they could not be read"),
        "asked_s": Column("float64", "s", "when its samples were asked for"),
        "ready_s": Column("float64", "s", "when all of them were there"),
        "due_s": Column("float64", "s", "when computing was ready for it: it waits from then on"),
        "started_s": Column("float64", "s", "when it began to be computed"),
        "ended_s": Column("float64", "s", "when it was computed"),
    },
)
