"""What numbers of results mean. A measure is declared once, as a column is: the names of metrics, the heads of tables,
OpenMetrics' help, the comparison of runs and the reference in the docs come from that.

A measure is a number, or a family of numbers, whose name has labels in brackets: ``restore_<nodes>.all_s``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import Enum
from typing import NamedTuple

from fabric.metrics import metric_path, unit_of

_LABEL = re.compile(r"<(\w+)>")
_VALUES = {"percentile": r"p\d+", "nodes": r"\d+", "duration": r"[\d.]+ms"}
"""What a label may be; any other is a name without a dot."""


class Better(Enum):
    """Which of two values of a measure is better."""

    MORE = "more"
    LESS = "less"
    NEITHER = ""


class Measure(NamedTuple):
    """A number that runs report, or a family of such: its name, with its unit at its end (:data:`fabric.metrics.UNITS`)
    and labels in brackets, what it means, and which values are better; ``head``: of its column in tables of jobs of its
    kind, which lack it without; ``is_least``: it is the least that a number can be whose value is not known
    (:func:`fabric.metrics.least_name`); ``is_of_many``: it is a median or a percentile, or computed of one."""

    name: str
    meaning: str
    better: Better = Better.NEITHER
    head: str = ""
    is_least: bool = False
    is_of_many: bool = False

    @property
    def unit(self) -> str:
        """The unit of its values; ``1`` for a number without one."""
        return unit_of(self.name)

    def of(self, *labels: object) -> str:
        """Return the name of a member of the family, by its labels in their order. Raises ValueError if these are more
        or fewer than the family has."""
        left = [str(one) for one in labels]
        if len(left) != len(_LABEL.findall(self.name)):
            raise ValueError(f"measure {self.name}: has not {len(left)} labels ({', '.join(left)})")
        return _LABEL.sub(lambda _: left.pop(0), self.name)

    def without(self, label: str, meaning: str) -> Measure:
        """Return the numbers of the family whose names do not begin with a label, and what they mean."""
        return self._replace(name=self.name.replace(f"<{label}>.", "", 1), meaning=meaning)

    def under(self, *labels: str, meaning: str) -> Measure:
        """Return the family of these numbers below labels or names, such as ``composed.<load>.wait_s``."""
        return self._replace(name=metric_path(*labels, self.name), meaning=meaning)

    def includes(self, name: str) -> bool:
        """Whether a metric of this name is the measure, or of the family."""
        texts = _LABEL.split(self.name)
        parts = (f"({_VALUES.get(one, r'[^.]+')})" if place % 2 else re.escape(one) for place, one in enumerate(texts))
        return re.fullmatch("".join(parts), name) is not None


def heads(measures: Iterable[Measure]) -> dict[str, str]:
    """Return the heads of columns in tables, by names."""
    return {one.name: one.head for one in measures if one.head}


def measure_named(measures: Iterable[Measure], name: str) -> Measure | None:
    """Return the measure of a metric by its name, without phase and job; None if nobody has declared it. Of several,
    the one that leaves least of the name to labels,
    and of such the first."""
    found = [one for one in measures if one.includes(name)]
    return max(found, key=lambda one: len(_LABEL.sub("", one.name)), default=None)


def measure_at(measures: Iterable[Measure], path: str) -> Measure | None:
    """Return the measure of a metric by its path, which begins with its phase and job; None if nobody has declared it.

    A path does not say where its name begins: the longest name that is declared is meant.
    """
    declared, parts = tuple(measures), path.split(".")
    names = (".".join(parts[place:]) for place in range(len(parts)))
    return next((found for name in names if (found := measure_named(declared, name)) is not None), None)
