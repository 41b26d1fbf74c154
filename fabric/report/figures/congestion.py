"""Figures of congestion in lossless phases: trees drawn on the topology, and the size of each root's tree over time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import zip_longest
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import BoundaryNorm, Normalize
from matplotlib.figure import Figure, SubFigure
from matplotlib.lines import Line2D
from matplotlib.patches import FancyArrowPatch

from fabric.model.identity import node_of_port
from fabric.records.palette import INK, ROOT
from fabric.report.figures import topology
from fabric.report.figures.data import directions
from fabric.report.figures.raster import Panel, RasterRow, draw_panels
from fabric.report.figures.style import framed, heat_map, level_place, panel_grid, phase_label
from fabric.results import Phase, Result
from fabric.stalls.congestion_trees import CongestionTree, PortLane, RootKind
from fabric.stalls.intervals import LinkDirection, Moment, StalledTime, blocked_hosts, moments, stalled_time

Floats = npt.NDArray[np.float64]
ROOT_COLOUR = ROOT
_ROOT_WIDTH = 1.8
PHASES_SHOWN = 6
_PANELS = 6
_ROOTS_SHOWN = 25
_HOST_ROLES = ("compute", "storage")


@dataclass(frozen=True)
class Congested:
    """A lossless phase that had a congestion tree: what its ports did, and every interval between samples."""

    phase: Phase
    time: StalledTime
    moments: tuple[Moment, ...]

    @property
    def edges_s(self) -> Floats:
        """When intervals begin and end, in seconds since the phase began."""
        return self.time.sampled_s - self.phase.started_s


@lru_cache(maxsize=1)
def congested_phases(result: Result) -> tuple[Congested, ...]:
    """Return the phases that had a congestion tree; those with the largest, if they are more than PHASES_SHOWN."""
    wires = {port: LinkDirection(one.peer, one.rate_bps) for port, one in directions(result.fabric).items()}
    stalls, ports, waits = (result.table(name) for name in ("stalls", "ports", "waits"))
    found = []
    for phase in result.phases:
        time = stalled_time(stalls, ports, wires, phase)
        if time is not None:
            found.append(Congested(phase, time, tuple(moments(time, waits, wires))))
    size_of = {one.phase.name: max(map(_size, one.moments)) for one in found}
    shown = sorted(found, key=lambda one: -size_of[one.phase.name])[:PHASES_SHOWN]
    return tuple(one for one in found if one in shown and size_of[one.phase.name])


def lane_places(phases: Sequence[Congested]) -> dict[str, int]:
    """Return the place of each lane in figures: those of the first phase first, each phase's in their usual order."""
    names = (sorted({lane.lane for lane in one.time.lanes}, key=level_place) for one in phases)
    return {name: place for place, name in enumerate(dict.fromkeys(name for found in names for name in found))}


def _size(moment: Moment) -> int:
    return len({port for tree in moment.trees for port in tree.ports})


# On the topology -----------------------------------------------------------------------------------------------------


