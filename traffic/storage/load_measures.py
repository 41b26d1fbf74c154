"""What rows of loads with an end come to: epochs and the time that computing waits, restores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from fabric.estimates import is_median_known
from fabric.measures import Better, Measure
from fabric.percentiles import Percentile
from traffic import metrics
from traffic.measures import JobRows, Window

if TYPE_CHECKING:  # Programs in hosts are forked from a process that lists kinds of jobs, and pandas is large.
    import pandas as pd

LOADER = (
    Measure("loader.epochs", "epochs of data loaders that all readers computed whole", Better.MORE),
    Measure("loader.epochs_cut", "epochs that the end of the load cut off"),
    Measure("loader.batches", "batches that were computed", Better.MORE),
    Measure("loader.epoch_s", "from the first reader's first batch to when the last is computed, mean of whole epochs",
            Better.LESS),
    Measure("loader.computing_s", "time that a reader computes in a whole epoch, mean over readers and epochs"),
    Measure("loader.waiting_s", "time that computing waits for data in a whole epoch, mean over readers and epochs",
            Better.LESS),
    Measure("loader.first_wait_s", "part of it for the epoch's first batch", Better.LESS),
    Measure("loader.node_Bps", "what a reader reads per second of a whole epoch, mean over readers and epochs",
            Better.MORE),
    Measure("loader.waiting_fraction", "share of readers' time in which computing waits for data", Better.LESS),
    Measure("loader.worst_waiting_s", "longest wait for data of any reader in an epoch, whole or not", Better.LESS),
)  # fmt: skip
IDEAL_EPOCH = Measure(
    "loader.ideal_epoch_s", "time of an epoch if all clients read at once and each batch came at an even rate"
)
"""A closed form (:func:`traffic.storage.closed_forms.ideal_epoch_s`), beside what was measured."""
_RESTORES_NOT_WHOLE = Measure(
    "restore.<end>", "restores that had to leave parts out (failed) or that the end of the load cut off (abandoned)",
    Better.LESS,
)  # fmt: skip
RESTORES = (
    Measure("restore.all_s", "from the first client's start to the last one's end of restoring", Better.LESS),
    Measure("restore.median_s", "time that the median client takes to restore", Better.LESS, is_of_many=True),
    Measure("restore.slowest_s", "time that the slowest client takes to restore", Better.LESS),
    Measure(
        "restore.<of>_at_least_s",
        "the least that this time of restoring can be: some did not end",
        Better.LESS,
        is_least=True,
    ),
    Measure("restore.node_Bps", "bytes per second of the median client, as far as it came", Better.MORE),
    Measure("restore.slowest_Bps", "bytes per second of the slowest client, as far as it came", Better.MORE),
    Measure("restore.all_Bps", "bytes of all clients over the time of all", Better.MORE),
    Measure("restore.clients", "clients that began to restore"),
    _RESTORES_NOT_WHOLE,
)


def of_loader(rows: JobRows) -> Mapping[str, float]:
    """Return the numbers of epochs; nothing without any.

    An epoch is whole if all readers have computed all of its batches: one that the end of the phase cut off counts in
    ``loader.epochs_cut`` only, and in shares of time. ``loader.epoch_s``: from the first reader's first batch to when
    the last one is computed, the mean over whole epochs; ``loader.computing_s``, ``loader.waiting_s``,
    ``loader.first_wait_s``: of a reader in a whole epoch, the mean over both: how long it computed, how long that
    waited for data, of which for the first batch; ``loader.node_Bps``: what a reader has read per second of a whole
    epoch. ``loader.waiting_fraction``: of readers' time; ``loader.worst_waiting_s``: the most of any reader in an
    epoch, whole or not; ``loader.batches``: those that were computed.
    """
    return loader_numbers(rows.table("loader_batches"), rows.windows)


def loader_numbers(table: pd.DataFrame, windows: Sequence[Window] = ()) -> dict[str, float]:
    """Return what :func:`of_loader` does, of rows of the table ``loader_batches``. ``windows``: from when to when their
    load played; without, what was cut off was so at the last time in a row."""
    if table.empty:
        return {}
    is_computed = table["ended_s"].notna()
    last_s = float(table[["due_s", "started_s", "ended_s"]].max().max())
    cut_s = table["due_s"].map(lambda due_s: next((end for begin, end in windows if begin <= due_s <= end), last_s))
    ended_s = table["ended_s"].where(is_computed, cut_s.clip(lower=table["due_s"]))
    started_s = table["started_s"].where(table["started_s"].notna(), ended_s)
    rows = table.assign(
        ended_s=ended_s,
        is_computed=is_computed,
        waiting_s=started_s - table["due_s"],
        computing_s=(ended_s - started_s).clip(lower=0),
    ).sort_values(["epoch", "host", "batch"])
    each = rows.groupby(["epoch", "host"], observed=True).agg(
        began_s=("due_s", "min"),
        ended_s=("ended_s", "max"),
        waiting_s=("waiting_s", "sum"),
        first_wait_s=("waiting_s", "first"),
        computing_s=("computing_s", "sum"),
        size_bytes=("size_bytes", "sum"),
        is_whole=("is_computed", "all"),
    )
    epochs = each.groupby("epoch").agg({"began_s": "min", "ended_s": "max", "is_whole": "all", "size_bytes": "size"})
    is_whole = epochs["is_whole"] & (epochs["size_bytes"] == table["host"].nunique())
    spans = each["ended_s"] - each["began_s"]
    found = {
        "loader.epochs": float(is_whole.sum()),
        "loader.epochs_cut": float((~is_whole).sum()),
        "loader.batches": float(is_computed.sum()),
        "loader.worst_waiting_s": float(each["waiting_s"].max()),
    }
    if float(spans.sum()):
        found["loader.waiting_fraction"] = float(each["waiting_s"].sum() / spans.sum())
    return found | _of_whole(each[each.index.get_level_values("epoch").isin(epochs.index[is_whole])])


def _of_whole(each: pd.DataFrame) -> dict[str, float]:
    """Return the numbers of whole epochs, by a row for each and reader; nothing without any."""
    if each.empty:
        return {}
    epochs = each.groupby("epoch").agg({"began_s": "min", "ended_s": "max"})
    return {
        "loader.epoch_s": float((epochs["ended_s"] - epochs["began_s"]).mean()),
        "loader.computing_s": float(each["computing_s"].mean()),
        "loader.waiting_s": float(each["waiting_s"].mean()),
        "loader.first_wait_s": float(each["first_wait_s"].mean()),
        "loader.node_Bps": float((each["size_bytes"] / (each["ended_s"] - each["began_s"])).mean()),
    }


def of_restores(rows: JobRows) -> Mapping[str, float]:
    """Return the numbers of restores; nothing without any.

    Of all clients that began: ``restore.all_s``: from the first one's begin to the last one's end;
    ``restore.median_s``, ``restore.slowest_s``: of a client; if some did not end, these are ``restore.all_at_least_s``
    and so on, where no more is known. ``restore.node_Bps``: the median client's bytes per second, as far as it came;
    ``restore.slowest_Bps``: the slowest one's; ``restore.all_Bps``: the bytes of all over their time;
    ``restore.clients``; ``restore.failed``: those that had to leave parts out, ``restore.abandoned``: those that the
    end of the phase cut off.
    """
    return restore_numbers(rows.table("operations"))


def restore_numbers(operations: pd.DataFrame) -> dict[str, float]:
    """Return what :func:`of_restores` does, of rows of the table ``operations``."""
    begun = metrics.begun(operations, "restore")
    if begun.empty:
        return {}
    is_done = begun["operation"] == "restore"
    times_s = begun["ended_s"] - begun["started_s"]
    rates_Bps = (begun["size_bytes"] / times_s).where(times_s > 0, 0.0)  # noqa: N806 - bytes, not bits
    all_s = float(begun["ended_s"].max() - begun["started_s"].min())
    found = {
        **Percentile(all_s, bool(is_done.all())).named("restore.all_s"),
        **Percentile(float(times_s.median()), is_median_known(list(times_s), list(is_done))).named("restore.median_s"),
        **Percentile(float(times_s.max()), bool(is_done.all())).named("restore.slowest_s"),
        "restore.node_Bps": float(rates_Bps.median()),
        "restore.slowest_Bps": float(rates_Bps.min()),
        "restore.all_Bps": float(begun["size_bytes"].sum()) / all_s if all_s else 0.0,
    }
    counts = {name: float((begun["operation"] == f"restore_{name}").sum()) for name in ("failed", "abandoned")}
    return {
        **found,
        "restore.clients": float(len(begun)),
        **{_RESTORES_NOT_WHOLE.of(name): n for name, n in counts.items()},
    }
