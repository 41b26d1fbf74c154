"""Typed metrics of a run: what was measured of which job in which phase, with its unit."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from numbers import Integral, Real
from typing import TYPE_CHECKING

from fabric.errors import ResultError

if TYPE_CHECKING:  # Programs in hosts are forked from a process with this module, and pandas is large.
    import pandas as pd

UNITS = {
    "_bps": "bit/s",
    "_Bps": "B/s",
    "_bytes": "B",
    "_packets": "packets",
    "_fraction": "1",
    "_per_s": "1/s",
    "_s": "s",
}
"""The unit of a metric by the end of its name; a metric with none of these is a number without unit."""
_OTHER_UNITS = re.compile(
    r"_(ns|us|ms|min|h|seconds|percent|bits|[kKMGT]i?B|[kMG]?Hz|[kKMGT]bps|[kMG]Bps|per_(?:ms|min|h))$"
)
"""Ends of names that are units, and not those of results."""
_MOST_NAMED = 12
COLUMNS = ("phase", "job", "name", "unit", "value", "path")
JOBS = frozenset({"hfreduce", "nccl", "storage", "other", "control"})
"""Of results of format 1, whose metrics have a path only: their jobs were service levels."""


def metric_path(*parts: str) -> str:
    """Return the parts of a metric's name that are not empty, joined as ``summary.json`` has them."""
    return ".".join(filter(None, parts))


def unit_of(name: str) -> str:
    """Return the unit of a metric by its name or its path; ``1`` for a number without one."""
    return UNITS.get(unit_end(name), "1")


def unit_end(name: str) -> str:
    """Return the end of a metric's name that says its unit (:data:`UNITS`); empty without one."""
    return next((end for end in UNITS if name.endswith(end)), "")


def is_fraction(name: str) -> bool:
    """Return whether a number is a part of a whole, which is written in percent."""
    return name.endswith("_fraction")


def without_unit(name: str) -> str:
    """Return the name of a metric without the unit at its end."""
    return name[: len(name) - len(unit_end(name))]


def first_part(path: str) -> str:
    """Return the first part of a metric's path, such as its job; of a path of one part, that."""
    return path.partition(".")[0]


def split_path(path: str) -> tuple[str, str]:
    """Return the first part of a metric's path, such as its phase, and the rest; with one part, an empty first one."""
    first, dot, rest = path.partition(".")
    return (first, rest) if dot else ("", path)


def verify_unit(name: str) -> None:
    """Raise ValueError if a declared name ends in a unit that results do not have: it would be a number without one."""
    if unit_of(name) == "1" and not is_fraction(name) and (found := _OTHER_UNITS.search(name)):
        raise ValueError(
            f"{name}: ends in {found[1]}, and numbers of results are in units of {', '.join(UNITS)}; convert it, or "
            "rename it"
        )


def least_name(name: str) -> str:
    """Return what a number such as ``p99_s`` is called where only the least that it can be is known:
    ``p99_at_least_s``, with its unit at the end."""
    return _before_unit(name, "at_least")


def theory_name(name: str) -> str:
    """Return the name of what theory says of a number such as ``algbw_Bps``: ``algbw_in_theory_Bps``."""
    return _before_unit(name, "in_theory")


def _before_unit(name: str, words: str) -> str:
    return f"{without_unit(name)}_{words}{unit_end(name)}"


@dataclass(frozen=True)
class Metric:
    """One number. ``phase``: where it was measured, or the group of phases that it sums up, or empty; ``job``: whose it
    is, or empty; ``name`` has the unit at its end, as :data:`UNITS` has it. ``is_named_by_job``: whether its path has
    the job, which a name such as ``read.p99_s`` does not need."""

    phase: str
    job: str
    name: str
    value: float
    is_named_by_job: bool = True

    @property
    def unit(self) -> str:
        """The unit; ``1`` for a number without one."""
        return unit_of(self.name)

    @property
    def name_in_phase(self) -> str:
        """What names it among the metrics of its phase: ``hfreduce.algbw_Bps``."""
        return metric_path(self.job if self.is_named_by_job else "", self.name)

    @property
    def path(self) -> str:
        """What names it in ``summary.json`` and in tables of sweeps: ``lanes.hfreduce.algbw_Bps``."""
        return metric_path(self.phase, self.name_in_phase)


