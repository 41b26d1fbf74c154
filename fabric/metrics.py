"""Typed metrics of a run: what was measured of which job in which phase, with its unit."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from types import MappingProxyType

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
COLUMNS = ("phase", "job", "name", "unit", "value", "path")
JOBS = frozenset({"hfreduce", "nccl", "storage", "other", "control"})
"""Of runs whose jobs have no names of their own: their service levels, as in results of format 1."""


Performers = Mapping[tuple[str, str], str]
"""Whose operations of a kind were in a phase, by phase and kind: ``{("lanes", "read"): "storage"}``."""


@dataclass(frozen=True)
class Metric:
    """One number. ``phase``: where it was measured, or the group of phases that it sums up, or empty; ``job``: whose it
    is, or empty; ``name`` has the unit at its end, as :data:`UNITS` has it. ``path`` is what names it in
    ``summary.json`` and in tables of sweeps, by default all three: ``lanes.hfreduce.algbw_Bps``."""

    phase: str
    job: str
    name: str
    value: float
    path: str = ""

    def __post_init__(self) -> None:
        if not self.path:
            object.__setattr__(self, "path", ".".join(filter(None, (self.phase, self.job, self.name))))

    @property
    def unit(self) -> str:
        """The unit; ``1`` for a number without one."""
        return next((unit for end, unit in UNITS.items() if self.name.endswith(end)), "1")


def metric_at(
    path: str, value: float, jobs: Collection[str] = JOBS, performers: Performers = MappingProxyType({})
) -> Metric:
    """Return a metric that is named by a path: a phase, then a job if it is one of ``jobs``, then its name. Names that
    begin with a kind of operation (``lanes.read.p99_s``) are of the job that ``performers`` has for it."""
    phase, dot, rest = path.partition(".")
    if not dot:
        return Metric("", "", path, value, path)
    job, dot, name = rest.partition(".")
    if dot and job in jobs:
        return Metric(phase, job, name, value, path)
    return Metric(phase, performers.get((phase, job), "") if dot else "", rest, value, path)


def metrics_frame(
    values: Mapping[str, float], jobs: Collection[str] = JOBS, performers: Performers = MappingProxyType({})
) -> pd.DataFrame:
    """Return the table ``metrics`` of values by their paths, see :func:`metric_at`; what is no number is left out."""
    found = [
        metric_at(path, float(value), jobs, performers)
        for path, value in values.items()
        if isinstance(value, int | float) and not isinstance(value, bool)
    ]
    rows = [tuple(getattr(one, column) for column in COLUMNS) for one in found]
    return pd.DataFrame(rows, columns=list(COLUMNS))


def performers_in(operations: pd.DataFrame) -> Performers:
    """Return whose operations of a kind were in a phase, by the table ``operations`` of a run, where they were one
    job's only."""
    kinds = operations["operation"].astype(str).str.partition("_")[0]
    done = pd.DataFrame({"phase": operations["phase"], "kind": kinds, "job": operations["job"]}).drop_duplicates()
    single = done[~done.duplicated(["phase", "kind"], keep=False)]
    return {(str(phase), str(kind)): str(job) for phase, kind, job in single.itertuples(index=False)}
