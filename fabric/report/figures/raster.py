"""Maps of rows over time, one panel per phase: how full or stalled each of many ports was, and when."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.colorbar import Colorbar
from matplotlib.colors import Normalize
from matplotlib.figure import SubFigure

from fabric.report.figures.style import heat_map, phase_label
from fabric.results import Phase

Floats = npt.NDArray[np.float64]
_NARROWEST = 0.12
_TITLE_CHARACTERS = 110


@dataclass(frozen=True)
class RasterRow:
    """A row's name, and the group that it is in: groups are told above their first row, unless they have no name."""

    label: str
    group: str


@dataclass(frozen=True)
class Panel:
    """A phase: ``cells[row, bin]`` is from ``edges_s[bin]`` to the next, in seconds since it began. NaN is white."""

    phase: Phase
    edges_s: Floats
    cells: Floats


def draw_panels(body: SubFigure, panels: Sequence[Panel], rows: Sequence[RasterRow], norm: Normalize) -> Colorbar:
    """Draw panels as wide as their phases are long, rows from the top, and return the bar that explains the colours.

    Rows of a group follow each other.
    """
    longest = max(panel.edges_s[-1] for panel in panels)
    widths = [max(float(panel.edges_s[-1] / longest), _NARROWEST) for panel in panels]
    axes = body.subplots(1, len(panels), sharey=True, squeeze=False, width_ratios=widths)[0]
    places = _places(rows)
    for one, panel, width in zip(axes, panels, widths, strict=True):
        cells = np.full((max(places.values()) + 1, panel.cells.shape[1]), np.nan)
        cells[list(places.values())] = panel.cells
        edges = np.arange(len(cells) + 1)
        mesh = one.pcolormesh(panel.edges_s, edges, cells, norm=norm, cmap=heat_map(), rasterized=True)
        characters = round(_TITLE_CHARACTERS * width / sum(widths))
        one.set_title(textwrap.fill(phase_label(panel.phase, 200), max(characters, 14)), fontsize=8)
        one.grid(visible=False)
    _name_rows(axes[0], rows, places)
    body.supxlabel("time in the phase (s)", fontsize=9)
    return body.colorbar(mesh, ax=list(axes), pad=0.01, aspect=35)


def _places(rows: Sequence[RasterRow]) -> dict[int, int]:
    """Return the line that each row is drawn in: a group's name has one of its own."""
    places, line = {}, 0
    for group, found in groupby(range(len(rows)), key=lambda number: rows[number].group):
        line += bool(group)
        for number in found:
            places[number] = line
            line += 1
    return places


def _name_rows(axes: Axes, rows: Sequence[RasterRow], places: dict[int, int]) -> None:
    axes.set_yticks([place + 0.5 for place in places.values()], [row.label for row in rows], fontsize=6.5)
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(max(places.values()) + 1, 0)
    named: Any = {row.group: places[number] for number, row in reversed(list(enumerate(rows))) if row.group}
    for group, place in named.items():
        axes.text(
            0.005, place - 0.5, group, fontsize=7.5, fontweight="bold", va="center",
            transform=axes.get_yaxis_transform(),
        )  # fmt: skip
