"""Typed metrics of a run: what was measured of which job in which phase, with its unit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

import pandas as pd

from fabric.errors import ResultError

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


Metrics = Mapping[str, float] | Sequence[Metric]
"""What an experiment returns: its metrics, or values by their paths, whose jobs are then looked up."""


def as_metrics(
    values: Metrics, jobs: Collection[str] = JOBS, performers: Performers = MappingProxyType({})
) -> list[Metric]:
    """Return metrics as they are, or those of values by their paths (see :func:`metric_at`). What is no number is left
    out. Raises ResultError if two have one path."""
    found = list(values) if not isinstance(values, Mapping) else []
    if isinstance(values, Mapping):
        found = [metric_at(path, value, jobs, performers) for path, value in values.items() if _is_number(value)]
    if twice := [path for path, count in Counter(one.path for one in found).items() if count > 1]:
        raise ResultError(f"metric {twice[0]}: is there twice; give one of them another name")
    return [replace(one, value=float(one.value)) for one in found if _is_number(one.value)]


def with_metrics(values: Metrics, others: Sequence[Metric]) -> Metrics:
    """Return what an experiment returned, and other metrics."""
    if isinstance(values, Mapping):
        return {**values, **{one.path: one.value for one in others}}
    return [*values, *others]


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def metrics_frame(
    values: Metrics, jobs: Collection[str] = JOBS, performers: Performers = MappingProxyType({})
) -> pd.DataFrame:
    """Return the table ``metrics`` of what an experiment returned, see :func:`as_metrics`."""
    rows = [tuple(getattr(one, column) for column in COLUMNS) for one in as_metrics(values, jobs, performers)]
    return pd.DataFrame(rows, columns=list(COLUMNS))


def performers_in(operations: pd.DataFrame) -> Performers:
    """Return whose operations of a kind were in a phase, by the table ``operations`` of a run, where they were one
    job's only."""
    kinds = operations["operation"].astype(str).str.split("_").str[0]
    done = pd.DataFrame({"phase": operations["phase"], "kind": kinds, "job": operations["job"]}).drop_duplicates()
    single = done[~done.duplicated(["phase", "kind"], keep=False)]
    return {(str(phase), str(kind)): str(job) for phase, kind, job in single.itertuples(index=False)}
