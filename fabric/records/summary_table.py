"""A table of a summary, as a run prints it and ``summary.json`` has it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fabric.errors import ResultError
from fabric.metrics import plain_number
from fabric.records.cells import Cell, Quantity, quantity

_KEYS = ("title", "columns", "rows", "note", "notes", "numbers")
NoteParts = str | Sequence[str] | None
"""A table's note: one text, or several that each stand alone."""


@dataclass(frozen=True)
class SummaryTable:
    """What an experiment tells in rows: each has a cell per column (:data:`fabric.records.cells.Cell`), a text, a
    number, or None for nothing. Numbers of any library are taken, too, and NaN is nothing.

    ``note``: below the table (:data:`NoteParts`); parts that may differ between runs are texts of their own.
    """

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    note: NoteParts = None

    @property
    def words(self) -> list[list[Any]]:
        """The rows as a person reads them: a text for each number that has a form."""
        rows: list[list[Any]] = self.as_json()["rows"]
        return rows

    @property
    def notes(self) -> tuple[str, ...]:
        """The parts of the note that say something."""
        parts = (self.note,) if isinstance(self.note, str) else self.note or ()
        return tuple(filter(None, parts))

    @property
    def note_words(self) -> str | None:
        """The note as a person reads it; None if there is none."""
        return "; ".join(self.notes) or None

    def as_json(self) -> dict[str, Any]:
        """Return it as ``summary.json`` has it: rows in words, and ``numbers`` in rows alike, with null for texts, a
        number with its unit and its form, or a list of both for a cell of several; without a note, if there is none,
        and with its parts as ``notes``, if there are several.

        Raises ResultError for a title or a column that is not text, and for a row with more or fewer cells than there
        are columns. It does so here, not where the table is made: what has been measured by then is to be written
        whatever becomes of one table.
        """
        self._verify()
        note = {"note": self.note_words} if self.notes else {}
        parts = {"notes": list(self.notes)} if len(self.notes) > 1 else {}
        return {
            "title": self.title,
            "columns": list(self.columns),
            "rows": [self._cells(number, row) for number, row in enumerate(self.rows, start=1)],
            **note,
            **parts,
            "numbers": [[_number_as_json(cell) for cell in row] for row in self.rows],
        }

    def _cells(self, number: int, row: Sequence[Cell]) -> list[Any]:
        where = f"table {self.title!r}: row {number}"
        return [plain(cell_words(cell), f"{where}, {name}") for name, cell in zip(self.columns, row, strict=True)]

    def _verify(self) -> None:
        texts = {"title": self.title, **{f"column {place + 1}": text for place, text in enumerate(self.columns)}}
        if wrong := [name for name, text in texts.items() if not isinstance(text, str)]:
            raise ResultError(f"table {self.title!r}: its {wrong[0]} is {texts[wrong[0]]!r}, which is not text")
        for number, row in enumerate(self.rows, start=1):
            if len(row) != len(self.columns):
                have = f"{len(row)} cells, and there are {len(self.columns)} columns ({', '.join(self.columns)})"
                raise ResultError(f"table {self.title!r}: row {number} has {have}; give it one per column")

    @classmethod
    def of(cls, values: SummaryTable | Mapping[str, Any]) -> SummaryTable:
        """Return what :meth:`as_json` returned, or an experiment wrote like that; without ``numbers``, as results of
        before are, all texts are texts. Raises ResultError."""
        if isinstance(values, SummaryTable):
            return values
        if missing := [key for key in _KEYS[:3] if key not in values]:
            raise ResultError(f"table {values.get('title')!r}: has no {missing[0]}; give it {', '.join(_KEYS[:3])}")
        if strange := [key for key in values if key not in _KEYS]:
            raise ResultError(f"table {values['title']!r}: has {strange[0]!r}; a table has {', '.join(_KEYS[:4])}")
        known = {key: value for key, value in values.items() if key not in ("notes", "numbers")}
        if "notes" in values:
            known["note"] = tuple(values["notes"])
        if "numbers" not in values:
            return cls(**known)
        pairs = zip(values["rows"], values["numbers"], strict=True)
        return cls(**{**known, "rows": [list(map(_cell_of, row, numbers)) for row, numbers in pairs]})


def _is_several(cell: object) -> bool:
    return isinstance(cell, tuple) and any(isinstance(part, Quantity) for part in cell)


def cell_words(cell: Any) -> Any:
    """Return a cell with its numbers in words."""
    if isinstance(cell, Quantity):
        return cell.words
    return "".join(str(cell_words(part)) for part in cell) if _is_several(cell) else cell


def _number_as_json(cell: Any) -> Any:
    """Return the numbers of a cell; None for a text, or for nothing."""
    if isinstance(cell, Quantity):
        return cell.as_json()
    if _is_several(cell):
        return [_number_as_json(part) or part for part in cell]
    number = None if isinstance(cell, bool) else plain_number(cell)
    return None if number is None or math.isnan(number) else quantity(number).as_json()


def _cell_of(words: Any, number: Any) -> Cell:
    """Return a cell by its words and its numbers."""
    if isinstance(number, list):
        return tuple(part if isinstance(part, str) else Quantity.of(part) for part in number)
    is_text = isinstance(words, str) and number is not None
    cell: Cell = Quantity.of(number) if is_text else words
    return cell


def plain(value: Any, where: str) -> Any:
    """Return a value as JSON has it: numbers of any library as Python's, None for one that is none (NaN), an infinite
    one as the text ``inf``. Raises ResultError for what JSON has no form for, named by ``where`` it is."""
    if value is None or isinstance(value, str | bool):
        return value
    number = plain_number(value)
    if number is not None:
        return None if math.isnan(number) else str(number) if math.isinf(number) else number
    if isinstance(value, Mapping):
        return {str(key): plain(inner, f"{where}: {key}") for key, inner in value.items()}
    if callable(listed := getattr(value, "tolist", None)):
        return plain(listed(), where)  # NumPy's arrays, and columns of pandas.
    if isinstance(value, Sequence) and not isinstance(value, bytes):
        return [plain(inner, f"{where}: {place + 1}") for place, inner in enumerate(value)]
    raise ResultError(f"{where}: is a {type(value).__name__}, which JSON has no form for; give it as text or a number")
