"""Which algorithm carries a call out: as a user says by NCCL_ALGO, or by its size, as NCCL chooses."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from fabric.errors import TrafficError
from fabric.model.identity import NodeId
from traffic.collectives.collective import Collective, Groups, Layout, ScheduleOptions
from traffic.collectives.listing import COLLECTIVES
from traffic.collectives.operations.allreduce import ALLREDUCE
from traffic.collectives.schedule import Schedule
from traffic.collectives.tree_allreduce import TreeAllreduce
from traffic.collectives.trees import zone_aware_double_tree
from traffic.torch_backend.own_place import RankPlace

RING, TREE, HFREDUCE = "ring", "tree", "hfreduce"
_HOP_S = 2e-6
"""From a rank to the next, through switches and both ends' software."""
_USUAL_BPS = 200 * 10**9
"""Of a GPU's NIC where no rank knows its own."""
_MOST_CHANNELS = 64


@dataclass(frozen=True)
class Choice:
    """What a user chooses. ``algorithm``: of collectives that have it; None: by size. ``piece_bytes``: what travels in
    one frame; ``channels``: rings side by side, each over a NIC of its own as far as hosts have them."""

    algorithm: str | None = None
    piece_bytes: int = 64 * 1024
    channels: int = 1

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> Choice:
        """Return what NCCL's variables say: NCCL_ALGO, NCCL_MIN_NCHANNELS. Raises TrafficError for what is not
        known."""
        known = sorted({HFREDUCE, *(name for one in COLLECTIVES.values() for name in one.algorithms)})
        algorithm = environment.get("NCCL_ALGO", "").lower() or None
        if algorithm is not None and algorithm not in known:
            raise TrafficError(f"NCCL_ALGO={environment['NCCL_ALGO']}: is not known; use one of {', '.join(known)}")
        text = environment.get("NCCL_MIN_NCHANNELS", "1")
        if not text.isdecimal() or not 1 <= int(text) <= _MOST_CHANNELS:
            raise TrafficError(f"NCCL_MIN_NCHANNELS={text}: use a number from 1 to {_MOST_CHANNELS}")
        return replace(cls(), algorithm=algorithm, channels=int(text))


@dataclass(frozen=True)
class GroupChoice:
    """A choice over the ranks of a group, by where each is."""

    choice: Choice
    places: Sequence[RankPlace] = field(repr=False)

    def schedule(self, collective: Collective, options: ScheduleOptions, root: int) -> Schedule:
        """Return how a collective is carried out over the group's ranks from ``root`` on. ``options``: without nodes
        and channels. Raises TrafficError if its algorithm cannot be carried out over them."""
        places = (*self.places[root:], *self.places[:root])
        layout = Layout(options.ranks, _groups(places))
        size_bytes = options.elements * options.dtype.size_bytes
        name = self.choice.algorithm
        if name == HFREDUCE and collective is ALLREDUCE:
            return _hfreduce(places, options)
        if name is None or name not in collective.algorithms:
            name = by_size(collective, layout, size_bytes, _slowest_bps(places))
        algorithm = collective.algorithms[name]
        channels = self.choice.channels if algorithm.has_channels else 1
        try:
            return algorithm.schedule(replace(options, channels=channels, groups=layout.groups))
        except ValueError as error:
            raise TrafficError(f"{collective.name}, algorithm {name}: {error}") from error


def _slowest_bps(places: Sequence[RankPlace]) -> int:
    """Return the rate of the slowest NIC of all ranks: the same number on each."""
    return min((place.nic_bps for place in places if place.nic_bps is not None), default=_USUAL_BPS)


def by_size(collective: Collective, layout: Layout, size_bytes: int, nic_bps: int) -> str:
    """Return the algorithm, of a ring and trees, that is the fastest by its hops and by what its busiest rank sends at
    ``nic_bps``; the first that the collective has, if it has not both."""
    names = [name for name in (RING, TREE) if name in collective.algorithms]
    if len(names) < 2:
        return next(iter(collective.algorithms))
    ways = 2 if collective is ALLREDUCE else 1  # To one place and back to all, or only one of them.
    hops = {RING: layout.ranks - 1, TREE: math.ceil(math.log2(layout.ranks))}

    def time_s(name: str) -> float:
        busiest = collective.algorithms[name].busiest_fraction(layout)
        return ways * hops[name] * _HOP_S + busiest * 8 * size_bytes / nic_bps

    return min(names, key=time_s)


def _groups(places: Sequence[RankPlace]) -> Groups | None:
    """Return which ranks share a host; None if none do."""
    hosts: dict[str, list[int]] = {}
    for rank, place in enumerate(places):
        hosts.setdefault(place.host, []).append(rank)
    return tuple(map(tuple, hosts.values())) if len(hosts) < len(places) else None


def _hfreduce(places: Sequence[RankPlace], options: ScheduleOptions) -> Schedule:
    """Return trees between hosts that cross zones once. Raises TrafficError if ranks share a host."""
    hosts = [place.host for place in places]
    if shared := next((host for host in hosts if hosts.count(host) > 1), None):
        raise TrafficError(f"NCCL_ALGO=hfreduce: is between hosts, and ranks share {shared}; use ring or tree")
    trees = zone_aware_double_tree([_zone_of(host) for host in hosts])
    return TreeAllreduce(trees, options.elements, options.piece_elements, slots=options.slots, dtype=options.dtype)


def _zone_of(host: str) -> int:
    """Return the zone of a host; 0 where names do not say it."""
    try:
        return NodeId.parse(host).zone or 0
    except ValueError:
        return 0
