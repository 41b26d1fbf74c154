"""Tables of cases: a row per case, and columns of its values and its numbers. The only place in which studies make
cells: which words a number has follows from its unit."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fabric.metrics import unit_of
from fabric.records.summary_table import SummaryTable
from fabric.units import format_bandwidth, format_rate, format_share, format_size
from runs.cases import axes_of, words_of
from runs.counted_operations import told_time

UNKNOWN = "-"
Words = Callable[[float], str]


@dataclass(frozen=True)
class Column:
    """A column. ``value``: a field or property of the case, a number by its name, or a function of the row; ``words``:
    of a number, by default as its unit has it."""

    head: str
    value: str | Callable[..., object]
    words: Words | None = None

    def cell(self, row: Any) -> str:
        """Return a row's cell."""
        if callable(self.value):
            return _told(self.value(row), self.words)
        if self.value in axes_of(type(row.case)):
            return str(row.case.told(f"{{{self.value}}}"))
        if hasattr(type(row.case), self.value):
            return words_of(getattr(row.case, self.value))
        if self.words is None and self.value.endswith("_s") and unit_of(self.value) == "s":
            return told_time(row.values, self.value.removesuffix("_s"))
        return _told(row.values.get(self.value, math.nan), self.words or _WORDS.get(unit_of(self.value), count_words))


def _told(value: object, words: Words | None) -> str:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return UNKNOWN
    return value if isinstance(value, str) else (words or count_words)(float(value))  # type: ignore[arg-type]


def count_words(value: float) -> str:
    """Return a count as a person reads it, e.g. ``1,234``."""
    return f"{value:,.0f}"


def in_units_of(unit: float, spec: str = ".3g") -> Words:
    """Return words for numbers in a unit of their head's, such as GiB/s."""
    return lambda value: f"{value / unit:{spec}}"


def share_words(digits: int = 0) -> Words:
    """Return words for parts of a whole."""
    return lambda value: format_share(value, digits)


_WORDS: Mapping[str, Words] = {
    "B/s": format_bandwidth,
    "bit/s": format_rate,
    "B": lambda value: format_size(round(value)),
}


def case_table(title: str, rows: Iterable[Any], columns: Sequence[Column], note: str | None = None) -> SummaryTable:
    """Return a table with a row per case: an outcome, or whatever has its ``case`` and its ``values``, numbers by name.
    Columns that are functions take any row."""
    cells = [[column.cell(row) for column in columns] for row in rows]
    return SummaryTable(title=title, columns=[column.head for column in columns], rows=cells, note=note)
