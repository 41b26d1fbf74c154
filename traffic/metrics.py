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
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

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
    """Return the percentiles over rows of an ``operations`` table; select phase and kind of operation first."""
    return latency((operations["ended_s"] - operations["started_s"]).to_numpy())


def operation_bandwidth(operations: pd.DataFrame, started_s: float, ended_s: float) -> float:
    """Return the bytes of operations that ended in (started_s, ended_s], per second; one counts whole where it ends."""
    if ended_s <= started_s:
        raise ValueError(f"no time passes from {started_s} s to {ended_s} s; give a stretch that ends after it starts")
    inside = (operations["ended_s"] > started_s) & (operations["ended_s"] <= ended_s)
    return float(operations["size_bytes"][inside].sum()) / (ended_s - started_s)
