"""The congestion trees of each interval between two samples, as arrays for the page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from fabric.report.view.grid import Grid
from fabric.stalls.congestion_trees import CongestionTree, PortLane
from fabric.stalls.intervals import LinkDirection, Moment, StalledTime, moments

Ints = npt.NDArray[np.int64]
_HEAD = 5
MEMBER = ("port", "lane", "depth", "stalled_percent")
"""What is kept of each lane in a tree: its places, its distance from the root in waits, and how long it was stalled."""


@dataclass(frozen=True)
class Forest:
    """The trees of a phase.

    ``heads`` (trees x 5): number of the sample that ended the interval, port and lane of the root, bytes that wait in
    the tree, and where its members begin. ``members`` (lanes x MEMBER). ``kinds``: of each tree's root.
    """

    heads: Ints
    members: Ints
    kinds: tuple[str, ...]


def stalled_time_of(grid: Grid, ports: Sequence[str], lanes: Sequence[str], rates_bps: Sequence[float]) -> StalledTime:
    """Return what lanes did in each interval of a lossless phase, from its samples."""
    lengths = np.diff(grid.at_s)[:, None]
    stalled_ns, stalls, sent = (_grown(grid.columns[name]) for name in ("stalled_ns", "stalls", "sent_bytes"))
    seen = np.unique(grid.ports)
    of_port = np.add.reduceat(sent, np.searchsorted(grid.ports, seen), axis=1)  # Keys are in order of ports.
    rates = np.array([rates_bps[port] for port in seen])
    return StalledTime(
        sampled_s=grid.at_s,
        lanes=tuple(PortLane(ports[port], lanes[lane]) for port, lane in zip(grid.ports, grid.lanes, strict=True)),
        stalled=np.minimum(stalled_ns / 1e9 / lengths, 1.0),
        stalls=stalls,
        ports=tuple(ports[port] for port in seen),
        busy=8 * of_port / lengths / rates,
    )


def _grown(values: Ints) -> npt.NDArray[np.float64]:
    """Return by how much counters grew from sample to sample; one that fell began anew with its link."""
    grown = np.diff(values, axis=0)
    return np.where(grown < 0, values[1:], grown).astype(np.float64)


def forest_of(
    grid: Grid, waits: pd.DataFrame, wires: Mapping[str, LinkDirection], ports: Sequence[str], lanes: Sequence[str]
) -> Forest | None:
    """Return the trees of a phase; None if it was not lossless. ``waits`` is the table of that name."""
    if "stalled_ns" not in grid.columns or len(grid.at_s) < 2:
        return None
    time = stalled_time_of(grid, ports, lanes, [wires[port].rate_bps for port in ports])
    place = {port: number for number, port in enumerate(ports)}, {lane: number for number, lane in enumerate(lanes)}
    heads: list[tuple[int, ...]] = []
    members: list[tuple[int, ...]] = []
    kinds = []
    for number, moment in enumerate(moments(time, waits, wires), start=1):
        for tree in moment.trees:
            root = (place[0][tree.root.port], place[1][tree.root.lane])
            heads.append((number, *root, tree.waiting_bytes, len(members)))
            members += _members(tree, moment, *place)
            kinds.append(tree.kind.value)
    return Forest(_table(heads, _HEAD), _table(members, len(MEMBER)), tuple(kinds))


def _table(rows: list[tuple[int, ...]], columns: int) -> Ints:
    return np.array(rows, np.int64).reshape(-1, columns)


def _members(
    tree: CongestionTree, moment: Moment, place_of_port: Mapping[str, int], place_of_lane: Mapping[str, int]
) -> list[tuple[int, ...]]:
    return [
        (place_of_port[lane.port], place_of_lane[lane.lane], depth, round(100 * moment.blocked.get(lane, 0.0)))
        for lane, depth in tree.depth_of.items()
    ]
