"""Draws a fabric from its ``fabric.json``: zones side by side, spines over leaves over hosts, inter-zone on top.

Links between switches of one row are arcs over those between them. Nodes have the names of the user's own, if any.

Small fabrics show every host by name, and each NIC of a host that has several; large ones show, under each leaf, how
many hosts hang on it. Parallel links are lines beside each other, unless there are very many. With utilisation, each
half of a link has the colour of what its near end sends, as network weather maps do; links that were cut, and switches
all whose links were, are crossed out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.collections import LineCollection
from matplotlib.colors import Normalize

from fabric.errors import UsageError
from fabric.model.identity import Role, node_of_port, split_port
from fabric.records.palette import FAILURE, GREY, HOSTS, INK, SWITCH
from fabric.report.figures.style import ShownFigure, heat_map
from fabric.units import format_rate

FORMATS = (".svg", ".png", ".pdf")
MAX_NAMED_HOSTS = 64
"""NICs up to which each is drawn; beyond, a leaf shows counts."""
COLOUR_BAR_LABEL = "utilisation of a link, each half by the traffic that its near end sends"
_RASTER_FROM_SEGMENTS = 1500
_ZONE_GAP = 0.8
_ARC, _HIGHEST_ARC, _ARC_STEPS = 0.14, 0.9, 12
"""How high an arc is per width of a leaf that it spans, at most, and of how many pieces half of it is."""
_BESIDE, _WIDEST = 0.07, 0.6
"""How far parallel links are from each other, and the outermost two at most, in widths of a leaf."""
_LEAVES = 0.15
"""Of half a link, how long parallel ones take to be as far from each other."""
_MOST_APART = 400
"""Links of a fabric up to which parallel ones are drawn beside each other."""
_BAR, _BARS_FROM = 0.62, 12
"""How wide a leaf's bar is, of the leaf's width, in fabrics of at least so many leaves; no wider in smaller ones."""
_LEVELS = {"compute": 0.0, "storage": 0.0, "leaf": 1.0, "spine": 2.3, "core": 3.3, "inter_zone": 3.4}
_ROLE_WORDS = {  # Of one and of several.
    "leaf": ("leaf", "leaves"),
    "spine": ("spine", "spines"),
    "core": ("core", "cores"),
    "inter_zone": ("inter-zone", "inter-zone"),
}
_NODE_COLOURS: dict[str, str] = {role.name.lower(): HOSTS.get(role, SWITCH) for role in Role}
_HOST_ROLES = ("compute", "storage")
Point = tuple[float, float]


@dataclass(frozen=True)
class FigureLayout:
    """Where things are drawn. ``of_port`` holds a point for every port; hosts of a group share theirs. ``label_of``
    holds the names of the user's own."""

    of_switch: dict[str, Point]
    of_port: dict[str, Point]
    role_of: dict[str, str]
    groups: dict[str, Counter[str]]
    zones: dict[int, tuple[float, float]]
    detailed: bool
    label_of: dict[str, str]

    @property
    def width(self) -> float:
        """From the left end of the first zone to the right end of the last; a leaf is 1 wide."""
        return max(right for _, right in self.zones.values())


def lay_out(fabric: Mapping[str, Any]) -> FigureLayout:
    """Return where to draw a fabric's nodes."""
    roles = {node["name"]: str(node["role"]) for node in fabric["nodes"]}
    zones = _zone_spans(fabric)
    switches = _switch_points(fabric, zones)
    attached = _attached(fabric, roles)
    detailed = sum(len(ports) for ports in attached.values()) <= MAX_NAMED_HOSTS
    ports = {port: switches[node_of_port(port)] for port in _ports(fabric) if node_of_port(port) in switches}
    for leaf, hanging in attached.items():
        ports.update(_host_points(switches[leaf], hanging, detailed))
    groups = {leaf: Counter(roles[node_of_port(port)] for port in hanging) for leaf, hanging in attached.items()}
    labels = {node["name"]: str(node["shown"]) for node in fabric["nodes"] if "shown" in node}
    return FigureLayout(switches, ports, roles, groups, zones, detailed, labels)


