"""Tables of cases: a row per case, and columns of its values and its numbers. The only place in which studies make
cells: which words a number has follows from its unit."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from fabric.records.cells import Cell, Row, measured, quantity
from fabric.records.summary_table import SummaryTable
from fabric.records.words import form_for
from runs.cases import axes_of, words_of

_COUNT = ",.0f"


@dataclass(frozen=True)
class Column:
    """A column. ``value``: a field or property of the case, a number by its name, or a function of the row; ``form``:
    of a number (:mod:`fabric.records.words`), by default as its unit has it, and of a number without one whole;
    ``is_once``: nothing where the row above has the same, here and in columns before it that are such; ``otherwise``:
    the number of a row that does not have it by its name."""

    head: str
    value: str | Callable[..., Any]
    form: str | None = None
    is_once: bool = False
    otherwise: float | None = None

    def cell(self, row: Any) -> Cell:
        """Return a row's cell."""
        if callable(self.value):
            found = self.value(row)
            is_number = found is None or isinstance(found, int | float)
            return quantity(found, self.form or _COUNT) if is_number else found
        if self.value in axes_of(type(row.case)):
            return str(row.case.format(f"{{{self.value}}}"))
        if hasattr(type(row.case), self.value):
            return words_of(getattr(row.case, self.value))
        return measured(row.values, self.value, self.form or form_for(self.value) or _COUNT, self.otherwise)


def case_table(title: str, rows: Iterable[Any], columns: Sequence[Column], note: str | None = None) -> SummaryTable:
    """Return a table with a row per case: an outcome, or whatever has its ``case`` and its ``values``, numbers by name.
    Columns that are functions take any row."""
    cells = [[column.cell(row) for column in columns] for row in rows]
    shown = [_shown(row, above, columns) for row, above in zip(cells, [None, *cells], strict=False)]
    return SummaryTable(title=title, columns=[column.head for column in columns], rows=shown, note=note)


def _shown(row: Row, above: Row | None, columns: Sequence[Column]) -> Row:
    """Return a row without what the one above it says for both."""
    shown, is_same = list(row), above is not None
    for place, column in enumerate(columns):
        if column.is_once:
            is_same = is_same and above is not None and row[place] == above[place]
            shown[place] = "" if is_same else row[place]
    return shown
