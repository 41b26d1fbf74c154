"""What flows delivered, and when: the one definition, from the tables ``flows`` and ``operations``.

Delivered are the bytes that a connection's peer has acknowledged; between two samples they grow evenly. Where each flow
has a connection of its own (rows ``flow`` of ``operations``), many end before a second sample: then what counts is the
size of each, spread evenly over its time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:  # Programs in hosts are forked from a process with this module, and pandas is large.
    import pandas as pd

    from fabric.results import Phase

Floats = npt.NDArray[np.float64]
COMPLETED, ABANDONED = "flow", "flow_abandoned"
"""The kinds of ``operations`` that are flows with a connection each, and delivered bytes."""
_FLOW = ["service_level", "host", "peer"]


@dataclass(frozen=True, order=True)
class Flow:
    """All connections of a service level from a host to another."""

    service_level: str
    host: str
    peer: str


@dataclass(frozen=True)
class Growth:
    """A counter of delivered bytes: ``counted_bytes[i]`` at ``at_s[i]``, growing evenly in between.

    ``is_sampled``: ``at_s`` are the times of samples; else those at which flows started and ended.
    """

    at_s: Floats
    counted_bytes: Floats
    is_sampled: bool = True

    def by(self, times_s: Floats) -> Floats:
        """Return the counter at some times; before its first and after its last time it stands still."""
        return np.interp(times_s, self.at_s, self.counted_bytes).astype(np.float64)


def delivered(flows: pd.DataFrame, operations: pd.DataFrame, phase: Phase) -> Iterator[tuple[Flow, Growth]]:
    """Yield what flows delivered in a phase, from the tables of those names: each connection that was sampled, and for
    jobs whose flows have a connection each, all flows of a pair together."""
    begun = operations[(operations["phase"] == phase.name) & operations["operation"].isin([COMPLETED, ABANDONED])]
    sampled = flows[(flows["phase"] == phase.name) & ~flows["job"].isin(begun["job"].unique())]
    yield from acknowledged(sampled)
    yield from _spread(begun)


def acknowledged(flows: pd.DataFrame) -> Iterator[tuple[Flow, Growth]]:
    """Yield the bytes that each connection had acknowledged, from rows of ``flows`` of one phase."""
    # Parallel connections of one pair are sampled together and in the same order each time.
    twin = flows.groupby(["job", *_FLOW, "at_s"], observed=True).cumcount()
    for (_, *names, _), series in flows.assign(twin=twin).groupby(["job", *_FLOW, "twin"], observed=True):
        ordered = series.sort_values("at_s", kind="stable")
        counted = ordered["bytes_acked"].to_numpy(dtype=float)
        if (np.diff(counted) < 0).any():  # One that began anew has its first bytes left out.
            counted = counted[0] + np.concatenate([[0.0], np.cumsum(np.maximum(np.diff(counted), 0))])
        yield Flow(*map(str, names)), Growth(ordered["at_s"].to_numpy(dtype=float), counted)


def acknowledged_bytes(flows: pd.DataFrame, from_s: float, until_s: float) -> float:
    """Return what all connections of some rows of ``flows`` had acknowledged between two times.

    Raises ValueError if no time passes.
    """
    if until_s <= from_s:
        raise ValueError(f"no time passes from {from_s} s to {until_s} s; give a stretch that ends after it starts")
    total = 0.0
    for _, growth in acknowledged(flows):
        before, after = growth.by(np.array([from_s, until_s]))
        total += float(after - before)
    return total


def _spread(operations: pd.DataFrame) -> Iterator[tuple[Flow, Growth]]:
    """Yield the bytes of each pair's operations, each growing evenly from its start to its end."""
    for names, ended in operations.dropna(subset=["ended_s"]).groupby(_FLOW, observed=True):
        columns = ("started_s", "ended_s", "size_bytes")
        started_s, ended_s, size_bytes = (ended[name].to_numpy(dtype=float) for name in columns)
        yield Flow(*map(str, names)), _evenly(started_s, np.maximum(ended_s, started_s + 1e-9), size_bytes)


def _evenly(started_s: Floats, ended_s: Floats, size_bytes: Floats) -> Growth:
    """Return the sum of what each operation has delivered, at the times at which one starts or ends.

    Between two of these it grows at the sum of the rates of those that are under way. Rates are added and taken away
    again: in wider numbers than the rest, so that what is left of the fastest is less than the last digit of the sum.
    """
    times_s, place = np.unique(np.concatenate([started_s, ended_s]), return_inverse=True)
    rates = (size_bytes / (ended_s - started_s)).astype(np.longdouble)
    changes = np.zeros(len(times_s), np.longdouble)
    np.add.at(changes, place, np.concatenate([rates, -rates]))
    grown = np.maximum(np.cumsum(changes)[:-1], 0) * np.diff(times_s.astype(np.longdouble))
    return Growth(times_s, np.concatenate([[0.0], np.cumsum(grown)]).astype(np.float64), is_sampled=False)
