"""Cells of tables: texts, and numbers with their unit and how they are written.

Experiments hand numbers over; :mod:`fabric.records.words` writes them. So that several runs can be merged, a result
keeps both (:mod:`fabric.records.summary_table`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from fabric.estimates import Estimate
from fabric.metrics import least_name, unit_of
from fabric.records.words import form_for, number_words, scale_of


class Bound(Enum):
    """Which side of a number its value may lie on, if the number is all that is known."""

    NONE = ""
    AT_LEAST = ">"
    AT_MOST = "<"


@dataclass(frozen=True)
class Quantity:
    """A number of a cell: its ``value`` in its ``unit``, NaN if nothing was measured, and its form
    (:mod:`fabric.records.words`). ``measure``: the name of the metric that it is, if it is one; ``low``, ``high``: an
    interval for it."""

    value: float
    form: str
    unit: str
    measure: str = ""
    bound: Bound = Bound.NONE
    low: float | None = None
    high: float | None = None

    @property
    def is_measured(self) -> bool:
        """Whether there is a number."""
        return not math.isnan(self.value)

    @property
    def words(self) -> str:
        """The number as a person reads it."""
        return number_words(self.value, self.form, self.bound.value, (self.low, self.high))

    def as_json(self) -> dict[str, Any]:
        """Return it as ``summary.json`` has it: what it does not have is missing."""
        value = None if math.isnan(self.value) else str(self.value) if math.isinf(self.value) else self.value
        more = {"measure": self.measure, "bound": self.bound.value, "low": self.low, "high": self.high}
        known = {key: one for key, one in more.items() if one not in ("", None)}
        return {"value": value, "unit": self.unit, "form": self.form, **known}

    @classmethod
    def of(cls, written: Mapping[str, Any]) -> Quantity:
        """Return what :meth:`as_json` returned."""
        value = math.nan if written["value"] is None else float(written["value"])
        return cls(**{**written, "value": value, "bound": Bound(written.get("bound", ""))})


Part = str | Quantity
Cell = None | bool | int | float | str | Quantity | tuple[Part, ...]
"""A text, a number, nothing, or numbers with words between them: ``(reads, " of ", all_reads)``."""
Row = list[Cell]


def quantity(value: float | None, form: str = "", measure: str = "") -> Quantity:
    """Return a number with its form; None is nothing measured. Raises ValueError for a form that is none."""
    unit = unit_of(measure) if measure else scale_of(form).unit
    return Quantity(math.nan if value is None else float(value), form, unit, measure)


def count_of(value: float | None) -> Quantity:
    """Return a whole number."""
    return quantity(value, ".0f")


def measured(
    values: Mapping[str, float], name: str, form: str | None = None, otherwise: float | None = None
) -> Quantity:
    """Return a number by the name of its measure, which has its unit at its end; of a percentile such as
    ``read.p99_s`` of which only ``read.p99_at_least_s`` is known, at least that; ``otherwise`` if there is none."""
    form = form_for(name) if form is None else form
    known = values.get(name)
    if known is not None:
        return quantity(known, form, name)
    if (least := values.get(least_name(name))) is not None:
        return Quantity(float(least), form, unit_of(name), name, Bound.AT_LEAST)
    return quantity(otherwise, form, name)


def joined(cells: Iterable[Cell], between: str = ", ") -> Cell:
    """Return texts and numbers as one cell, with words between them."""
    parts: list[Part] = []
    for cell in cells:
        parts += [between] if parts and between else []
        parts += cell if isinstance(cell, tuple) else [cell if isinstance(cell, Quantity) else str(cell)]
    return tuple(parts) if any(isinstance(part, Quantity) for part in parts) else "".join(map(str, parts))


def estimated(found: Estimate | None, form: str) -> Quantity:
    """Return a median with its interval."""
    if found is None:
        return quantity(None, form)
    return Quantity(found.median, form, scale_of(form).unit, low=found.low, high=found.high)


def ratio(found: Mapping[str, float], base: Mapping[str, float], name: str, form: str = ".2f x") -> Quantity:
    """Return how many times a measure's value in another phase its value is, with a bound if one of the two is at
    least what it says; NaN if nobody knows."""
    value, other = measured(found, name), measured(base, name)
    is_known, other_is_known = (one.bound is Bound.NONE for one in (value, other))
    if not (value.is_measured and other.is_measured and other.value) or not (is_known or other_is_known):
        return quantity(None, form)
    bound = Bound.NONE if is_known and other_is_known else Bound.AT_MOST if is_known else Bound.AT_LEAST
    return Quantity(value.value / other.value, form, "1", bound=bound)
