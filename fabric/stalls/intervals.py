"""How long lossless lanes were stalled between samples, and which congestion trees they formed meanwhile.

Credits return frame by frame, so a lane without room stops and starts thousands of times per second, and whether it has
room at the moment of a sample means little. The kernel adds up exactly how long each lane was stalled, and the growth
from one sample to the next counts: a lane is *blocked* in an interval if it was stalled for more than BLOCKED_SHARE of
it. A lane that has room is never stalled, however busy its link is.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pandas as pd

from fabric.model.identity import node_of_port
from fabric.results import Phase
from fabric.stalls.congestion_trees import CongestionTree, PortLane, forest, trees_of
from fabric.tables import TABLES

Floats = npt.NDArray[np.float64]
BLOCKED_SHARE = 0.1
"""Below it, what a lane loses is within what measurements of flows vary by; blocked lanes stand still far longer: a
lane behind a port that n senders fill does so for 1 - 1/n of the time."""


@dataclass(frozen=True)
class LinkDirection:
    """A direction of a link: the port at the other end, and its rate."""

    peer: str
    rate_bps: float


@dataclass(frozen=True)
class StalledTime:
    """What ports did in each interval between two samples of a phase.

    ``stalled`` and ``stalls`` (intervals x ``lanes``) are the fraction of the interval in which a lane stood still, and
    how often it stopped; ``busy`` (intervals x ``ports``) is the fraction of its link that a port sent.
    """

    sampled_s: Floats
    lanes: tuple[PortLane, ...]
    stalled: Floats
    stalls: Floats
    ports: tuple[str, ...]
    busy: Floats

    @property
    def intervals_s(self) -> Floats:
        """How long each interval is."""
        lengths: Floats = np.diff(self.sampled_s)
        return lengths

    @cached_property
    def place_of_port(self) -> dict[str, int]:
        """Each port's column of ``busy``."""
        return {port: place for place, port in enumerate(self.ports)}

    @cached_property
    def place_of_lane(self) -> dict[PortLane, int]:
        """Each lane's column of ``stalled``."""
        return {lane: place for place, lane in enumerate(self.lanes)}


def stalled_time(
    stalls: pd.DataFrame, ports: pd.DataFrame, wires: Mapping[str, LinkDirection], phase: Phase
) -> StalledTime | None:
    """Return what ports did in a phase, from the tables ``stalls`` and ``ports``; None if it was not lossless.

    Only samples that are in both, and tell of all lanes, count, and only ports of ``wires``: without those inside
    nodes, it tells of the network alone.
    """
    in_phase = (table[table["at_s"].between(phase.started_s, phase.ended_s)] for table in (stalls, ports))
    waited, carried = (table[table["port"].isin(list(wires))] for table in in_phase)
    stalled, count = (_over_time(waited, ["port", "lane"], name) for name in ("stalled_ns", "stalls"))
    sent = _over_time(carried, ["port"], "sent_bytes")
    told = stalled.index.intersection(sent.index)
    if len(told) < 2:
        return None
    stalled, count, sent = (counter.loc[told] for counter in (stalled, count, sent))
    sampled_s = told.to_numpy(dtype=float)
    lengths = np.diff(sampled_s)[:, None]
    ports_seen = tuple(map(str, sent.columns))
    rates = np.array([wires[port].rate_bps for port in ports_seen])
    return StalledTime(
        sampled_s=sampled_s,
        lanes=tuple(PortLane(*map(str, key)) for key in stalled.columns.to_list()),
        stalled=np.minimum(_grown(stalled) / 1e9 / lengths, 1.0),
        stalls=_grown(count),
        ports=ports_seen,
        busy=8 * _grown(sent) / lengths / rates,
    )


def _over_time(frame: pd.DataFrame, keys: list[str], value: str) -> pd.DataFrame:
    """Return a counter with a row a sample and a column a key, what shares a key added up."""
    return frame.groupby(["at_s", *keys], observed=True)[value].sum().unstack(keys).dropna()


def _grown(counters: pd.DataFrame) -> Floats:
    """Return by how much counters grew from sample to sample; one that fell began anew with its link."""
    values = counters.to_numpy(dtype=float)
    grown: Floats = np.diff(values, axis=0)
    return np.where(grown < 0, values[1:], grown)


@dataclass(frozen=True)
class Moment:
    """An interval between two samples that ended at ``at_s``: the share that each blocked lane stood still, and the
    trees that these lanes are in."""

    at_s: float
    interval_s: float
    blocked: Mapping[PortLane, float]
    trees: Sequence[CongestionTree]

    @cached_property
    def trees_of(self) -> dict[PortLane, list[CongestionTree]]:
        """The trees that each lane is in."""
        return trees_of(self.trees)

    @cached_property
    def root_ports(self) -> frozenset[str]:
        """The ports at which trees have their roots."""
        return frozenset(port for tree in self.trees for port in tree.root_ports)