class Numbers(dict[str, float]):
    """Numbers by name; one that nothing measured is NaN, which is not a metric, and a dash in a table."""

    def __missing__(self, name: str) -> float:
        return math.nan

    def of(self, part: str) -> Numbers:
        """Return those of a part, such as a job, named without it; all of them with an empty part."""
        start = f"{part}." if part else ""
        return Numbers({name.removeprefix(start): value for name, value in self.items() if name.startswith(start)})


def metrics_of(phase: str, job: str, values: Mapping[str, float], is_named_by_job: bool = True) -> list[Metric]:
    """Return the numbers of a job in a phase, or with an empty ``job`` of all of it, as metrics."""
    return [Metric(phase, job, name, value, is_named_by_job) for name, value in values.items()]


def by_phase(metrics: Iterable[Metric]) -> dict[str, dict[str, float]]:
    """Return the numbers of each phase by :attr:`Metric.name_in_phase`, in their order."""
    found: dict[str, dict[str, float]] = {}
    for one in metrics:
        found.setdefault(one.phase, {})[one.name_in_phase] = one.value
    return found


def by_path(metrics: Iterable[Metric]) -> dict[str, float]:
    """Return numbers by their paths, in their order."""
    return {one.path: one.value for one in metrics}


def metric_at(path: str, value: float) -> Metric:
    """Return the metric that a path names in a result of format 1: a phase, then a job if it is one of :data:`JOBS`,
    then its name."""
    phase, dot, rest = path.partition(".")
    if not dot:
        return Metric("", "", path, value)
    job, dot, name = rest.partition(".")
    return Metric(phase, job, name, value) if dot and job in JOBS else Metric(phase, "", rest, value)


Metrics = Mapping[str, float] | Sequence[Metric]
"""What an experiment returns: its metrics. Values by their paths are taken as in results of format 1."""


def listed(values: Metrics) -> list[Metric]:
    """Return metrics as they are, or those of values by their paths (see :func:`metric_at`), numbers or not."""
    return [metric_at(*item) for item in values.items()] if isinstance(values, Mapping) else list(values)


def plain_number(value: object) -> int | float | None:
    """Return a number as Python has it, whichever library's it is: one that is true or false is 1 or 0. None for what
    is not a number."""
    item = getattr(value, "item", None)
    if callable(item) and getattr(value, "shape", None) == ():
        value = item()  # NumPy's, and others that have learned from it.
    if isinstance(value, Integral):
        return int(value)
    return float(value) if isinstance(value, Real) else None


def sifted(values: Metrics) -> tuple[list[Metric], list[str]]:
    """Return the metrics that are finite numbers, as Python has them, each with a path of its own, and notes that name
    the others: what was not measured (NaN, None), what is infinite, what is not a number, and what is there twice."""
    found = listed(values)
    counts = Counter(one.path for one in found)
    kept: list[Metric] = []
    left_out: dict[str, list[str]] = {}
    for one in found:
        number = plain_number(one.value)
        if one.value is None or (number is not None and math.isnan(number)):
            left_out.setdefault("not measured (NaN)", []).append(one.path)
        elif number is None:
            left_out.setdefault("no number", []).append(f"{one.path} ({type(one.value).__name__})")
        elif math.isinf(number):
            left_out.setdefault("infinite", []).append(one.path)
        elif counts[one.path] > 1:
            left_out.setdefault("there twice, so give one another name", []).append(f"{one.path} ({number:g})")
        else:
            kept.append(replace(one, value=number))
    return kept, [f"metrics left out, since {why}: {_some(names)}" for why, names in left_out.items()]


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return ", ".join(names[:_MOST_NAMED]) + more


def as_metrics(values: Metrics) -> list[Metric]:
    """Return the metrics that are finite numbers, see :func:`sifted`. Raises ResultError if two have one path."""
    if twice := [path for path, count in Counter(one.path for one in listed(values)).items() if count > 1]:
        raise ResultError(f"metric {twice[0]}: is there twice; give one of them another name")
    return sifted(values)[0]


def metrics_frame(values: Metrics) -> pd.DataFrame:
    """Return the table ``metrics`` of what an experiment returned, see :func:`as_metrics`."""
    import pandas as pd

    rows = [(one.phase, one.job, one.name, one.unit, float(one.value), one.path) for one in as_metrics(values)]
    return pd.DataFrame(rows, columns=list(COLUMNS))
