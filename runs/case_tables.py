"""What studies say of cases: tables with a row per case and columns of its values and its numbers, and answers. The
only place in which studies make cells and sentences of numbers: which words a number has follows from its unit."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from statistics import median
from types import NoneType
from typing import Any, TypeVar

from fabric.metrics import theory_name
from fabric.records.cells import Cell, Quantity, Row, joined, measured, quantity
from fabric.records.summary_table import NoteParts, SummaryTable, cell_words
from fabric.records.words import form_for
from runs.cases import axes_of, words_of

_COUNT = ",.0f"
ALONE = "alone"
"""What the names of numbers of a part alone start with (:class:`runs.study.Part`)."""


@dataclass(frozen=True)
class Column:
    """A column. ``value``: a field or property of the case, a number by its name, one over another
    (``restore.all_Bps / nic_Bps``) or over the same alone (``step_s / alone``), a text with such in braces, each with a
    form of its own if it needs one, or a function of the row; of a row that is a mapping what it has by this name;
    ``form``: of a number (:mod:`fabric.records.words`), by default as its unit has it, and if it has none whole;
    ``is_once``: nothing where the row above has the same, here and in columns before it that are such; ``otherwise``:
    the number, or the text, of a row that does not have it."""

    head: str
    value: str | Callable[..., Any]
    form: str | None = None
    is_once: bool = False
    otherwise: float | str | None = None

    def cell(self, row: Any) -> Cell:
        """Return a row's cell."""
        if callable(self.value):
            return self._cell_of(self.value(row), _COUNT)
        if isinstance(row, Mapping):
            return self._cell_of(row[self.value], form_for(self.value) or _COUNT)
        if (words := getattr(row, "settings", {}).get(self.value)) is not None:
            return str(words)
        if "{" in self.value:
            return _said(row, self.value)
        if self.value in axes_of(type(row.case)):
            return str(row.case.format(f"{{{self.value}}}"))
        if hasattr(type(row.case), self.value):
            return words_of(getattr(row.case, self.value))
        found = self._number(row)
        return self.otherwise if isinstance(self.otherwise, str) and not found.is_measured else found

    def _number(self, row: Any) -> Quantity:
        assert isinstance(self.value, str)
        name, _, base = self.value.partition(" / ")
        if base:
            form = self.form or ".2f x"
            return row.times(name, form) if base == ALONE else quantity(row[name] / (row[base] or math.nan), form)
        form = self.form or form_for(name) or _COUNT
        return measured(row.values, name, form, None if isinstance(self.otherwise, str) else self.otherwise)

    def _cell_of(self, found: Any, form: str) -> Cell:
        return quantity(found, self.form or form) if isinstance(found, NoneType | int | float) else found


_PART = re.compile(r"\{([^{}|]+)(?:\|([^{}]*))?\}")


def columns(text: str) -> list[Column]:
    """Return columns by a text that has the value of each in braces behind its head, with a form of its own if it needs
    one: ``in {queueing}, p99 {read.p99_s}, of the NIC {read.bandwidth_Bps / nic_Bps|.1%}``. ``{queueing|once}`` is one
    that is shown once, ``{read.failed|or 0}`` one of 0 where it is not known, and ``{time_s|.2f s or N/A}`` one of that
    text."""
    parts = _PART.split(text)
    heads = [head.removeprefix(", ").rstrip() for head in parts[::3]]
    assert heads.pop() == "", f"{text!r} ends with a head, and no value"
    return [_column(head, value, form or "") for head, value, form in zip(heads, parts[1::3], parts[2::3], strict=True)]


def _column(head: str, value: str, said: str) -> Column:
    form, _, otherwise = said.partition("or ")
    is_once, form = form == "once", form.strip()
    known = float(otherwise) if otherwise.isdecimal() else otherwise or None
    return Column(head, value, None if is_once else form or None, is_once, known)


Columns = str | Sequence[Column | str]
"""Columns of a table; a text may hold several (:func:`columns`)."""


def _columns_of(written: Columns) -> list[Column]:
    given = [written] if isinstance(written, str) else written
    return [column for one in given for column in (columns(one) if isinstance(one, str) else [one])]


def case_table(title: str, rows: Iterable[Any], written: Columns, note: NoteParts = None) -> SummaryTable:
    """Return a table with a row per case: an outcome, or a value with a ``case`` and ``values``, numbers by name.
    Columns that are functions take any row."""
    wanted = _columns_of(written)
    cells = [[column.cell(row) for column in wanted] for row in rows]
    shown = [_shown(row, above, wanted) for row, above in zip(cells, [None, *cells], strict=False)]
    return SummaryTable(title=title, columns=[column.head for column in wanted], rows=shown, note=note)


