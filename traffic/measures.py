"""What rows of a job come to: numbers that kinds of jobs report of themselves (:class:`traffic.job_kind.Measures`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from fabric.measures import Better, Measure
from fabric.metrics import unit_of
from fabric.records.cells import Quantity, quantity
from traffic import metrics

if TYPE_CHECKING:
    import pandas as pd

_BEGAN = "of all that began, by nearest rank"
BANDWIDTH = Measure(
    "<operation>.bandwidth_Bps", "bytes of operations that completed, per second in which the load played", Better.MORE
)
OPERATIONS = (
    BANDWIDTH,
    Measure(
        "<operation>.<percentile>_s",
        f"percentile of the time that operations take, {_BEGAN}",
        Better.LESS,
        is_of_many=True,
    ),
    Measure(
        "<operation>.<percentile>_at_least_s",
        f"the least that this percentile of the time that operations take can be, {_BEGAN}: the one at this rank did "
        "not complete",
        Better.LESS,
        is_least=True,
        is_of_many=True,
    ),
    Measure("<operation>.operations", "operations that completed"),
    Measure("<operation>.abandoned", "operations that the end of their load cut off"),
    Measure("<operation>.failed", "operations that were tried and failed", Better.LESS),
    Measure("<operation>.refused", "operations that were refused", Better.LESS),
)
"""Of operations of one kind, such as ``read``."""

Window = tuple[float, float]
"""From when to when a load played, in seconds."""


@dataclass(frozen=True)
class JobRows:
    """What a job did in a phase: its rows of each table by name, and when its load played, until it was told to halt
    each time. ``config``: its own keys."""

    table: Callable[[str], pd.DataFrame]
    windows: Sequence[Window]
    config: Any = None


def speed_cell(name: str, value: float | None) -> Quantity:
    """Return a speed (:class:`traffic.job_kind.Measures`) as a cell of a table, by the unit at the end of its name."""
    return quantity(value, "bandwidth" if unit_of(name) == "B/s" else ",.4g per s", name)


def windows_of(jobs: pd.DataFrame) -> list[Window]:
    """Return from when to when each load played, by rows of ``jobs``; no windows in which no time passed. Of results
    that do not say when a job was told to halt, until it had ended."""
    began, halted = jobs["started_s"].astype(float), jobs["halted_s"].fillna(jobs["ended_s"]).astype(float)
    return [one for one in zip(began, halted, strict=True) if one[1] > one[0]]


def of_operations(*operations: str) -> Callable[[JobRows], Mapping[str, float]]:
    """Return what gives the numbers of some kinds of operation, such as ``read``: bandwidth, percentiles, counts; those
    of which none began are missing."""
    return partial(_of_operations, operations)


def _of_operations(operations: Sequence[str], rows: JobRows) -> dict[str, float]:
    table = rows.table("operations")
    found: dict[str, float] = {}
    for operation in operations:
        begun = metrics.begun(table, operation)
        done = metrics.completion(begun, operation)
        if done is not None and rows.windows:
            found[BANDWIDTH.of(operation)] = bandwidth(begun[begun["operation"] == operation], rows.windows)
            found |= {**done.named(operation, ("p50", "p99")), **done.counts(operation)}
    return found


def bandwidth(operations: pd.DataFrame, windows: Sequence[Window]) -> float:
    """Return the bytes per second of operations in the time in which a load played."""
    size_bytes = sum(metrics.operation_bandwidth(operations, *one) * (one[1] - one[0]) for one in windows)
    return size_bytes / sum(until - began for began, until in windows)