def _ports(fabric: Mapping[str, Any]) -> list[str]:
    return [link[end] for link in fabric["links"] for end in ("a", "b")]


def _zone_spans(fabric: Mapping[str, Any]) -> dict[int, tuple[float, float]]:
    leaves = Counter(node["zone"] for node in fabric["nodes"] if node["role"] == "leaf")
    spans, left = {}, 0.0
    for zone in sorted(leaves):
        spans[zone] = (left, left + leaves[zone])
        left += leaves[zone] * (1 + 0.08) + _ZONE_GAP
    return spans


def _switch_points(fabric: Mapping[str, Any], zones: Mapping[int, tuple[float, float]]) -> dict[str, Point]:
    whole = (min(left for left, _ in zones.values()), max(right for _, right in zones.values()))
    rows: dict[tuple[str, int | None], list[str]] = {}
    for node in fabric["nodes"]:
        if node["role"] not in _HOST_ROLES:
            rows.setdefault((node["role"], node["zone"]), []).append(node["name"])
    points = {}
    for (role, zone), names in rows.items():
        left, right = whole if zone is None else zones[zone]
        if role == "inter_zone":  # A few switches across the middle third.
            left, right = left + (right - left) / 3, right - (right - left) / 3
        for number, name in enumerate(names):
            points[name] = (left + (right - left) * (number + 0.5) / len(names), _LEVELS.get(role, 3.0))
    return points


def _attached(fabric: Mapping[str, Any], roles: Mapping[str, str]) -> dict[str, list[str]]:
    """Return the host ports that hang on each leaf, compute first."""
    found: dict[str, list[str]] = {}
    for link in fabric["links"]:
        for port, peer in ((link["a"], link["b"]), (link["b"], link["a"])):
            if roles[node_of_port(port)] in _HOST_ROLES:
                found.setdefault(node_of_port(peer), []).append(port)
    return {leaf: sorted(ports, key=lambda port: (roles[node_of_port(port)], port)) for leaf, ports in found.items()}


def _host_points(leaf: Point, ports: list[str], detailed: bool) -> dict[str, Point]:
    if not detailed:
        return dict.fromkeys(ports, (leaf[0], 0.12))
    return {port: (leaf[0] + 0.86 * ((number + 0.5) / len(ports) - 0.5), 0.0) for number, port in enumerate(ports)}


@dataclass(frozen=True)
class Segment:
    """Half a link, from its near end to its middle by the points of ``line``; ``utilisation``: None if not measured;
    ``ports``: those of the near ends of all links that it stands for."""

    line: tuple[Point, ...]
    utilisation: float | None
    tier: str
    ports: tuple[str, ...] = ()

    @property
    def start(self) -> Point:
        """The near end."""
        return self.line[0]

    @property
    def end(self) -> Point:
        """The middle of the link."""
        return self.line[-1]


def segments(fabric: Mapping[str, Any], layout: FigureLayout, utilisation: Mapping[str, float] | None) -> list[Segment]:
    """Return the halves of all links, the busiest last; halves on one line become one, as busy as the busiest."""
    found: dict[tuple[Point, ...], Segment] = {}
    rows: dict[float, list[float]] = {}
    for x, y in layout.of_switch.values():
        rows.setdefault(y, []).append(x)
    asides = _asides(fabric)
    for link in fabric["links"]:
        for port, peer in ((link["a"], link["b"]), (link["b"], link["a"])):
            line = _moved(_half(layout.of_port[port], layout.of_port[peer], rows), asides.get(link["a"], 0.0))
            value = None if utilisation is None else utilisation.get(port)
            known = found.get(line)
            ports = (*(known.ports if known else ()), port)
            if known is not None and not _busier(value, known.utilisation):
                value = known.utilisation
            found[line] = Segment(line, value, link["tier"], ports)
    return sorted(found.values(), key=lambda half: -1.0 if half.utilisation is None else half.utilisation)


