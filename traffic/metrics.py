"""Figures of merit, with the terms and formulas of nccl-tests and fio.

Allreduce (NVIDIA/nccl-tests, ``doc/PERFORMANCE.md``), with S the bytes of a rank's buffer, t the time of a step and n
the ranks::

    algbw = S / t
    busbw = algbw x factor(collective, n)        what the busiest link of a perfect fabric would carry

    allreduce                                    2 (n - 1) / n
    reduce_scatter, allgather, all_to_all        (n - 1) / n
    broadcast, reduce                            1

Storage and other flows, as fio prints them: percentiles of completion latency (clat p50, p99, p99.9) and bandwidth as
bytes of completed operations over time. Bandwidths are bytes per second, rates of links bits per second, as in the
sources. Functions raise ValueError for values that have no such figure.

A stretch of time cuts operations in two: of one that reaches over its edge the part counts that lies inside, as if its
bytes came evenly over its time. Counted whole where it ends, a load that begins with the stretch would lack what is
under way at its end, a third of a short phase if operations are long.

Percentiles are over all operations that began, not over those that completed: the slowest of a congested fabric are
among those that did not.

- One that was cut off, as its load ended while it was under way, would have taken longer than the time it had. It
  counts as one of those that did: its weight goes to all that took longer, in equal parts (Kaplan and Meier,
  "Nonparametric Estimation from Incomplete Observations", 1958; the redistribution to the right of Efron, 1967).
- One that failed or was refused never completed, and ranks after all that did.

If a percentile's rank falls on one without an end, its value is not known: it is at least what is given.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from fabric.metrics import metric_path
from fabric.model.network import ETHERNET_HEADER_BYTES

if TYPE_CHECKING:  # Programs in hosts are forked from a process with this module, and pandas is large.
    import pandas as pd

COLLECTIVES = ("allreduce", "reduce_scatter", "allgather", "all_to_all", "broadcast", "reduce")
IP_TCP_HEADER_BYTES = 52
"""IPv4 (20), TCP (20) and TCP's timestamps option (12), which Linux uses by default."""

Numbers = npt.ArrayLike
Values = npt.NDArray[np.float64]


# Collectives ---------------------------------------------------------------------------------------------------------


def busbw_factor(collective: str, ranks: int) -> float:
    """Return busbw / algbw of a collective of :data:`COLLECTIVES` over ``ranks``, as in the module's table."""
    if collective not in COLLECTIVES:
        raise ValueError(f"{collective!r} is no collective; use one of {', '.join(COLLECTIVES)}")
    if ranks < 2:
        raise ValueError(f"a collective of {ranks} ranks uses no bus; give at least 2")
    if collective == "allreduce":
        return 2 * (ranks - 1) / ranks
    return 1.0 if collective in ("broadcast", "reduce") else (ranks - 1) / ranks


