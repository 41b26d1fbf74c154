"""Figures for papers: of a column's width, without the frame of a report, with text that stays text."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from fabric.errors import UsageError

FORMATS = ("png", "svg", "pdf")
USUAL_FORMATS = ("png", "svg")
"""What a run draws."""
_INCHES = {"in": 1.0, "cm": 1 / 2.54, "mm": 1 / 25.4, "pt": 1 / 72.27}
"""Of each unit; a point is TeX's."""
_LEAST_IN, _MOST_IN, _FRAMED_LEAST_IN = 2.0, 30.0, 6.0
SCREEN_FONT_PT = 9.0
_FONT_PT = 7.0
"""What papers have in figures, in points; some journals take 6, few less."""
_STACKED_BELOW = 0.7


@dataclass(frozen=True)
class Paper:
    """How figures are laid out. ``width_in``: inches, None for as wide as each is drawn for a screen. ``is_bare``:
    without title, badge and provenance, which a PDF then has among its properties.

    Raises UsageError for a width that no figure fits in.
    """

    width_in: float | None = None
    is_bare: bool = False

    def __post_init__(self) -> None:
        if self.width_in is None:
            return
        if not _LEAST_IN <= self.width_in <= _MOST_IN:
            raise UsageError(f"width of {self.width_in:g} in: use {_LEAST_IN:g} to {_MOST_IN:g} in, e.g. --width 3.3in")
        if not self.is_bare and self.width_in < _FRAMED_LEAST_IN:
            raise UsageError(
                f"width of {self.width_in:g} in: title and verdict take {_FRAMED_LEAST_IN:g} in or more; "
                "leave them to your caption, with --bare"
            )

    @property
    def is_usual(self) -> bool:
        """Whether figures are those of a report."""
        return self == SCREEN

    def scale(self, width_in: float) -> float:
        """Return what to multiply the width of a figure by that is ``width_in`` inches wide on a screen."""
        return 1.0 if self.width_in is None else self.width_in / width_in

    def text_scale(self, width_in: float) -> float:
        """Return what to multiply its text and lines by: they become those of a paper where it becomes narrower."""
        return _FONT_PT / SCREEN_FONT_PT if self.scale(width_in) < 1 else 1.0

    def is_stacked(self, width_in: float) -> bool:
        """Whether its panels stand one above the other, since beside each other they would be too narrow to read."""
        return self.scale(width_in) < _STACKED_BELOW


SCREEN = Paper()
"""That of reports."""
_paper: ContextVar[Paper] = ContextVar("paper", default=SCREEN)


def current_paper() -> Paper:
    """Return how figures are laid out that are drawn now."""
    return _paper.get()


@contextmanager
def on_paper(paper: Paper) -> Iterator[None]:
    """Lay out figures that are drawn in a block."""
    before = _paper.set(paper)
    try:
        yield
    finally:
        _paper.reset(before)


def parse_width_in(text: str) -> float:
    """Return a width such as ``3.3in``, ``84mm``, ``8.4cm`` or ``240pt`` in inches. Raises ValueError."""
    number, unit = text.strip()[:-2], text.strip()[-2:]
    try:
        return float(number) * _INCHES[unit]
    except (KeyError, ValueError):
        raise ValueError(f"{text!r} is not a width; use in, cm, mm or pt, e.g. 3.3in") from None
