"""The results of ``fencing``: how many reads were stale, and for how long."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from fabric.metrics import Metric, metric_path, metrics_of
from fabric.model.identity import NodeId
from fabric.records.cells import Row, measured
from fabric.records.summary_table import SummaryTable
from fabric.units import format_time
from traffic.storage.config import Fence

PLACES = {"between": "hear all", "beside": "do not hear the manager"}


@dataclass(frozen=True)
class Seen:
    """A phase: its fence, the node that was forgotten, rows of ``stale_windows``, and how often clients ask for newer
    chains."""

    phase: str
    fence: Fence
    tail: NodeId
    windows: pd.DataFrame
    polled_every_s: float


def numbers_of(windows: pd.DataFrame) -> dict[str, float]:
    """Return the numbers of clients at one place: their reads from the cut on, how many were stale and how many were
    given up, how many clients had a stale one, and the windows in which these began: from the first to the last, the
    shortest, the median and the longest; ``to_the_end``: clients whose last stale read was less than 2 s before the
    load ended."""
    has = windows[windows["stale"] > 0]
    lengths = has["last_s"] - has["first_s"]
    found = {
        "clients": float(len(windows)),
        "reads": float(windows["reads"].sum()),
        "failed": float(windows["failed"].sum()),
        "stale": float(windows["stale"].sum()),
        "clients_stale": float(len(has)),
        "window_min_s": float(lengths.min()),
        "window_median_s": float(lengths.median()),
        "window_max_s": float(lengths.max()),
        "after_forgotten_max_s": float((has["last_s"] - has["forgotten_s"]).max()),
        "to_the_end": float((has["halted_s"] - has["last_s"] < 2).sum()),
    }
    return {name: value for name, value in found.items() if not math.isnan(value)}


def summarize(found: Sequence[Seen]) -> dict[str, Any]:
    """Return the tables, metrics and answer of a run."""
    fences = list(dict.fromkeys(one.fence for one in found))
    windows = {fence: pd.concat([one.windows for one in found if one.fence is fence]) for fence in fences}
    numbers = {
        (fence, place): numbers_of(of_fence[of_fence["place"] == place])
        for fence, of_fence in windows.items()
        for place in PLACES
        if (of_fence["place"] == place).any()
    }
    metrics: list[Metric] = [
        metric
        for (fence, place), values in numbers.items()
        for metric in metrics_of(
            "", "storage", {metric_path(fence.value, place, name): value for name, value in values.items()}
        )
    ]
    return {
        "title": "Stale reads from a storage node that was forgotten",
        "answer": " ".join(_sentences(numbers)),
        "metrics": metrics,
        "tables": [_table(numbers)],
        "fencing": {"polled_every_s": found[0].polled_every_s},
    }


Numbers = dict[tuple[Fence, str], dict[str, float]]


def _sentences(numbers: Numbers) -> Iterator[str]:
    for (fence, place), values in numbers.items():
        stale = f"{values['stale']:.0f} of {values['reads']:.0f} reads of clients that {PLACES[place]} were stale"
        longest = f", for {format_time(values['window_max_s'])} at most" if "window_max_s" in values else ""
        yield f"Fence {fence.value}: {stale}{longest}."


def _table(numbers: Numbers) -> SummaryTable:
    rows: list[Row] = []
    for (fence, place), values in numbers.items():
        names = ("window_min_s", "window_median_s", "window_max_s")
        spans = [measured(values, name) for name in names]
        rows.append(
            [
                fence.value,
                PLACES[place],
                (measured(values, "stale", ".0f"), " of ", measured(values, "reads", ".0f")),
                (measured(values, "clients_stale", ".0f"), " of ", measured(values, "clients", ".0f")),
                *spans,
                measured(values, "to_the_end", ".0f"),
                measured(values, "failed", ".0f"),
            ]
        )
    columns = [
        *("fence", "clients that", "stale reads", "clients with any", "window, shortest", "median", "longest"),
        *("until the end", "reads given up"),
    ]
    note = "reads from the cut on; a window is from a client's first stale read to its last one"
    return SummaryTable(title="Stale reads", columns=columns, rows=rows, note=note)
