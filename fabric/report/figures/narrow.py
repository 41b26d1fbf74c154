"""Figures that are narrower than on a screen: panels one above the other, smaller text, legends in fewer columns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure
from matplotlib.legend import Legend
from matplotlib.lines import Line2D
from matplotlib.text import Text
from matplotlib.ticker import AutoLocator, MaxNLocator

_ROW_GROWS = 0.85
"""Of a panel's height, how much higher a figure becomes as another is put below it: both share labels and legend."""
_PANEL_SHRINKS = 0.78
"""A panel's height, as its text becomes smaller."""
_MOST_TICKS = 5
_EM_PER_CHARACTER, _EM_PER_HANDLE = 0.55, 5.0
"""How wide an entry of a legend is, in the size of its text."""


def stack_panels(figure: Figure, body: SubFigure, font_pt: float) -> None:
    """Make ``subplots`` and ``subfigures`` of ``body`` put panels below each other, and the figure as much higher.

    Legends have as many columns as fit with text of ``font_pt``.
    """
    width_in, height_in = figure.get_size_inches()
    figure.set_size_inches(width_in, height_in * _PANEL_SHRINKS)
    figure.legend = _fitting(figure.legend, width_in, font_pt)  # type: ignore[method-assign]
    _stack(figure, body, font_pt)


def _stack(figure: Figure, body: SubFigure, font_pt: float) -> None:
    beside, parts_beside = body.subplots, body.subfigures

    def below(nrows: int = 1, ncols: int = 1, *, squeeze: bool = True, **options: Any) -> Any:
        if ncols == 1:
            return beside(nrows, 1, squeeze=squeeze, **options)
        _grow(figure, ncols)
        options.pop("width_ratios", None)
        heights = options.pop("height_ratios", None)
        if heights is not None:
            options["height_ratios"] = np.repeat(heights, ncols)
        shared = {name: options.pop(name, False) for name in ("sharex", "sharey")}
        options |= {name: value if value in (True, "all") else False for name, value in shared.items()}
        grid: Any = beside(nrows * ncols, 1, squeeze=False, **options).reshape(nrows, ncols)
        return grid.squeeze() if squeeze else grid

    def parts_below(nrows: int = 1, ncols: int = 1, *, squeeze: bool = True, **options: Any) -> Any:
        _grow(figure, ncols)
        options.pop("width_ratios", None)
        parts = np.atleast_1d(parts_beside(nrows * ncols, 1, **options))
        for part in parts:
            _stack(figure, part, font_pt)
        grid = parts.reshape(nrows, ncols)
        return (grid.squeeze() if grid.size > 1 else grid.item()) if squeeze else grid

    body.subplots = below  # type: ignore[method-assign]
    body.subfigures = parts_below  # type: ignore[method-assign, assignment]
    body.legend = _fitting(body.legend, figure.get_size_inches()[0], font_pt)  # type: ignore[method-assign]


def _grow(figure: Figure, columns: int) -> None:
    """Make room for as many panels below each other as there were columns."""
    width_in, height_in = figure.get_size_inches()
    figure.set_size_inches(width_in, height_in * (1 + _ROW_GROWS * (columns - 1)))


def _fitting(legend: Callable[..., Legend], width_in: float, font_pt: float) -> Callable[..., Legend]:
    """Return ``legend`` with as many columns as fit, at most as many as it is asked for."""

    def fitted(*args: Any, **options: Any) -> Legend:
        made = legend(*args, **options)
        longest = max((len(text.get_text()) for text in made.get_texts()), default=0)
        column_in = (longest * _EM_PER_CHARACTER + _EM_PER_HANDLE) * font_pt / 72
        wanted = int(options.pop("ncols", options.pop("ncol", 1)))
        fits = max(1, int(width_in / column_in))
        if fits >= wanted:
            return made
        made.remove()
        return legend(*args, **options, ncols=fits)

    return fitted


def make_text_smaller(figure: Figure, scale: float) -> None:
    """Multiply the sizes of text and lines, and give legends that are too wide fewer columns."""
    if scale == 1:
        return
    figure.style = {**figure.style, "font.size": figure.style["font.size"] * scale}  # type: ignore[attr-defined]
    for axes in figure.findobj(Axes):
        assert isinstance(axes, Axes)
        axes.tick_params(labelsize=_tick_size(axes) * scale)
        if isinstance(axes.xaxis.get_major_locator(), AutoLocator):
            axes.xaxis.set_major_locator(MaxNLocator(_MOST_TICKS))
    ticks = {text for axes in figure.findobj(Axes) for text in _tick_labels(axes)}
    for text in figure.findobj(Text):
        assert isinstance(text, Text)
        if text not in ticks:
            text.set_fontsize(float(text.get_fontsize()) * scale)
    for line in figure.findobj(Line2D):
        assert isinstance(line, Line2D)
        line.set_linewidth(line.get_linewidth() * scale)
        line.set_markersize(line.get_markersize() * scale)


def _tick_labels(axes: Any) -> list[Text]:
    return [label for axis in (axes.xaxis, axes.yaxis) for label in axis.get_ticklabels(which="both")]


def _tick_size(axes: Axes) -> float:
    labels = _tick_labels(axes)
    return float(labels[0].get_fontsize()) if labels else float(mpl.rcParams["font.size"])
