"""What rows of loads with an end come to: epochs and the time that computing waits, restores."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from traffic.measures import JobRows

if TYPE_CHECKING:  # Programs in hosts are forked from a process that lists kinds of jobs, and pandas is large.
    import pandas as pd


def of_loader(rows: JobRows) -> Mapping[str, float]:
    """Return the numbers of epochs; nothing without any.

    ``loader.epoch_s``: from the first reader's first batch to when the last one is computed, the mean over epochs;
    ``loader.computing_s``, ``loader.waiting_s``, ``loader.first_wait_s``: of a reader in an epoch, the mean over both:
    how long it computed, how long that waited for data, of which for the first batch; ``loader.waiting_fraction``: of a
    reader's time; ``loader.worst_waiting_s``: the most of any reader in an epoch; ``loader.node_Bps``: what a reader
    has read per second of its epoch.
    """
    return loader_numbers(rows.table("loader_batches"))


def loader_numbers(table: pd.DataFrame) -> dict[str, float]:
    """Return what :func:`of_loader` does, of rows of the table ``loader_batches``."""
    if table.empty:
        return {}
    rows = table.assign(
        waiting_s=table["started_s"] - table["due_s"], computing_s=table["ended_s"] - table["started_s"]
    ).sort_values(["epoch", "host", "batch"])
    grouped = rows.groupby(["epoch", "host"], observed=True)
    each = grouped.agg(
        began_s=("due_s", "min"),
        ended_s=("ended_s", "max"),
        waiting_s=("waiting_s", "sum"),
        first_wait_s=("waiting_s", "first"),
        computing_s=("computing_s", "sum"),
        size_bytes=("size_bytes", "sum"),
    )
    spans = each["ended_s"] - each["began_s"]
    epochs = each.groupby("epoch").agg({"began_s": "min", "ended_s": "max"})
    return {
        "loader.epochs": float(len(epochs)),
        "loader.batches": float(len(rows)),
        "loader.epoch_s": float((epochs["ended_s"] - epochs["began_s"]).mean()),
        "loader.computing_s": float(each["computing_s"].mean()),
        "loader.waiting_s": float(each["waiting_s"].mean()),
        "loader.first_wait_s": float(each["first_wait_s"].mean()),
        "loader.worst_waiting_s": float(each["waiting_s"].max()),
        "loader.waiting_fraction": float(each["waiting_s"].sum() / spans.sum()),
        "loader.node_Bps": float((each["size_bytes"] / spans).mean()),
    }


def of_restores(rows: JobRows) -> Mapping[str, float]:
    """Return the numbers of restores; nothing without any.

    ``restore.all_s``: from the first one's begin to the last one's end; ``restore.median_s``, ``restore.slowest_s``: of
    a client; ``restore.node_Bps``: the median client's bytes per second; ``restore.slowest_Bps``: the slowest one's;
    ``restore.all_Bps``: the bytes of all over ``all_s``; ``restore.clients``, ``restore.failed``.
    """
    return restore_numbers(rows.table("operations"))


def restore_numbers(operations: pd.DataFrame) -> dict[str, float]:
    """Return what :func:`of_restores` does, of rows of the table ``operations``."""
    begun = operations[operations["operation"].astype(str).str.fullmatch("restore(_.*)?")]
    done = begun[begun["operation"] == "restore"]
    if begun.empty:
        return {}
    counts = {"restore.clients": float(len(begun)), "restore.failed": float(len(begun) - len(done))}
    if done.empty:
        return counts
    times_s = done["ended_s"] - done["started_s"]
    rates_Bps = done["size_bytes"] / times_s  # noqa: N806 - bytes, not bits
    all_s = float(done["ended_s"].max() - done["started_s"].min())
    return {
        "restore.all_s": all_s,
        "restore.median_s": float(times_s.median()),
        "restore.slowest_s": float(times_s.max()),
        "restore.node_Bps": float(rates_Bps.median()),
        "restore.slowest_Bps": float(rates_Bps.min()),
        "restore.all_Bps": float(done["size_bytes"].sum()) / all_s,
        **counts,
    }
