"""Figures of merit, with the terms and formulas of fio. Those of collectives: :mod:`traffic.collectives.bandwidth`.

Storage and other flows, as fio prints them: percentiles of completion latency (clat p50, p99, p99.9) and bandwidth as
bytes of completed operations over time. Bandwidths are bytes per second, rates of links bits per second, as in the
sources. Functions raise ValueError for values that have no such figure.

A stretch of time cuts operations in two: of one that reaches over its edge the part counts that lies inside, as if its
bytes came evenly over its time. Counted whole where it ends, a load that begins with the stretch would lack what is
under way at its end, a third of a short phase if operations are long.

Percentiles are over all operations that began, not over those that completed (:mod:`fabric.percentiles`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fabric.measures import Better, Measure
from fabric.metrics import metric_path
from fabric.model.network import ETHERNET_HEADER_BYTES
from fabric.percentiles import Percentile, Values, percentiles

if TYPE_CHECKING:  # Programs in hosts are forked from a process with this module, and pandas is large.
    import pandas as pd

IP_TCP_HEADER_BYTES = 52
"""IPv4 (20), TCP (20) and TCP's timestamps option (12), which Linux uses by default."""

# Links ---------------------------------------------------------------------------------------------------------------


def payload_fraction(mtu_bytes: int) -> float:
    """Return what part of a link's rate full TCP segments carry as payload, the Ethernet header counted as tc does."""
    return (mtu_bytes - IP_TCP_HEADER_BYTES) / (mtu_bytes + ETHERNET_HEADER_BYTES)


def ideal_algbw(nic_rate_bps: float, sent_fraction: float) -> float:
    """Return the algbw in bytes per second at which a NIC is full, if its rank sends ``sent_fraction`` x S."""
    return nic_rate_bps / 8 / sent_fraction


def ideal_hfreduce_algbw(nic_rate_bps: float) -> float:
    """Return half of the NIC in bytes per second: with a double binary tree the busiest rank sends 2S."""
    return ideal_algbw(nic_rate_bps, 2.0)


# Operations ----------------------------------------------------------------------------------------------------------


CUT_OFF = ("abandoned", "stopped")
"""How rows of ``operations`` call what was under way when its load ended, after the kind of operation."""
NEVER = ("failed", "refused")
"""And what never completes: the first was tried, the second was not."""
_ENDS = tuple(f"_{end}" for end in (*CUT_OFF, *NEVER))
_PERCENTS = {"p50": 50, "p99": 99, "p999": 99.9}
PERCENTILE = Measure("<percentile>_s", "percentile of the time that operations take", Better.LESS, is_of_many=True)


@dataclass(frozen=True)
class Completion:
    """How long operations took that began, by percentile (``p50``, ``p99``, ``p999``), and what became of them."""

    percentiles: Mapping[str, Percentile]
    completed: int
    cut_off: int
    failed: int
    refused: int

    def named(self, prefix: str, wanted: Sequence[str] = tuple(_PERCENTS)) -> dict[str, float]:
        """Return percentiles as metrics, such as ``read.p99_s``."""
        found = (self.percentiles[one].named(metric_path(prefix, PERCENTILE.of(one))) for one in wanted)
        return {name: value for one in found for name, value in one.items()}

    def counts(self, prefix: str) -> dict[str, float]:
        """Return the counts as metrics: ``read.operations`` (completed), ``read.abandoned``, ``read.failed``,
        ``read.refused``."""
        numbers = (self.completed, self.cut_off, self.failed, self.refused)
        names = ("operations", "abandoned", "failed", "refused")
        return {metric_path(prefix, name): float(number) for name, number in zip(names, numbers, strict=True)}


def kind_of(operation: str) -> str:
    """Return the kind of an operation by its name in ``operations``, without what became of it: ``read`` for
    ``read_failed``."""
    return next((operation.removesuffix(end) for end in _ENDS if operation.endswith(end)), operation)


def begun(operations: pd.DataFrame, kind: str) -> pd.DataFrame:
    """Return the rows of a kind of operation, whatever became of them."""
    return operations[operations["operation"].isin([kind, *(kind + end for end in _ENDS)])]


def completion(operations: pd.DataFrame, kind: str) -> Completion | None:
    """Return how long operations of a kind took, from rows of an ``operations`` table; None if none began.

    Select the phase, and those that began in the time that counts, first.
    """
    times_s = (operations["ended_s"] - operations["started_s"]).to_numpy(np.float64)
    names = operations["operation"].astype(str).to_numpy()

    def of(*ends: str) -> Values:
        return times_s[np.isin(names, [f"{kind}_{end}" for end in ends])]

    completed, cut_off, never = times_s[names == kind], of(*CUT_OFF), of(*NEVER)
    if not completed.size + cut_off.size + never.size:
        return None
    refused = len(of("refused"))
    found = percentiles(completed, cut_off, never, list(_PERCENTS.values()))
    return Completion(
        dict(zip(_PERCENTS, found, strict=True)), completed.size, cut_off.size, never.size - refused, refused
    )


def operation_bandwidth(operations: pd.DataFrame, started_s: float, ended_s: float) -> float:
    """Return the bytes of operations in (started_s, ended_s], per second; one that reaches over an edge counts by the
    part of its time inside."""
    if ended_s <= started_s:
        raise ValueError(f"no time passes from {started_s} s to {ended_s} s; give a stretch that ends after it starts")
    columns = ("started_s", "ended_s", "size_bytes")
    began, ended, size_bytes = (operations[name].to_numpy(np.float64) for name in columns)
    took, at_once = ended - began, (ended > started_s) & (ended <= ended_s)
    overlap = np.clip(np.minimum(ended, ended_s) - np.maximum(began, started_s), 0, None)
    inside = np.divide(overlap, took, out=at_once.astype(np.float64), where=took > 0)
    return float(np.sum(size_bytes * inside)) / (ended_s - started_s)
