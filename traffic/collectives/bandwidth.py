"""Bandwidths of collectives, by the formulas of nccl-tests (NVIDIA/nccl-tests, ``doc/PERFORMANCE.md``).

With S the size of a collective, t the time of a step and n the ranks::

    algbw = S / t
    busbw = algbw x factor(collective, n)        what the busiest link of a perfect fabric would carry
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from traffic.collectives.listing import collective_named

if TYPE_CHECKING:  # Programs in hosts are forked from a process with this module, and pandas is large.
    import pandas as pd


def busbw_factor(collective: str, ranks: int) -> float:
    """Return busbw / algbw of a collective over ``ranks``. Raises ValueError for one that there is not, or one rank."""
    found = collective_named(collective)
    if ranks < 2:
        raise ValueError(f"a collective of {ranks} ranks uses no bus; give at least 2")
    return found.busbw_factor(ranks)


def with_bandwidths(steps: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of a ``steps`` table with ``time_s``, and ``algbw`` and ``busbw`` in bytes/s, each by the factor
    of its own collective. Raises ValueError as :func:`busbw_factor`."""
    time_s = steps["ended_s"] - steps["started_s"]
    algorithm = steps["size_bytes"] / time_s
    factor = [busbw_factor(str(name), ranks) for name, ranks in zip(steps["collective"], steps["ranks"], strict=True)]
    return steps.assign(time_s=time_s, algbw=algorithm, busbw=algorithm * factor)