def _shown(row: Row, above: Row | None, wanted: Sequence[Column]) -> Row:
    """Return a row without what the one above it says for both."""
    shown, is_same = list(row), above is not None
    for place, column in enumerate(wanted):
        if column.is_once:
            is_same = is_same and above is not None and row[place] == above[place]
            shown[place] = "" if is_same else row[place]
    return shown


def spread(values: Sequence[float], form: str) -> Cell:
    """Return a median of repeats, with the least and the most if they read differently; nothing if none is known."""
    if all(map(math.isnan, values)):
        return None
    low, middle, high = (quantity(value, form) for value in (min(values), median(values), max(values)))
    return middle if low.words == high.words else (middle, " (", low, "-", high, ")")


def over_theory(row: Any, name: str) -> float:
    """Return a number of a row over what theory says of it (:class:`runs.study.Study`)."""
    return float(row[name] / row[theory_name(name)])


Said = TypeVar("Said")


def _of(said: Said | Callable[[Any], Said], found: Any) -> Said:
    return said(found) if callable(said) else said


@dataclass(frozen=True)
class CaseTable:
    """A table of a study. Its title, its columns and its ``note`` may be functions of the outcomes of all cases
    (:class:`runs.study.Found`); ``rows``: such a function, too, by default a row per case, and with ``parts`` a row per
    part of each (:class:`runs.study.Point`), by all outcomes and this one. Rows that lack the number ``having`` are
    left out."""

    title: str | Callable[[Any], str]
    columns: Columns | Callable[[Any], Columns]
    note: NoteParts | Callable[[Any], NoteParts] = None
    rows: Callable[[Any], Iterable[Any]] = attrgetter("outcomes")
    parts: Callable[[Any, Any], Iterable[Any]] | None = None
    having: str = ""

    def of(self, found: Any) -> SummaryTable:
        """Return it, made of the outcomes of all cases."""
        rows = _having(self.having, self.rows(found))
        if self.parts is not None:
            rows = [one.at(point) for one in rows for point in self.parts(found, one)]
        return case_table(_of(self.title, found), rows, _of(self.columns, found), _of(self.note, found))


def _having(name: str, rows: Iterable[Any]) -> list[Any]:
    """Return the rows that have a number, if one is named."""
    return [row for row in rows if not name or name in row.values]


def say(row: Any, text: str) -> str:
    """Return a text with settings of a row's case and its numbers in braces, each as a table has it: ``{limit}``,
    ``{read.p99_s}``, ``{read.bandwidth_Bps|.1f GB/s}`` by a form of its own."""
    return str(cell_words(_said(row, text)))


def _said(row: Any, text: str) -> Cell:
    *parts, end = _PART.split(text)
    each = zip(parts[::3], parts[1::3], parts[2::3], strict=True)
    cells = [cell for before, value, form in each for cell in (before, _column("", value, form or "").cell(row))]
    return joined((cell for cell in (*cells, end) if cell != ""), "")


@dataclass(frozen=True)
class Answer:
    """The finding of a study: ``text``, or a function of all outcomes, in which ``{}`` stands for what ``each`` says of
    the cases (:func:`say`, or a function of a row), ``between`` two of them; with ``by``, a text with settings in
    braces, group by group; with ``ends``, a number of a row, only of those in a group that have the least
    and the most of it. ``rows``: a function of all outcomes, by default all cases; those that lack the number
    ``having`` are left out. ``otherwise``: the finding if none is left."""

    text: str | Callable[[Any], str]
    each: str | Callable[[Any], str]
    otherwise: str = "Nothing was played."
    having: str = ""
    by: str = ""
    between: str = ", "
    ends: Callable[[Any], float] | None = None
    rows: Callable[[Any], Iterable[Any]] = attrgetter("outcomes")

    def __call__(self, found: Any) -> str:
        """Return it, made of the outcomes of all cases."""
        groups: dict[str, list[Any]] = {}
        for row in _having(self.having, self.rows(found)):
            groups.setdefault(row.case.format(self.by), []).append(row)
        parts = [(f"{group}: " if group else "") + self._said(rows) for group, rows in groups.items()]
        return _of(self.text, found).replace("{}", "; ".join(parts)) if parts else self.otherwise

    def _said(self, rows: Sequence[Any]) -> str:
        chosen = rows if self.ends is None else [choose(rows, key=self.ends) for choose in (min, max)]
        return self.between.join(self.each(row) if callable(self.each) else say(row, self.each) for row in chosen)
