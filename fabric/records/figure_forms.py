"""Figures of cases as values: what a study shows, by form; :mod:`fabric.report.figures.forms` draws them.

A case is an entry of ``cases`` in a summary: ``phase``, ``title``, ``settings`` (words by name) and ``aside`` (numbers
by name, no metrics). Its numbers are these and the metrics of its phase. A case that is shown in parts, such as
sizes, has an entry per part.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from fabric.metrics import least_name
from fabric.records.palette import INK

CASES = "cases"
"""The key of a summary that lists the cases of its run."""
Numbers = Mapping[str, float]
"""A case's numbers by name; NaN for one that it does not have."""


@dataclass(frozen=True)
class Number:
    """A number of each case: by its name, or computed of its numbers; ``label``: in a legend, at an axis or over a
    panel; ``upto``: another number, up to which a thin line goes; ``marker``: of one that is a mark beside bars, as
    matplotlib names it, with its ``colour`` and ``size``; ``is_time``: seconds, on a logarithmic axis."""

    value: str | Callable[[Numbers], float]
    label: str
    factor: float = 1.0
    upto: str = ""
    marker: str = "_"
    colour: str = INK
    size: float = 20.0
    is_time: bool = False

    def of(self, numbers: Numbers) -> float:
        """Return it, times its factor; NaN if it is not known."""
        return self.factor * (self.value(numbers) if callable(self.value) else numbers[self.value])


def least_known(percentile: str) -> Callable[[Numbers], float]:
    """Return a percentile such as ``read.p99_s``, or the least that it can be where no more is known."""

    def value(numbers: Numbers) -> float:
        known = numbers[percentile]
        return numbers[least_name(percentile)] if math.isnan(known) else known

    return value


@dataclass(frozen=True)
class Level:
    """A line across a panel at a number of the first case that has it; ``at``: only across that place; ``of``: only in
    the panel of the number of that label; ``words``: the format of the number at each line, of which there is one for
    each value that the panel's cases have."""

    number: Number
    dash: str = ":"
    at: int | None = None
    of: str = ""
    words: str = ""


@dataclass(frozen=True)
class Places:
    """How places look. Of bars: inches of the figure for each; ``by``: the number by which cases are in order, from the
    largest on, else they are as they were played; ``are_counts``: whether numbers are whole. Of lines:
    ``are_numbers``: whether places are at the numbers that their texts are, else they are one after the other."""

    inches: float = 0.0
    by: str = ""
    are_counts: bool = False
    are_numbers: bool = False


@dataclass(frozen=True)
class Looks:
    """How a figure looks: inches, of each panel's height where there are rows of panels; ``legend``: columns of it;
    ``bar_words``: the format of the number at each bar, or of the whole at each stack, if it has one, with other
    numbers of its case by name; ``columns``: of panels, where rows of lines are too many for one below the other;
    ``x_form``: of numbers at the x axis of lines (:mod:`fabric.records.words`)."""

    width: float = 9.0
    height: float = 4.2
    legend: int = 4
    horizontal: bool = False
    log2_x: bool = False
    log_y: bool = False
    percent_y: bool = False
    most_y: float | None = None
    bar_words: str = ""
    columns: int = 0
    x_form: str = ""
    places: Places = field(default_factory=Places)


@dataclass(frozen=True)
class Bars:
    """Bars at places named by ``x``, in panels named by ``panels``, of colours named by ``colour``; each is a text with
    settings in braces, as ``{queueing}``. Without ``x`` the numbers are the places; without ``colour`` they are the
    colours, beside each other or ``stacked``. ``marks``: numbers that are shown as short lines."""

    name: str
    caption: str
    title: str
    numbers: Sequence[Number]
    x: str = ""
    colour: str = ""
    panels: str = ""
    labels: tuple[str, str] = ("", "")
    stacked: bool = False
    marks: Sequence[Number] = ()
    levels: Sequence[Level] = ()
    looks: Looks = field(default_factory=Looks)


@dataclass(frozen=True)
class Lines:
    """Lines over ``x``, a column of panels per number and a row of them per ``rows``, a line per ``line`` whose colour
    and dash are those of ``colour`` and ``dash``; each is a text with settings in braces, as ``{queueing}``, and so is
    the label of x. Over several runs points are medians, with their intervals."""

    name: str
    caption: str
    title: str
    numbers: Sequence[Number]
    x: str
    line: str
    rows: str = ""
    colour: str = ""
    dash: str = ""
    labels: tuple[str, str] = ("", "")
    levels: Sequence[Level] = ()
    looks: Looks = field(default_factory=Looks)


@dataclass(frozen=True)
class Bands:
    """Lines over ``x``, a number on a logarithmic axis: in each panel of ``panels`` a line per ``line`` and number.
    Shaded beneath it is the interval between the two numbers of ``band``, as far as cases have them. Lines of one
    ``colour`` differ in dash and marker; a number with a marker of its own is points without a line. Each is a text
    with settings in braces, and so is the label of a band, which is that of its first number. Over several runs points
    are medians, with their intervals."""

    name: str
    caption: str
    title: str
    numbers: Sequence[Number]
    x: str
    line: str = ""
    panels: str = ""
    colour: str = ""
    band: tuple[Number, Number] | None = None
    labels: tuple[str, str] = ("", "")
    levels: Sequence[Level] = ()
    looks: Looks = field(default_factory=Looks)


@dataclass(frozen=True)
class Scatter:
    """A trade-off: a point per case at ``y`` over each number of ``xs``, a panel for each, of a ``colour``, with
    ``words`` beside it; both are texts with settings in braces, as ``{queueing}``. More is better, of times less: steps
    join those points of a colour that no other one beats in both. A colour of one point is a large mark. A case that
    has one of the two alone is a dotted line, named ``alone``. Over several runs points are medians, with their
    intervals in both directions."""

    name: str
    caption: str
    title: str
    xs: Sequence[Number]
    y: Number
    colour: str = ""
    words: str = ""
    alone: str = "alone"
    looks: Looks = field(default_factory=Looks)

    @property
    def numbers(self) -> tuple[Number, ...]:
        """Those of which its cases have some."""
        return (*self.xs, self.y)


def frontier(places: Iterable[tuple[float, float]], more_x: bool = True) -> list[tuple[float, float]]:
    """Return those places that no other one beats, by x: more y is better and, if ``more_x``, more x, else less."""
    sign = 1 if more_x else -1
    best: list[tuple[float, float]] = []
    for x, y in sorted(set(places), key=lambda place: (-sign * place[0], -place[1])):
        if not best or y > best[-1][1]:
            best.append((x, y))
    return sorted(best)


Form = Bars | Lines | Bands | Scatter
