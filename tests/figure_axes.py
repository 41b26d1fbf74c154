"""What each axis of a figure must say: what it shows in words, and its unit, at the axis or at its numbers."""

from __future__ import annotations

import re
from collections.abc import Iterator

from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure, FigureBase
from matplotlib.text import Text

UNIT = re.compile(r"\(([^()]+)\)|\bnumber of\b")
"""``time of a step (ms)``, ``slowdown (times alone)``, or what is counted."""
WORDS = re.compile(r"[^\W\d_]{3,}")
NUMBER = re.compile(r"^-?[\d.,]+(?:e-?\d+)?$|^\$\\mathdefault\{-?(?:[\d.,]+|10\^\{-?\d+\})\}\$$")
_MINUS = "\N{MINUS SIGN}"
_DECIMAL = re.compile(r"(?<![\w.,:])\d[\d,]*\.\d+")
_MOST_DIGITS = 3


def axis_faults(figure: Figure) -> list[str]:
    """Return what is wrong with the axes of a figure."""
    figure.canvas.draw()
    return [fault for axes in figure.findobj(Axes) if isinstance(axes, Axes) for fault in _faults_of(axes)]


def _faults_of(axes: Axes) -> Iterator[str]:
    if not axes.get_visible() or not axes.axison:
        return
    title = axes.get_title(loc="left")
    for name, axis in (("x", axes.xaxis), ("y", axes.yaxis)):
        ticks = _tick_words(axis)
        label = axis.get_label().get_text() if axis.get_label().get_visible() else ""
        label = label or _label_of_figure(axes, name)
        if not ticks or not axis.get_visible():
            continue
        where = f"{title!r}, {name} axis {label!r}, numbers {ticks[:4]}"
        if all(map(NUMBER.match, ticks)) and not UNIT.search(label):
            yield f"no unit: {where}"
        has_numbers = any(any(map(str.isdigit, one)) for one in ticks)
        if has_numbers and not WORDS.search(label + title) and not _are_names(ticks):
            yield f"no words: {where}"
        if "_" in label:
            yield f"a name of the program: {where}"


def _tick_words(axis: Axis) -> list[str]:
    found = [one.get_text() for one in axis.get_ticklabels() if one.get_visible()]
    return [one.replace(_MINUS, "-") for one in found if one]


def _are_names(ticks: list[str]) -> bool:
    """Whether ticks are names, such as hosts, rather than numbers with units."""
    return all(WORDS.search(one) or re.match(r"[a-z]+\d", one) for one in ticks)


def _label_of_figure(axes: Axes, name: str) -> str:
    """Return the label that the figure has for the axes of all panels."""
    place: FigureBase | None = axes.figure
    while place is not None:
        words: Text | None = getattr(place, f"_sup{name}label", None)
        if words is not None and words.get_text():
            return words.get_text()
        place = place.figure if place is not getattr(place, "figure", None) else None
    return ""


def precision_faults(figure: Figure) -> list[str]:
    """Return texts of a figure with numbers of more than three digits, some of which are behind the point."""
    texts = [one.get_text() for one in figure.findobj(Text) if isinstance(one, Text) and one.get_visible()]
    return [text for text in texts if any(_digits(one) > _MOST_DIGITS for one in _DECIMAL.findall(text))]


def _digits(number: str) -> int:
    return len(re.sub(r"[.,]", "", number).lstrip("0"))