def _asides(fabric: Mapping[str, Any]) -> dict[str, float]:
    """Return how far aside each parallel link between two switches is, by its port ``a``; none if all are too many."""
    if len(fabric["links"]) > _MOST_APART:
        return {}
    pairs: dict[frozenset[str], list[str]] = {}
    hosts = {node["name"] for node in fabric["nodes"] if node["role"] in _HOST_ROLES}
    for link in fabric["links"]:
        ends = frozenset((node_of_port(link["a"]), node_of_port(link["b"])))
        if not ends & hosts:
            pairs.setdefault(ends, []).append(link["a"])
    asides: dict[str, float] = {}
    for ports in pairs.values():
        step = min(_BESIDE, _WIDEST / len(ports))
        asides |= {port: step * (place - (len(ports) - 1) / 2) for place, port in enumerate(ports)}
    return asides


def _moved(line: tuple[Point, ...], aside: float) -> tuple[Point, ...]:
    """Return a line that leaves its near end and then runs so far aside: to the right, or above if it is level."""
    if not aside:
        return line
    (x, y), (far_x, far_y) = line[0], line[-1]
    near = (x + _LEAVES * (far_x - x), y + _LEAVES * (far_y - y))
    start, *rest = line if len(line) > 2 else (line[0], near, line[-1])
    right, up = (0.0, aside) if y == far_y else (aside, 0.0)
    return (start, *((at + right, height + up) for at, height in rest))


def _half(start: Point, far: Point, rows: Mapping[float, Sequence[float]]) -> tuple[Point, ...]:
    """Return the first half of the line between two points: straight, or an arc over the switches in between."""
    left, right = sorted((start[0], far[0]))
    between = start[1] == far[1] and any(left < x < right for x in rows.get(start[1], ()))
    if not between:
        return start, ((start[0] + far[0]) / 2, (start[1] + far[1]) / 2)
    height = min(_HIGHEST_ARC, _ARC * (right - left))
    steps = (number / (2 * _ARC_STEPS) for number in range(_ARC_STEPS + 1))
    return tuple((start[0] + (far[0] - start[0]) * at, start[1] + 4 * height * at * (1 - at)) for at in steps)


def _busier(value: float | None, than: float | None) -> bool:
    return value is not None and (than is None or value > than)


def draw_on(
    axes: Axes,
    fabric: Mapping[str, Any],
    utilisation: Mapping[str, float] | None = None,
    cut: Collection[str] = (),
) -> None:
    """Draw a fabric on ``axes``; ``cut``: ports of links that were cut."""
    layout = lay_out(fabric)
    halves = segments(fabric, layout, utilisation)
    _draw_links(axes, halves, layout, coloured=utilisation is not None)
    _draw_switches(axes, layout)
    _draw_cuts(axes, fabric, halves, layout, cut)
    (_draw_hosts if layout.detailed else _draw_groups)(axes, layout)
    _draw_row_names(axes, layout)
    axes.set_axis_off()
    axes.set_xlim(-0.16 * layout.width, layout.width * 1.02)
    axes.set_ylim(-0.86 if layout.detailed else -0.75, max(y for half in halves for _, y in half.line) + 0.3)


def _draw_links(axes: Axes, halves: list[Segment], layout: FigureLayout, coloured: bool) -> None:
    dense = len(halves) > _RASTER_FROM_SEGMENTS
    colours = heat_map()
    shares = np.array([min(half.utilisation or 0.0, 1.0) for half in halves])
    thin, thick = (0.25, 1.1) if dense else (0.9, 2.6)
    lines = LineCollection(
        [half.line for half in halves],
        linewidths=thin + (thick - thin) * shares if coloured else 2 * thin if dense else thin,
        linestyles=["--" if half.tier == "inter_zone" and not dense else "-" for half in halves],
        zorder=1,
    )
    if coloured:
        lines.set_color([GREY if h.utilisation is None else colours(s) for h, s in zip(halves, shares, strict=True)])
        lines.set_alpha(0.75 if dense else None)
    else:
        tiers = {"inter_zone": INK}
        lines.set_color([tiers.get(half.tier, GREY) for half in halves])
        lines.set_alpha(0.22 if dense else 0.8)
    # Thousands of lines make vector files that no viewer opens with ease.
    lines.set_rasterized(dense)
    axes.add_collection(lines)


