"""Figures of ports: throughput of lanes, queue depths, and the topology coloured by utilisation."""

from __future__ import annotations

import textwrap
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure, SubFigure
from matplotlib.lines import Line2D
from matplotlib.ticker import EngFormatter, LogLocator

from fabric.model.identity import ends_of_link
from fabric.model.lanes import LOSSLESS, SHARED, TRIMMED, Queueing
from fabric.records.palette import FAILURE, GREY, INK
from fabric.report.figures import topology
from fabric.report.figures.data import (
    QueueMap,
    Rates,
    busiest_port,
    directions,
    lane_rates,
    ports_into_hosts,
    queue_map,
    service_level_rates,
    utilisation,
)
from fabric.report.figures.style import (
    LEVEL_ORDER,
    format_decimal_size,
    framed,
    heat_map,
    level_colour,
    panel_grid,
    phase_label,
    times,
)
from fabric.results import Phase, Result
from fabric.units import format_rate

_COLUMNS = 3
_FRAMES_PER_RATE = 50
"""Over the time of how many full frames the rate of a port is taken: one more or less is 2 % of it."""
_LEAST_ROWS = 12
"""For so many rows a map has room, so that its scale can be read."""
_FEW_DECADES = 100
"""Within so much there are few powers of ten: a scale tells numbers between them, too."""
_LITTLE = 0.1
"""Of a link: what sends less at its most is not seen on a scale of the whole link."""
_FEW_SAMPLES = 10
"""A line of so few points shows them, too: one alone would not be seen."""


def throughput(result: Result) -> Figure | None:
    """Return the figure of what the whole fabric delivered, by service level, a panel a phase."""
    flows, operations, ports = (result.table(name) for name in ("flows", "operations", "ports"))
    if not flows.empty:
        title = "Delivered payload by service level, whole fabric"
        found = [(phase, service_level_rates(flows, operations, phase)) for phase in result.phases]
    else:
        title = "Delivered traffic by lane, whole fabric (ports of leaves to hosts)"
        receiving = ports_into_hosts(directions(result.fabric))
        found = [(phase, lane_rates(ports, phase, receiving)) for phase in result.phases]
    panels = [(phase, rates) for phase, rates in found if rates.by_name_bps]
    if not panels:
        return None
    with framed(result, title, *_panel_size(len(panels))) as (figure, body):
        axes = rate_panels(body, panels)
        _add_legend(body, panels, shares=False)
        axes[0].set_ylim(bottom=0)
    return figure


def port_throughput(result: Result) -> Figure | None:
    """Return the figure of the lanes at the run's busiest port, with their shares, a panel a phase.

    The port is the one that the run's tables are of (``busiest_port`` of its summary), if they are of one.
    """
    ports, links = result.table("ports"), directions(result.fabric)
    port = result.summary.get("busiest_port") or busiest_port(ports, links, result.phases)
    if port is None:
        return None
    rate_bps = links[port].rate_bps
    step_s = _FRAMES_PER_RATE * 8 * float(result.fabric["mtu_bytes"]) / rate_bps
    found = ((phase, lane_rates(ports, phase, [port], step_s)) for phase in result.phases)
    panels = [(phase, rates) for phase, rates in found if rates.by_name_bps]
    if not panels:
        return None  # It was busy between phases only, as in a calibration.
    shares = {str(lane): float(share) for lane, share in result.summary.get("lane_shares", {}).items()}
    title = f"Lanes at the run's busiest port, {links[port].label} ({format_rate(rate_bps)})"
    with framed(result, title, *_panel_size(len(panels))) as (figure, body):
        axes = rate_panels(body, panels, stacked=True)
        for panel, (phase, rates) in zip(axes, panels, strict=True):
            _draw_shares(panel, phase, rates, shares, rate_bps)
        for number, panel in enumerate(axes, start=1):
            _add_fraction_axis(panel, rate_bps, named=number % min(_COLUMNS, len(axes)) == 0)
        has_shares = any(_lanes_with_share(*panel, shares) for panel in panels)
        most_bps = axes[0].get_ylim()[1]
        if has_shares or most_bps >= _LITTLE * rate_bps:
            most_bps = max(most_bps, 1.05 * rate_bps)
        axes[0].set_ylim(0, most_bps)
        _add_legend(body, panels, shares=has_shares)
    return figure


