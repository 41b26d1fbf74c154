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

from fabric.results import Phase
from fabric.stalls.congestion_trees import PortLane
from fabric.stalls.intervals import Moment, StalledTime, Wire
from fabric.tables import TABLES

Floats = npt.NDArray[np.float64]
VICTIM_SHARE = 0.1
_FLOW = ["service_level", "host", "peer"]
_FLOWS = ("flow", "flow_abandoned")
"""The operations that are flows with a connection each."""
Way = tuple[PortLane, ...]
"""A path of a flow: the lanes of the ports that send its packets, in order, that of its host's NIC first."""
Ways = Sequence[Way]
"""All paths that a flow may take at a time."""


@dataclass(frozen=True, order=True)
class Flow:
    """All connections of a service level from a host to another."""

    service_level: str
    host: str
    peer: str


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


def delivered(flows: pd.DataFrame, operations: pd.DataFrame, phase: Phase, sampled_s: Floats) -> dict[Flow, Floats]:
    """Return the bytes that each flow delivered in each interval, from the tables of those names.

    These are the bytes acknowledged on its connections, spread evenly between two samples. If each flow has a
    connection of its own, many end before a second sample: then the size of each is spread evenly over its time.
    """
    begun = operations[(operations["phase"] == phase.name) & operations["operation"].isin(_FLOWS)]
    sampled = flows[(flows["phase"] == phase.name) & ~flows["service_level"].isin(begun["service_level"].unique())]
    found: dict[Flow, Floats] = {}
    for flow, so_far in [*_acknowledged(sampled, sampled_s), *_spread(begun, sampled_s)]:
        found[flow] = found.get(flow, np.zeros(len(sampled_s) - 1)) + np.diff(so_far)
    return {flow: sizes for flow, sizes in found.items() if sizes.any()}


def _acknowledged(rows: pd.DataFrame, sampled_s: Floats) -> Iterator[tuple[Flow, Floats]]:
    """Yield the bytes of each connection that were acknowledged by each time."""
    # Parallel connections of one pair are sampled together and in the same order each time.
    twin = rows.groupby([*_FLOW, "at_s"], observed=True).cumcount()
    for (level, host, peer, _), series in rows.assign(twin=twin).groupby([*_FLOW, "twin"], observed=True):
        ordered = series.sort_values("at_s", kind="stable")
        acknowledged = ordered["bytes_acked"].to_numpy(dtype=float)
        grown = np.maximum(np.diff(acknowledged), 0)  # One that began anew has its first bytes left out.
        so_far = np.concatenate([[0.0], np.cumsum(grown)])
        at_s = ordered["at_s"].to_numpy(dtype=float)
        yield Flow(str(level), str(host), str(peer)), np.interp(sampled_s, at_s, so_far).astype(np.float64)


def _spread(rows: pd.DataFrame, sampled_s: Floats) -> Iterator[tuple[Flow, Floats]]:
    """Yield the bytes of each pair's operations by each time, each growing evenly from its start to its end."""
    for (level, host, peer), ended in rows.dropna(subset=["ended_s"]).groupby(_FLOW, observed=True):
        columns = ("started_s", "ended_s", "size_bytes")
        started_s, ended_s, size_bytes = (ended[name].to_numpy(dtype=float)[:, None] for name in columns)
        done = np.clip((sampled_s[None, :] - started_s) / np.maximum(ended_s - started_s, 1e-9), 0, 1)
        yield Flow(str(level), str(host), str(peer)), (done * size_bytes).sum(axis=0)


def slowing(
    sizes: Floats, ways: Sequence[Ways], found: Sequence[Moment], time: StalledTime, wires: Mapping[str, Wire]
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


def _idle_bps(time: StalledTime, number: int, way: Way, wires: Mapping[str, Wire]) -> float:
    """Return the rate that the fullest port of a path left unused in an interval."""
    idle = ((1 - float(time.busy[number, time.place_of_port[lane.port]])) * wires[lane.port].rate_bps for lane in way)
    return max(0.0, min(idle))


def flows_frame(
    phase: Phase,
    found: Mapping[Flow, Floats],
    ways: Mapping[Flow, Sequence[Ways]],
    seen: Sequence[Moment],
    time: StalledTime,
    wires: Mapping[str, Wire],
) -> pd.DataFrame:
    """Return rows of the table ``flow_stalls``: of each flow of :func:`delivered`, with its paths in each interval."""

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