def failed_switches(fabric: Mapping[str, Any], cut: Collection[str]) -> set[str]:
    """Return the switches all whose links were cut, if they have more than one; ``cut``: ports of such links."""
    links: dict[str, list[bool]] = {}
    for link in fabric["links"]:
        for port in (link["a"], link["b"]):
            links.setdefault(node_of_port(port), []).append(link["a"] in cut or link["b"] in cut)
    hosts = {node["name"] for node in fabric["nodes"] if node["role"] in _HOST_ROLES}
    return {node for node, are_cut in links.items() if node not in hosts and len(are_cut) > 1 and all(are_cut)}


def _draw_cuts(
    axes: Axes, fabric: Mapping[str, Any], halves: Sequence[Segment], layout: FigureLayout, cut: Collection[str]
) -> None:
    """Cross out failed switches, and the middle of each other link that was cut."""
    switches = failed_switches(fabric, cut)
    ends = [(link["a"], link["b"]) for link in fabric["links"]]
    single = {port for pair in ends if not switches & set(map(node_of_port, pair)) for port in pair} & set(cut)
    broken = [half for half in halves if any(port in cut for port in half.ports)]
    lines = LineCollection([half.line for half in broken], colors=FAILURE, linewidths=1.4, linestyles="--", zorder=2)
    axes.add_collection(lines)
    middles = {half.end for half in broken if single & set(half.ports)}
    places = [layout.of_switch[name] for name in switches]
    for points, size in ((sorted(middles), 36), (sorted(places), 170)):
        axes.scatter(
            [x for x, _ in points], [y for _, y in points], s=size, marker="x", color=FAILURE, linewidths=2.2, zorder=5
        )


def _draw_switches(axes: Axes, layout: FigureLayout) -> None:
    for role in ("leaf", "spine", "core", "inter_zone"):
        points = [point for name, point in layout.of_switch.items() if layout.role_of[name] == role]
        _mark(axes, points, 70 if layout.detailed else 9, "s", _NODE_COLOURS[role])
    for name, (x, y) in layout.of_switch.items():
        role = layout.role_of[name]
        if layout.detailed or role == "inter_zone":
            # Names of leaves stand beside: links leave above and below.
            offset, align = ((6, 5), "left") if role == "leaf" else ((0, 6), "center")
            axes.annotate(
                layout.label_of.get(name, name), (x, y), offset, textcoords="offset points", fontsize=6.5,
                ha=align, va="bottom", zorder=4,
                bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.7, "pad": 0.4},
            )  # fmt: skip


def _host_label(layout: FigureLayout, port: str, several: Collection[str]) -> str:
    """Return a host's name, with the number of the NIC if it has several."""
    node, number = split_port(port)
    name = layout.label_of.get(node, node)
    return f"{name}, NIC {number}" if node in several else name


def _draw_hosts(axes: Axes, layout: FigureLayout) -> None:
    nics = Counter(node_of_port(port) for port in layout.of_port if layout.role_of[node_of_port(port)] in _HOST_ROLES)
    several = {host for host, count in nics.items() if count > 1}
    for role, marker in (("compute", "o"), ("storage", "D")):
        found = {port: xy for port, xy in layout.of_port.items() if layout.role_of[node_of_port(port)] == role}
        for port, (x, y) in found.items():
            axes.annotate(
                _host_label(layout, port, several), (x, y), (0, -6), textcoords="offset points",
                fontsize=6, rotation=90, ha="center", va="top",
            )  # fmt: skip
        _mark(axes, list(found.values()), 16, marker, _NODE_COLOURS[role])


