"""Numbers of a phase's operations in the time that counts: bandwidth, latency, and what became of them."""

from __future__ import annotations

import pandas as pd

from fabric.errors import TrafficError
from fabric.metrics import metric_path
from fabric.results import Phase
from fabric.units import format_time
from traffic import metrics


def counted_s(phase: Phase, warm_up_s: float = 0.0) -> tuple[float, float]:
    """Return from when to when a phase counts: after its warm-up, while all of its load plays.

    The time that its last operations take to end after the order to halt does not count as play: it is about as
    long in every phase, so it would weigh most in the short ones. Raises TrafficError if no time is left.
    """
    from_s, until_s = phase.load_s
    if from_s + warm_up_s >= until_s:
        raise TrafficError(
            f"phase {phase.name}: its load played for {format_time(until_s - from_s)}, which leaves nothing to measure "
            f"after a warm-up of {format_time(warm_up_s)}; let it play for longer"
        )
    return from_s + warm_up_s, until_s


def operation_metrics(
    operations: pd.DataFrame, kind: str, counted: tuple[float, float], name: str | None = None
) -> dict[str, float]:
    """Return the numbers of a kind of operation in a stretch of time, from the ``operations`` of one phase; nothing if
    the phase has none.

    They are named by the kind unless they have a ``name``, which may be empty: the bandwidth of those that completed;
    percentiles of how long those took that began in that time, however late they ended (``read.p99_s``, or
    ``read.p99_at_least_s`` where that is all that is known, see :mod:`traffic.metrics`); how many of them completed
    (``operations``), were cut off (``abandoned``), failed or were refused.
    """
    name = kind if name is None else name
    completed = operations[operations["operation"] == kind]
    done = metrics.completion(begun_in(operations, counted), kind)
    if done is None and completed.empty:
        return {}
    found = {metric_path(name, "bandwidth_Bps"): metrics.operation_bandwidth(completed, *counted)}
    return found | (
        {metric_path(name, "operations"): 0.0} if done is None else {**done.named(name), **done.counts(name)}
    )


def begun_in(rows: pd.DataFrame, counted: tuple[float, float]) -> pd.DataFrame:
    """Return the rows that started in a stretch of time."""
    return rows[rows["started_s"].between(*counted)]


# In tables ------------------------------------------------------------------------------------------------------------

NOTE = "abandoned: cut off by the end of the load; >: at least, since what holds this rank failed or was refused"
"""What tables say below."""