def moments(time: StalledTime, waits: pd.DataFrame, wires: Mapping[str, LinkDirection]) -> Iterator[Moment]:
    """Yield every interval in turn; ``waits`` is the table of that name.

    What held a blocked lane's buffer is what was in it at either end of the interval, the mean of both. Of the lanes
    that held it, only those count whose ports were themselves busy or still for as long as the lane stood still, within
    BLOCKED_SHARE, and which had that share of the bytes: a frame that was just passing through is not what the lane
    waited for. If no port was busy so long, all had part in it by turns. What waits for a port that is not among
    ``wires`` has no other to wait for: it is a root.
    """
    held = _held(waits, time.sampled_s, wires)
    for number, interval_s in enumerate(time.intervals_s):
        shares = time.stalled[number]
        blocked = {time.lanes[place]: float(shares[place]) for place in np.flatnonzero(shares > BLOCKED_SHARE)}
        graph = {}
        for lane, share in blocked.items():
            found = _mean([held[number + end].get(PortLane(wires[lane.port].peer, lane.lane), {}) for end in (0, 1)])
            graph[lane] = _at_fault(time, number, share, found)
        yield Moment(float(time.sampled_s[number + 1]), float(interval_s), blocked, forest(graph))


Held = dict[PortLane, dict[PortLane, int]]
"""By input buffer (the port that receives, and the lane): the lanes that hold it, with bytes."""


def _held(waits: pd.DataFrame, sampled_s: Floats, wires: Mapping[str, LinkDirection]) -> list[Held]:
    """Return what held input buffers at each sample, as far as it waited for ports of ``wires``."""
    found: list[Held] = [{} for _ in sampled_s]
    inside = waits[waits["at_s"].between(sampled_s[0], sampled_s[-1])].dropna(subset=["port", "input_port"])
    inside = inside[inside["port"].isin(list(wires))]
    columns = ("input_port", "input_lane", "port", "lane", "waiting_bytes")
    places = np.searchsorted(sampled_s, inside["at_s"].to_numpy(dtype=float))
    for place, *names, size in zip(places.tolist(), *(inside[name].tolist() for name in columns), strict=True):
        buffer, holder = PortLane(names[0], names[1]), PortLane(names[2], names[3])
        found[place].setdefault(buffer, {})[holder] = size
    return found


def _mean(both: Sequence[Mapping[PortLane, int]]) -> dict[PortLane, int]:
    lanes = {lane for one in both for lane in one}
    return {lane: sum(one.get(lane, 0) for one in both) // len(both) for lane in sorted(lanes)}


def _at_fault(time: StalledTime, number: int, share: float, holders: Mapping[PortLane, int]) -> Mapping[PortLane, int]:
    """Return those of what held a buffer for which its lane waited."""

    def occupied(holder: PortLane) -> float:
        still = time.stalled[number, time.place_of_lane[holder]]
        return float(still + time.busy[number, time.place_of_port[holder.port]])

    found = {holder: size for holder, size in holders.items() if occupied(holder) >= share - BLOCKED_SHARE} or holders
    least = BLOCKED_SHARE * sum(found.values())
    return {holder: size for holder, size in found.items() if size >= least}


# As tables -----------------------------------------------------------------------------------------------------------


def trees_frame(found: Sequence[Moment], phase: str, hosts: Collection[str]) -> pd.DataFrame:
    """Return rows of the table ``congestion_trees``; ``hosts`` are the names of all hosts."""
    rows = [
        {
            "phase": phase,
            "at_s": moment.at_s,
            "interval_s": moment.interval_s,
            "root_port": tree.root.port,
            "root_lane": tree.root.lane,
            "kind": tree.kind.value,
            "ports": len(tree.ports),
            "depth": tree.depth,
            "hosts": len(blocked_hosts(tree, hosts)),
            "waiting_bytes": tree.waiting_bytes,
        }
        for moment in found
        for tree in moment.trees
    ]
    return pd.DataFrame(rows, columns=list(TABLES["congestion_trees"].columns))


def blocked_hosts(tree: CongestionTree, hosts: Collection[str]) -> set[str]:
    """Return the hosts that cannot send because of a tree: back-pressure has reached their NICs."""
    senders = {node_of_port(lane.port) for lane in tree.waits}
    return senders.intersection(hosts)


def stalled_frame(time: StalledTime, phase: str, wires: Mapping[str, LinkDirection]) -> pd.DataFrame:
    """Return rows of the table ``stalled_time``, a lane each."""
    lengths = time.intervals_s
    stalled_s = lengths @ time.stalled
    return pd.DataFrame(
        {
            "phase": phase,
            "port": [lane.port for lane in time.lanes],
            "peer": [wires[lane.port].peer for lane in time.lanes],
            "lane": [lane.lane for lane in time.lanes],
            "stalls": time.stalls.sum(axis=0).astype(np.int64),
            "stalled_s": stalled_s,
            "stalled_fraction": stalled_s / lengths.sum(),
            "worst_fraction": time.stalled.max(axis=0),
        }
    )[list(TABLES["stalled_time"].columns)]