def _panel_size(count: int) -> tuple[float, float]:
    rows = -(-count // _COLUMNS)
    return 11.0, 2.5 * rows + 0.45


def rate_panels(body: SubFigure, panels: list[tuple[Phase, Rates]], stacked: bool = False) -> list[Axes]:
    """Draw the rates of each phase in a panel of its own, all to one scale of rates, each over its own time.

    ``stacked``: one on top of the other, where several are parts of one link.
    """
    axes = panel_grid(body, len(panels), _COLUMNS, sharey=True)
    for panel, (phase, rates) in zip(axes, panels, strict=True):
        if stacked and len(rates.at_s) > 1:
            _draw_stacked(panel, rates)
        else:
            _draw_lines(panel, rates)
        panel.set_title(phase_label(phase))
        panel.set_xlim(0, phase.ended_s - phase.started_s)
        panel.xaxis.set_major_formatter(EngFormatter("s"))
    axes[0].yaxis.set_major_formatter(EngFormatter("bit/s"))
    for panel in axes:
        panel.set_xlabel("time in the phase")
    return axes


def _draw_lines(panel: Axes, rates: Rates) -> None:
    for name in _ordered(rates):
        marker = "o" if len(rates.at_s) < _FEW_SAMPLES else None
        panel.plot(rates.at_s, rates.by_name_bps[name], color=level_colour(name), marker=marker, markersize=4)


def _draw_stacked(panel: Axes, rates: Rates) -> None:
    """Draw rates as areas from the bottom up: the whole is what the link sent."""
    half_s = (rates.at_s[1] - rates.at_s[0]) / 2
    edges = np.append(rates.at_s - half_s, rates.at_s[-1] + half_s)
    floor = np.zeros_like(edges)
    for name in _ordered(rates):
        top = floor + np.append(rates.by_name_bps[name], rates.by_name_bps[name][-1])
        panel.fill_between(edges, floor, top, step="post", color=level_colour(name), linewidth=0)
        floor = top


def _ordered(rates: Rates) -> list[str]:
    known = [name for name in LEVEL_ORDER if name in rates.by_name_bps]
    return known + sorted(set(rates.by_name_bps) - set(known))


def _draw_shares(panel: Axes, phase: Phase, rates: Rates, shares: dict[str, float], rate_bps: float) -> None:
    """Mark at the right end how much of the link each lane is promised, stacked as the lanes are."""
    floor = 0.0
    for name in _lanes_with_share(phase, rates, shares):
        top = floor + shares[name] * rate_bps
        panel.plot([1.012, 1.012], [floor, top], color=level_colour(name), linewidth=5, clip_on=False,
                   solid_capstyle="butt", transform=panel.get_yaxis_transform())  # fmt: skip
        floor = top


def _lanes_with_share(phase: Phase, rates: Rates, shares: dict[str, float]) -> list[str]:
    return [name for name in _ordered(rates) if name in shares and Queueing(phase.queueing).has_lanes]


def _add_fraction_axis(panel: Axes, rate_bps: float, named: bool) -> None:
    right = panel.secondary_yaxis("right", functions=times(1 / rate_bps))
    right.yaxis.set_major_formatter(lambda value, _: f"{100 * value:.3g}%")
    right.tick_params(labelright=named)
    if named:
        right.set_ylabel("share of the link")


def _add_legend(body: SubFigure, panels: list[tuple[Phase, Rates]], shares: bool) -> None:
    names = {name for _, rates in panels for name in rates.by_name_bps}
    ordered = [name for name in LEVEL_ORDER if name in names] + sorted(names - set(LEVEL_ORDER))
    labels = {
        SHARED: "shared (one queue for all)",
        LOSSLESS: "lossless (one lane for all)",
        TRIMMED: "trimmed (all data)",
    }
    handles = [Line2D([], [], color=level_colour(name), label=labels.get(name, name)) for name in ordered]
    if shares:
        handles.append(Line2D([], [], color=GREY, linestyle="", marker="|", markersize=11, markeredgewidth=4,
                              label="configured shares, at the right"))  # fmt: skip
    body.legend(handles=handles, loc="outside lower center", ncols=len(handles))


def queue_depth(result: Result) -> Figure | None:
    """Return the heat map of queue depths by port and time; None if nothing ever queued."""
    found = queue_map(result.table("ports"), directions(result.fabric))
    if found is None:
        return None
    rows = max(_LEAST_ROWS, _row_count(found))
    with framed(result, "Queue depth by port", 11.0, 1.3 + 0.15 * rows) as (figure, body):
        axes = body.subplots()
        _draw_queue_map(axes, found)
        _mark_phases(axes, result.phases)
        _add_depth_bar(body, axes)
        axes.set_xlabel(_left_out_text(found))
    return figure


def _row_count(found: QueueMap) -> int:
    return len(found.rows) + len({row.kind for row in found.rows})


def _norm(found: QueueMap) -> LogNorm:
    """Return a scale down to a thousandth of the deepest queue: what is less does not matter beside it."""
    positive = found.depth_bytes[found.depth_bytes > 0]
    deepest = float(positive.max())
    return LogNorm(vmin=min(max(float(positive.min()), deepest / 1000), deepest / 10), vmax=deepest)


def _add_depth_bar(body: SubFigure, axes: Axes) -> None:
    bar = body.colorbar(axes.collections[0], ax=axes, pad=0.01, aspect=35, extend="min")
    bar.ax.yaxis.set_major_formatter(lambda value, _: format_decimal_size(value))
    low, high = axes.collections[0].get_clim()
    if high < _FEW_DECADES * low:
        bar.ax.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    bar.ax.yaxis.set_minor_formatter(lambda value, _: "")
    bar.set_label("deepest queue in the interval,\nall lanes together")


def _draw_queue_map(axes: Axes, found: QueueMap) -> None:
    """Draw rows from the top, each kind of direction under a line that names it."""
    cells: list[Any] = []
    labels: list[tuple[int, str]] = []
    kind = None
    for row, depth in zip(found.rows, found.depth_bytes, strict=True):
        if row.kind != kind:
            kind = row.kind
            axes.text(found.edges_s[0], len(cells) + 0.5, f" {kind}", fontsize=7.5, fontweight="bold", va="center")
            cells.append(np.full_like(depth, np.nan))
        labels.append((len(cells), row.label))
        cells.append(np.where(depth > 0, depth, np.nan))
    rows = np.arange(len(cells) + 1)
    axes.pcolormesh(found.edges_s, rows, np.vstack(cells), norm=_norm(found), cmap=heat_map(), rasterized=True)
    axes.set_yticks([number + 0.5 for number, _ in labels], [label for _, label in labels], fontsize=6.5)
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(max(_LEAST_ROWS, len(cells)), 0)
    axes.grid(visible=False)


def _mark_phases(axes: Axes, phases: list[Phase]) -> None:
    """Draw a line at each phase's start and its number over the map; the numbers are told above."""
    for number, phase in enumerate(phases, start=1):
        axes.axvline(phase.started_s, color=INK, linewidth=0.9)
        middle = (phase.started_s + phase.ended_s) / 2
        axes.annotate(
            str(number), (middle, 1), (0, 3), xycoords=("data", "axes fraction"), textcoords="offset points",
            ha="center", fontsize=8, color=INK, fontweight="bold",
        )  # fmt: skip
    told = [f"{number} {phase.title} [{phase.queueing}]" for number, phase in enumerate(phases, start=1)]
    axes.set_title(textwrap.fill("  ".join(told), 140), fontsize=7.5, color=INK, pad=16)


def _left_out_text(found: QueueMap) -> str:
    text = "time in the run (s)"
    if found.left_out and not found.left_out_queued:
        text += f"      [not shown: {found.left_out:,} ports that never queued]"
    elif found.left_out:
        text += (
            f"      [{found.left_out:,} ports with shallower queues not shown; "
            f"{found.left_out_queued:,} of them queued at all]"
        )
    return text


def topology_use(result: Result) -> Figure | None:
    """Return the topology coloured by each link's mean utilisation, a panel a phase."""
    ports, links = result.table("ports"), directions(result.fabric)
    panels = [(phase, shares) for phase in result.phases if (shares := utilisation(ports, links, phase))]
    if not panels:
        return None
    columns = 1 if len(panels) == 1 else 2
    rows = -(-len(panels) // columns)
    title = "Mean utilisation of links"
    with framed(result, title, 14.0, (5.0 if columns == 1 else 3.7) * rows + 0.7) as (figure, body):
        axes = panel_grid(body, len(panels), columns)
        for panel, (phase, shares) in zip(axes, panels, strict=True):
            cut = _cut_ports(result, phase)
            topology.draw_on(panel, result.fabric, shares, cut)
            busiest = max(shares, key=lambda port: shares[port])
            panel.set_title(f"{phase_label(phase, 60)}\nbusiest: {links[busiest].label}, {percent(shares[busiest])}")
            if cut:
                _name_cuts(panel, result, cut)
        topology.add_colour_bar(body, axes)
    return figure


def _cut_ports(result: Result, phase: Phase) -> set[str]:
    """Return the ports of links without carrier for some of a phase."""
    failures = result.table("failures")
    down = failures[(failures["phase"] == phase.name) & (failures["kind"].astype(str) == "link") & ~failures["up"]]
    return {port for link in down[down["done_s"].notna()]["link"].astype(str) for port in ends_of_link(link)}


def _name_cuts(panel: Axes, result: Result, cut: set[str]) -> None:
    """Say what is crossed out."""
    switches = sorted(topology.failed_switches(result.fabric, cut))
    links = f"{len(cut) // 2} link{'s' * (len(cut) > 2)} cut for some of the time"
    words = f"crossed out: {links}" + (f", all of {', '.join(switches)}" if switches else "")
    panel.text(1, 1, words, transform=panel.transAxes, ha="right", va="bottom", fontsize=7.5, color=FAILURE)


def percent(share: float) -> str:
    """Return a share in words; what is little is not none."""
    return f"{100 * share:.2g}%" if 0 < share < _LITTLE else f"{share:.0%}"
