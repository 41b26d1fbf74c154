"""Victims: flows that a congestion tree slows although they do not cross its root, found from samples alone.

A flow is all connections of a service level from one host to another. In an interval in which it has data in
flight, it is *slowed by others* if a lane of its path is stalled and no port of its path is the root of any tree. It
then waits for ports that it does not use, for as long as the most stalled lane of its path was stalled. A flow is a
*victim* of a phase if that is more than VICTIM_SHARE of its time, and if a root lay on its path for no more than that.

No phase with the flow alone is needed. The path also shows what the flow could have had: none of its ports was full,
and the rate that the fullest of them left unused was available. A flow that may take one of several paths (ECMP) is
slowed by others only as much as on the least stalled of them, and none may have a root.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pandas as pd

from fabric.delivered import Flow, delivered
from fabric.results import Phase
from fabric.stalls.congestion_trees import PortLane
from fabric.stalls.intervals import LinkDirection, Moment, StalledTime
from fabric.tables import TABLES

Floats = npt.NDArray[np.float64]
VICTIM_SHARE = 0.1
Way = tuple[PortLane, ...]
"""A path of a flow: the lanes of the ports that send its packets, in order, that of its host's NIC first."""
Ways = Sequence[Way]
"""All paths that a flow may take at a time."""


@dataclass
class Slowing:
    """How much congestion slowed a flow in a phase, see the table ``flow_stalls``. ``roots``: seconds by each root."""

    active_s: float = 0.0
    slowed_s: float = 0.0
    own_s: float = 0.0
    idle_bits: float = 0.0
    roots: Counter[PortLane] = field(default_factory=Counter)

    @property
    def is_victim(self) -> bool:
        """Whether other ports slowed it, and no port of its own path did."""
        limit_s = VICTIM_SHARE * self.active_s
        return self.slowed_s > limit_s >= self.own_s


def delivered_in_intervals(
    flows: pd.DataFrame, operations: pd.DataFrame, phase: Phase, sampled_s: Floats
) -> dict[Flow, Floats]:
    """Return the bytes that each flow delivered in each interval, from the tables of those names; those that delivered
    none are left out."""
    found: dict[Flow, Floats] = {}
    for flow, growth in delivered(flows, operations, phase):
        found[flow] = found.get(flow, np.zeros(len(sampled_s) - 1)) + np.diff(growth.by(sampled_s))
    return {flow: sizes for flow, sizes in found.items() if sizes.any()}


def slowing(
    sizes: Floats, ways: Sequence[Ways], found: Sequence[Moment], time: StalledTime, wires: Mapping[str, LinkDirection]
) -> Slowing:
    """Return how much congestion slowed one flow.

    ``sizes[i]``: bytes delivered in interval i; ``ways[i]``: the candidate paths in that interval.
    """
    result = Slowing()
    for number in np.flatnonzero(sizes).tolist():
        moment, here = found[number], ways[number]
        result.active_s += moment.interval_s
        if any(lane.port in moment.root_ports for way in here for lane in way):
            result.own_s += moment.interval_s
            continue
        share, lane = min((_stillest(way, moment.blocked) for way in here), key=lambda one: one[0])
        if lane is None:
            continue
        result.slowed_s += share * moment.interval_s
        result.idle_bits += moment.interval_s * min(_idle_bps(time, number, way, wires) for way in here)
        for tree in moment.trees_of[lane]:
            result.roots[tree.root] += moment.interval_s
    return result


def _stillest(way: Way, blocked: Mapping[PortLane, float]) -> tuple[float, PortLane | None]:
    """Return the share and the lane of a path that was stalled longest; 0 and None if none was blocked."""
    stillest = max(way, key=lambda lane: blocked.get(lane, 0.0))
    return (blocked[stillest], stillest) if stillest in blocked else (0.0, None)


def _idle_bps(time: StalledTime, number: int, way: Way, wires: Mapping[str, LinkDirection]) -> float:
    """Return the rate that the fullest port of a path left unused in an interval."""
    idle = ((1 - float(time.busy[number, time.place_of_port[lane.port]])) * wires[lane.port].rate_bps for lane in way)
    return max(0.0, min(idle))


def flows_frame(
    phase: Phase,
    found: Mapping[Flow, Floats],
    ways: Mapping[Flow, Sequence[Ways]],
    seen: Sequence[Moment],
    time: StalledTime,
    wires: Mapping[str, LinkDirection],
) -> pd.DataFrame:
    """Return rows of the table ``flow_stalls``: of each flow of :func:`delivered_in_intervals`, with its paths in each
    interval."""

    def rows() -> Iterator[dict[str, object]]:
        for flow, sizes in sorted(found.items()):
            result = slowing(sizes, ways[flow], seen, time, wires)
            root = max(result.roots, key=lambda lane: (result.roots[lane], lane), default=None)
            yield {
                "phase": phase.name,
                **vars(flow),
                "delivered_bytes": round(sizes.sum()),
                "active_s": result.active_s,
                "slowed_s": result.slowed_s,
                "own_s": result.own_s,
                "rate_bps": 8 * sizes.sum() / result.active_s,
                "idle_bps": result.idle_bits / result.active_s,
                "root_port": root.port if root else None,
                "root_lane": root.lane if root else None,
                "victim": result.is_victim,
            }

    return pd.DataFrame(list(rows()), columns=list(TABLES["flow_stalls"].columns))
