"""A table of a summary, as a run prints it and ``summary.json`` has it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fabric.errors import ResultError

_KEYS = ("title", "columns", "rows", "note")


@dataclass(frozen=True)
class SummaryTable:
    """What an experiment tells in rows: each has a cell per column, a text, a number or None for nothing.

    ``note``: what a reader must know of the figures, below the table. Raises ResultError for a title or a column that
    is no text, and for a row with more or fewer cells than there are columns.
    """

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]
    note: str | None = None

    def __post_init__(self) -> None:
        texts = {"title": self.title, **{f"column {place + 1}": text for place, text in enumerate(self.columns)}}
        if wrong := [name for name, text in texts.items() if not isinstance(text, str)]:
            raise ResultError(f"table {self.title!r}: its {wrong[0]} is {texts[wrong[0]]!r}, which is no text")
        for number, row in enumerate(self.rows, start=1):
            if len(row) != len(self.columns):
                have = f"{len(row)} cells, and there are {len(self.columns)} columns ({', '.join(self.columns)})"
                raise ResultError(f"table {self.title!r}: row {number} has {have}; give it one per column")

    def as_json(self) -> dict[str, Any]:
        """Return it as ``summary.json`` has it; without a note, if there is none."""
        note = {} if self.note is None else {"note": self.note}
        return {
            "title": self.title,
            "columns": list(self.columns),
            "rows": [list(row) for row in self.rows],
            **note,
        }

    @classmethod
    def of(cls, values: SummaryTable | Mapping[str, Any]) -> SummaryTable:
        """Return what :meth:`as_json` returned, or an experiment wrote like that. Raises ResultError."""
        if isinstance(values, SummaryTable):
            return values
        if missing := [key for key in _KEYS[:3] if key not in values]:
            raise ResultError(f"table {values.get('title')!r}: has no {missing[0]}; give it {', '.join(_KEYS[:3])}")
        if strange := [key for key in values if key not in _KEYS]:
            raise ResultError(f"table {values['title']!r}: has {strange[0]!r}; a table has {', '.join(_KEYS)}")
        return cls(**values)