def _mark(axes: Axes, points: list[Point], size: float, marker: str, colour: str) -> None:
    axes.scatter([x for x, _ in points], [y for _, y in points], s=size, marker=marker, color=colour, zorder=3)


def _draw_groups(axes: Axes, layout: FigureLayout) -> None:
    """Show the NICs on each leaf as a bar, compute below storage, on one scale for all leaves."""
    tallest = max(group.total() for group in layout.groups.values())
    width = _BAR * min(1.0, layout.width / _BARS_FROM)
    for leaf, group in layout.groups.items():
        x, top = layout.of_switch[leaf][0], 0.12
        for role in ("storage", "compute"):
            height = 0.6 * group[role] / tallest
            axes.bar(x, -height, width, bottom=top, color=_NODE_COLOURS[role], zorder=3)
            top -= height


def _draw_row_names(axes: Axes, layout: FigureLayout) -> None:
    left = -0.02 * layout.width
    counts = Counter(layout.role_of[name] for name in layout.of_switch)
    for role, count in counts.items():
        text = f"{count} {_ROLE_WORDS.get(role, (role, role))[count > 1]}"
        axes.text(left, _LEVELS.get(role, 3.0), text, fontsize=7, ha="right", va="center", color=INK)
    nics = sum(layout.groups.values(), Counter[str]())
    for number, role in enumerate(role for role in _HOST_ROLES if nics[role]):
        y = -0.22 * number if layout.detailed else -0.16 - 0.35 * number
        text = f"{nics[role]} {role} NICs" + ("" if layout.detailed else f"\n({_range_of(layout, role)} a leaf)")
        axes.text(left, y, text, fontsize=7, ha="right", va="center", color=_NODE_COLOURS[role])
    for zone, (start, end) in layout.zones.items() if len(layout.zones) > 1 else ():
        bottom = -0.78 if layout.detailed else -0.68
        axes.text((start + end) / 2, bottom, f"zone {zone}", fontsize=8, ha="center", va="center", fontweight="bold")


def _range_of(layout: FigureLayout, role: str) -> str:
    counts = [group[role] for group in layout.groups.values()]
    return str(min(counts)) if min(counts) == max(counts) else f"{min(counts)}-{max(counts)}"


def add_colour_bar(figure: Any, panels: Any) -> None:
    """Add the bar that explains the colours of links."""
    mappable = ScalarMappable(Normalize(0, 1), heat_map())
    bar = figure.colorbar(mappable, ax=panels, location="bottom", shrink=0.5, aspect=45, pad=0.03)
    bar.set_label(COLOUR_BAR_LABEL)
    bar.ax.xaxis.set_major_formatter(lambda value, _: f"{value:.0%}")


def draw_topology(fabric: Mapping[str, Any], path: Path, utilisation: Mapping[str, float] | None = None) -> None:
    """Write a picture of a fabric (``fabric_as_json``) to ``path``; the suffix says the format.

    ``utilisation`` maps sending ports to fractions of their link. Raises UsageError for another suffix.
    """
    if path.suffix not in FORMATS:
        raise UsageError(f"{path}: cannot draw a file ending in {path.suffix!r}; use one of {', '.join(FORMATS)}")
    with mpl.rc_context({"svg.hashsalt": "fabric", "font.size": 9}):
        figure = ShownFigure(figsize=(13, 6.2), layout="constrained", facecolor="white")
        axes = figure.add_subplot()
        draw_on(axes, fabric, utilisation)
        axes.set_title(_title(fabric), loc="left", fontsize=11)
        if utilisation is not None:
            add_colour_bar(figure, axes)
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, dpi=150, metadata={"Date": None} if path.suffix == ".svg" else None)


def _title(fabric: Mapping[str, Any]) -> str:
    rate, reference = float(fabric["nic_rate_bps"]), float(fabric["reference_nic_rate_bps"])
    scale = "" if rate == reference else f", rates 1 : {reference / rate:,.6g} of {format_rate(reference)}"
    return f"{fabric['name']}: NICs of {format_rate(rate)}{scale}"
