"""What reads of a phase come to after its warm-up: bandwidth and latency."""

from __future__ import annotations

import pandas as pd

from fabric.results import Phase
from traffic import metrics

_PERCENTILES = ("p50_s", "p99_s", "p999_s")


def read_metrics(operations: pd.DataFrame, phase: Phase, warm_up_s: float) -> dict[str, float]:
    """Return the bandwidth of reads that ended after the warm-up of a phase and before its end, and the percentiles of
    how long those took that began after it, however late they ended."""
    rows = operations[(operations["phase"] == phase.name) & (operations["operation"] == "read")]
    from_s = phase.started_s + warm_up_s
    found = {"read.bandwidth_Bps": metrics.operation_bandwidth(rows, from_s, phase.ended_s)}
    counted = rows[rows["started_s"].between(from_s, phase.ended_s)]
    if not counted.empty:
        latency = metrics.operation_latency(counted)
        found |= {f"read.{name}": getattr(latency, name) for name in _PERCENTILES}
    return {**found, "read.operations": float(len(counted))}
