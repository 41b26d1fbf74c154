"""The figure of when each link and lane of lossless phases was stalled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
from matplotlib.colors import Normalize
from matplotlib.figure import Figure

from fabric.model.identity import split_port
from fabric.report.figures.congestion import Congested, congested_phases, lane_places
from fabric.report.figures.data import Direction, directions, kind_order
from fabric.report.figures.raster import Panel, RasterRow, draw_panels
from fabric.report.figures.style import framed
from fabric.results import Result
from fabric.stalls.congestion_trees import PortLane

_ROWS = 40
_LEAST_SHOWN = 0.01


def stalled_map(result: Result) -> Figure | None:
    """Return the map of links and lanes over time, coloured by how long they stood still; None if none was blocked."""
    phases, links = congested_phases(result), directions(result.fabric)
    if not phases:
        return None
    totals = _stalled_s(phases)
    ranked = sorted(totals, key=lambda lane: (-totals[lane], lane))
    lanes = sorted(ranked[:_ROWS], key=lambda lane: (lane_places(phases)[lane.lane], *_order(links, lane)))
    rows = [RasterRow(links[lane.port].label, f"{lane.lane}, {links[lane.port].kind}") for lane in lanes]
    height = 2.2 + 0.15 * (len(rows) + len({row.group for row in rows}))
    with framed(result, "Stalled time of links and lanes", 13.0, height) as (figure, body):
        panels = [Panel(one.phase, one.edges_s, _cells(one, lanes)) for one in phases]
        bar = draw_panels(body, panels, rows, Normalize(0, 1))
        bar.set_label("part of the interval between two samples")
        bar.ax.yaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
        if left_out := len(ranked) - len(lanes):
            body.supxlabel(
                f"time in the phase (s)      [{left_out} lanes that were stalled for less not shown]", fontsize=9
            )
    return figure


def _stalled_s(phases: Sequence[Congested]) -> dict[PortLane, float]:
    """Return how long each lane stood still in all phases; only those that did."""
    found: dict[PortLane, float] = {}
    for one in phases:
        for lane, stalled_s in zip(one.time.lanes, one.time.intervals_s @ one.time.stalled, strict=True):
            if stalled_s > 0:
                found[lane] = found.get(lane, 0.0) + float(stalled_s)
    return found


def _order(links: Mapping[str, Direction], lane: PortLane) -> tuple[int, str, int]:
    return (kind_order(links[lane.port].kind), *split_port(lane.port))


def _cells(one: Congested, lanes: Sequence[PortLane]) -> npt.NDArray[np.float64]:
    """Return the part of each interval that lanes stood still; NaN where that is nothing, or the phase has no such."""
    places = one.time.place_of_lane
    nothing = np.zeros(len(one.moments))
    found = np.array([one.time.stalled[:, places[lane]] if lane in places else nothing for lane in lanes])
    return np.where(found >= _LEAST_SHOWN, found, np.nan)
