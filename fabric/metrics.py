"""Typed metrics of a run: what was measured of which job in which phase, with its unit."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import pandas as pd

UNITS = {
    "_bps": "bit/s",
    "_Bps": "B/s",
    "_bytes": "B",
    "_packets": "packets",
    "_fraction": "1",
    "_s": "s",
}
"""The unit of a metric by the end of its name; a metric with none of these is a number without unit."""
COLUMNS = ("phase", "job", "name", "unit", "value")
JOBS = frozenset({"hfreduce", "nccl", "storage", "other", "control"})
"""Of runs whose jobs have no names of their own: their service levels, as in results of format 1."""


@dataclass(frozen=True)
class Metric:
    """One number. ``phase``: where it was measured, or the group of phases that it sums up, or empty; ``job``: whose it
    is, or empty; ``name`` has the unit at its end, as :data:`UNITS` has it."""

    phase: str
    job: str
    name: str
    value: float

    @property
    def unit(self) -> str:
        """The unit; ``1`` for a number without one."""
        return next((unit for end, unit in UNITS.items() if self.name.endswith(end)), "1")

    @property
    def path(self) -> str:
        """All that names it, in one: ``lanes.hfreduce.algbw_Bps``."""
        return ".".join(part for part in (self.phase, self.job, self.name) if part)


def metric_at(path: str, value: float, jobs: Collection[str] = JOBS) -> Metric:
    """Return a metric that is named by a path: a phase, then a job if it is one of ``jobs``, then its name."""
    phase, dot, rest = path.partition(".")
    if not dot:
        return Metric("", "", path, value)
    job, dot, name = rest.partition(".")
    if dot and job in jobs:
        return Metric(phase, job, name, value)
    return Metric(phase, "", rest, value)


def metrics_frame(values: Mapping[str, float], jobs: Collection[str] = JOBS) -> pd.DataFrame:
    """Return the table ``metrics`` of values by their paths, in which a job is one of ``jobs``; what is no number is
    left out."""
    found = [
        metric_at(path, float(value), jobs)
        for path, value in values.items()
        if isinstance(value, int | float) and not isinstance(value, bool)
    ]
    rows = [(one.phase, one.job, one.name, one.unit, one.value) for one in found]
    return pd.DataFrame(rows, columns=list(COLUMNS))