def with_bandwidths(steps: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of a ``steps`` table with ``time_s`` and an allreduce's ``algbw`` and ``busbw`` in bytes/s."""
    time_s = steps["ended_s"] - steps["started_s"]
    algorithm = steps["size_bytes"] / time_s
    factor = steps["ranks"].map(lambda ranks: busbw_factor("allreduce", ranks)).astype(float)
    return steps.assign(time_s=time_s, algbw=algorithm, busbw=algorithm * factor)


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


@dataclass(frozen=True)
class Latency:
    """Completion latency in seconds: the smallest observed value that 50, 99 and 99.9 % of operations do not exceed."""

    p50_s: float
    p99_s: float
    p999_s: float
    operations: int


def latency(durations_s: Numbers) -> Latency:
    """Return the percentiles of some durations (nearest rank, so each is a duration that was observed)."""
    durations = np.asarray(durations_s, np.float64)
    if not durations.size:
        raise ValueError("no operations have no latency; check that the phase completed any")
    durations = np.sort(durations)
    # Whole per mille, for 99.9 % of 1000 is 999.0000000000001 in floating point and would be the next duration.
    p50, p99, p999 = (float(durations[-(-per_mille * durations.size // 1000) - 1]) for per_mille in (500, 990, 999))
    return Latency(p50, p99, p999, durations.size)


def operation_latency(operations: pd.DataFrame) -> Latency:
    """Return the percentiles over rows of an ``operations`` table; select phase and kind of operation first. It is for
    kinds that all complete; see :func:`completion`."""
    return latency((operations["ended_s"] - operations["started_s"]).to_numpy())


CUT_OFF = ("abandoned", "stopped")
"""How rows of ``operations`` call what was under way when its load ended, after the kind of operation."""
NEVER = ("failed", "refused")
"""And what never completes: the first was tried, the second was not."""
_PER_MILLE = {"p50": 500, "p99": 990, "p999": 999}


@dataclass(frozen=True)
class Percentile:
    """A completion time in seconds. ``is_known`` False: it is at least this, and nobody knows by how much more."""

    value_s: float
    is_known: bool = True

    def named(self, name: str) -> dict[str, float]:
        """Return it as a metric: ``p99_s``, or ``p99_at_least_s``."""
        return {f"{name}_s" if self.is_known else f"{name}_at_least_s": self.value_s}


@dataclass(frozen=True)
class Completion:
    """How long operations took that began, by percentile (``p50``, ``p99``, ``p999``), and what became of them."""

    percentiles: Mapping[str, Percentile]
    completed: int
    cut_off: int
    failed: int
    refused: int

    def named(self, prefix: str, wanted: Sequence[str] = tuple(_PER_MILLE)) -> dict[str, float]:
        """Return percentiles as metrics, such as ``read.p99_s``."""
        found = (item for one in wanted for item in self.percentiles[one].named(one).items())
        return {metric_path(prefix, name): value for name, value in found}

    def counts(self, prefix: str) -> dict[str, float]:
        """Return the counts as metrics: ``read.operations`` (completed), ``read.abandoned``, ``read.failed``,
        ``read.refused``."""
        numbers = (self.completed, self.cut_off, self.failed, self.refused)
        names = ("operations", "abandoned", "failed", "refused")
        return {metric_path(prefix, name): float(number) for name, number in zip(names, numbers, strict=True)}


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
    found = percentiles(completed, cut_off, never, list(_PER_MILLE.values()))
    return Completion(
        dict(zip(_PER_MILLE, found, strict=True)), completed.size, cut_off.size, never.size - refused, refused
    )


def percentiles(
    completed_s: Numbers, cut_off_s: Numbers, never_s: Numbers, per_mille: Sequence[int]
) -> list[Percentile]:
    """Return some percentiles of the time that operations take (nearest rank; see the module's text).

    ``completed_s``: what those took that completed; ``cut_off_s`` and ``never_s``: the time that others had, shape (n,)
    each. Raises ValueError if there are none at all.
    """
    completed, cut_off, never = (np.sort(np.asarray(one, np.float64)) for one in (completed_s, cut_off_s, never_s))
    times = np.concatenate([completed, cut_off])
    is_completed = np.repeat([True, False], [completed.size, cut_off.size])
    order = np.lexsort((~is_completed, times))  # Of equal times, those that completed first.
    times, is_completed = times[order], is_completed[order]
    total = times.size + never.size
    if not total:
        raise ValueError("no operations have no percentiles; check that the phase began any")
    gone = _gone(is_completed, never.size)
    has_rank = np.concatenate([is_completed, np.ones(never.size, bool)])
    longest_s = float(times[-1]) if times.size else 0.0
    found = []
    for wanted in per_mille:
        reached = np.flatnonzero(has_rank & (gone * 1000 >= wanted - _ROUNDING))
        place = int(reached[0]) if reached.size else total
        if place < times.size:
            found.append(Percentile(float(times[place])))
        else:
            had_s = float(never[place - times.size]) if place < total else 0.0
            found.append(Percentile(max(longest_s, had_s), is_known=False))
    return found


_ROUNDING = 1e-6
"""Of per mille: ranks are sums and products of fractions."""


def _gone(is_completed: npt.NDArray[np.bool_], never: int) -> Values:
    """Return what part of all operations has ended by each of them, in the order of their times, then by each of those
    that never do: the product-limit estimate."""
    at_risk = is_completed.size + never - np.arange(is_completed.size)
    left = np.cumprod(np.where(is_completed, 1 - 1 / at_risk, 1.0))
    last = left[-1] if left.size else 1.0
    return np.asarray(1 - np.concatenate([left, last * np.arange(never - 1, -1, -1) / max(1, never)]), np.float64)


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