def trees_on_topology(result: Result) -> Figure | None:
    """Return trees at some moments, drawn on the topology; None if there was none."""
    phases = congested_phases(result)
    if not phases:
        return None
    shown = _shown(phases)
    detailed = topology.lay_out(result.fabric).detailed
    height = (4.0 if detailed else 3.6) * -(-len(shown) // 2) + 0.9
    title = "Congestion trees: stalled lanes, and the port they wait for"
    with framed(result, title, 14.0, height) as (figure, body):
        panels = panel_grid(body, len(shown), 2)
        for panel, (phase, moment) in zip(panels, shown, strict=True):
            _draw_moment(panel, result.fabric, moment)
            panel.set_title(f"{phase_label(phase, 70)}\n{_moment_words(result.fabric, phase, moment)}")
        _add_key(body, panels, detailed)
    return figure


def _shown(phases: Sequence[Congested]) -> list[tuple[Phase, Moment]]:
    """Return what to draw, in rows of two: phase by phase, but two phases side by side."""
    count = max(1, _PANELS // len(phases))
    found = [[(one.phase, moment) for moment in _largest(one, count)] for one in phases]
    if len(found) == 2:
        return [one for row in zip_longest(*found) for one in row if one is not None]
    return [one for column in found for one in column]


def _largest(one: Congested, count: int) -> list[Moment]:
    """Return the interval with the most ports in trees of each of ``count`` equal parts of a phase, if it has any."""
    parts = np.array_split(np.arange(len(one.moments)), count)
    found = [max((one.moments[place] for place in part), key=_size) for part in parts if len(part)]
    return [moment for moment in found if moment.trees]


def _hosts(fabric: Mapping[str, Any]) -> set[str]:
    return {node["name"] for node in fabric["nodes"] if node["role"] in _HOST_ROLES}


def _moment_words(fabric: Mapping[str, Any], phase: Phase, moment: Moment) -> str:
    hosts = set[str]().union(*(blocked_hosts(tree, _hosts(fabric)) for tree in moment.trees))
    largest = moment.trees[0]
    trees = "1 tree" if len(moment.trees) == 1 else f"{len(moment.trees)} trees"
    return (
        f"after {moment.at_s - phase.started_s:.3g} s: {trees}, the largest with {len(largest.ports)} ports, "
        f"root {largest.root}{' (a cycle)' if largest.kind is RootKind.CYCLE else ''}; "
        f"{len(hosts)} host{'' if len(hosts) == 1 else 's'} blocked"
    )


def _draw_moment(panel: Axes, fabric: Mapping[str, Any], moment: Moment) -> None:
    """Draw an arrow the way packets go for each port that stands still, in red for those at roots."""
    topology.draw_on(panel, fabric, {})
    layout, links = topology.lay_out(fabric), directions(fabric)
    share_on: dict[Arrow, float] = {}  # Hosts that are drawn as a group share one arrow, the stillest's.
    for lane, share in sorted(moment.blocked.items(), key=lambda item: item[1]):
        share_on[layout.of_port[lane.port], layout.of_port[links[lane.port].peer]] = share
    roots = {(layout.of_port[port], layout.of_port[links[port].peer]) for port in moment.root_ports}
    for arrow, share in share_on.items():
        if arrow not in roots:
            _draw_arrow(panel, arrow, heat_map()(share), 1.0 + 2.0 * share)
    for arrow in sorted(roots):
        _draw_arrow(panel, arrow, ROOT_COLOUR, _ROOT_WIDTH)
    if layout.detailed:
        blocked = {lane.port for lane in moment.blocked if layout.role_of[node_of_port(lane.port)] in _HOST_ROLES}
        x, y = zip(*(layout.of_port[port] for port in blocked), strict=True) if blocked else ((), ())
        panel.scatter(x, y, s=75, facecolors="none", edgecolors=INK, zorder=5)


Arrow = tuple[topology.Point, topology.Point]


def _draw_arrow(panel: Axes, arrow: Arrow, colour: Any, width: float) -> None:
    """Draw an arrow bent to one side, so that both directions of a link are seen."""
    panel.add_patch(
        FancyArrowPatch(
            *arrow, arrowstyle="-|>", connectionstyle="arc3,rad=0.08", mutation_scale=5 + 2.2 * width,
            shrinkA=3, shrinkB=3, color=colour, linewidth=width, zorder=2,
        )
    )  # fmt: skip


def _add_key(body: SubFigure, panels: Sequence[Axes], detailed: bool) -> None:
    """Add the bar of colours, and what red and rings mean; rings are drawn where hosts are."""
    bar = body.colorbar(
        ScalarMappable(Normalize(0, 1), heat_map()), ax=list(panels), location="bottom", shrink=0.4, aspect=40, pad=0.02
    )
    bar.set_label("fraction of the interval between two samples for which the most stalled lane of a link was stalled")
    bar.ax.xaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
    ring = {"marker": "o", "linestyle": "", "markersize": 9, "markerfacecolor": "none", "color": INK}
    handles = [
        Line2D([], [], color=ROOT_COLOUR, linewidth=_ROOT_WIDTH, label="root: the full port that others wait for"),
        Line2D([], [], label="host that cannot send: back-pressure has reached its NIC", **ring),  # type: ignore[arg-type]
    ]
    body.legend(handles=handles[: 1 + detailed], loc="outside lower center", ncols=2)


# Over time -----------------------------------------------------------------------------------------------------------


def tree_sizes(result: Result) -> Figure | None:
    """Return the sizes of trees over time, a row a root; None if there was none."""
    phases, links = congested_phases(result), directions(result.fabric)
    if not phases:
        return None
    sizes = _sizes_by_root(phases)
    ranked = sorted(sizes, key=lambda root: (-sizes[root], root))
    roots = sorted(ranked[:_ROOTS_SHOWN], key=lambda root: (lane_places(phases)[root.lane], root))
    cells = [_size_cells(one, roots) for one in phases]
    with framed(result, "Size of congestion trees over time, by root", 13.0, 2.6 + 0.17 * len(roots)) as (figure, body):
        panels = [Panel(one.phase, one.edges_s, found) for one, found in zip(phases, cells, strict=True)]
        rows = [RasterRow(links[root.port].label, root.lane) for root in roots]
        least, most = (int(reach(np.concatenate(cells, axis=None))) for reach in (np.nanmin, np.nanmax))
        bar = draw_panels(body, panels, rows, BoundaryNorm(np.arange(least - 0.5, most + 1.5), 256))
        bar.set_label("number of ports in the tree")
        bar.set_ticks(sorted({round(tick) for tick in np.linspace(least, most, 8)}))
        if left_out := len(ranked) - len(roots):
            body.supxlabel(f"time in the phase (s)      [{left_out} roots with smaller trees not shown]", fontsize=9)
    return figure


def _sizes_by_root(phases: Sequence[Congested]) -> dict[PortLane, float]:
    """Return the ports of each root's trees, summed over time."""
    found: dict[PortLane, float] = {}
    for one in phases:
        for moment in one.moments:
            for tree in moment.trees:
                found[tree.root] = found.get(tree.root, 0.0) + len(tree.ports) * moment.interval_s
    return found


def _size_cells(one: Congested, roots: Sequence[PortLane]) -> Floats:
    """Return the ports in the tree of each root (rows) in each interval (columns), NaN where there is none."""

    def size(trees: Sequence[CongestionTree], root: PortLane) -> float:
        return next((float(len(tree.ports)) for tree in trees if tree.root == root), np.nan)

    return np.array([[size(moment.trees, root) for moment in one.moments] for root in roots])
