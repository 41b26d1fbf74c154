"""The colours of all figures and pages, each with one meaning, told apart with every common colour blindness.

A family is what one legend lists: service levels and lanes, kinds of hosts, queueings, verdicts. :data:`SERIES` are for
what has no meaning of its own, such as jobs, policies or variants. :data:`FAILURE` is what fails, is cut or is lost, in
every figure, and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fabric.model.identity import Role
from fabric.model.lanes import LOSSLESS, MANAGEMENT, SHARED, Queueing

INK = "#222222"
"""Of single lines, marks and intervals."""
GREY = "#666666"
"""Of words and lines beside what was measured: theory, limits, what was published."""
MIDDLE = "#999999"
"""Of what was asked for or promised, behind what was measured."""
PALE = "#dddddd"
"""Of the ground: grids, spans, what is left over."""
FAILURE = "#D55E00"
ROOT = "#D7191C"
"""Of a congestion tree: the full port that others wait for."""
UNKNOWN = "#777777"
"""Of a verdict that is none of ours."""

# Okabe and Ito, "Color Universal Design" (2008).
LANES = {
    "hfreduce": "#0072B2",
    "nccl": "#E69F00",
    "storage": "#009E73",
    "other": "#CC79A7",
    "control": "#56B4E9",
    SHARED: INK,
    LOSSLESS: "#8C6D31",
    MANAGEMENT: "#BBBBBB",
}
OWN_LANES = (
    *("#B15928", "#8A3FFC", "#007D79", "#9F1853", "#6F6A00", "#005D5D", "#A56EFF", "#B28600"),
    *("#FF7EB6", "#42BE65", "#570408", "#0043CE", "#8D8D00", "#C2185B", "#7D4A2A"),
)
"""Of service levels and lanes that configs add, in the order of their names: as many as a port has lanes."""
HOSTS = {Role.COMPUTE: "#2F4B7C", Role.STORAGE: LANES["storage"]}
SWITCH = "#444444"
QUEUEINGS = {
    Queueing.SHARED: "#B0B0B0",
    Queueing.LANES: "#A99BE0",
    Queueing.LOSSLESS: "#5A5A5A",
    Queueing.LOSSLESS_LANES: "#4A3AA7",
    Queueing.TRIMMED: "#8C8C8C",
}
"""Violet has lanes, grey has none; dark loses nothing."""
VERDICTS = {"faithful": "#00755A", "degraded": "#B86E00", "invalid": "#A02000"}
# Paul Tol, "Colour Schemes" (2021), scheme muted without its rose, which is near to a failure's.
SERIES = ("#332288", "#44AA99", "#882255", "#999933", "#88CCEE", "#AA4499", "#117733", "#DDCC77")
"""In their order; beyond eight they come again, in other dashes or with other markers."""


def series(place: int) -> str:
    """Return the colour of the series at a place, from 0."""
    return SERIES[place % len(SERIES)]


def series_of(names: Sequence[str]) -> dict[str, str]:
    """Return a colour for each name, in their order."""
    return {name: series(place) for place, name in enumerate(names)}


def lane_colours(names: Iterable[str]) -> dict[str, str]:
    """Return the colours of service levels and lanes: the usual ones, and for each other name the next of those left;
    beyond fifteen, they come again."""
    own = [name for name in dict.fromkeys(names) if name not in LANES]
    return LANES | {name: OWN_LANES[number % len(OWN_LANES)] for number, name in enumerate(own)}
