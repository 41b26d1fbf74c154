"""Bisection: the least rate across a cut of a network's leaves into halves; other switches are where that is least.

Of regular layers it is a formula, of a few switches joined in any way the least of all cuts, and else not known: nobody
finds the least cut of many switches in a time that a command has.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from itertools import combinations
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fabric.model.identity import NodeId, Role
from fabric.model.network import Fabric, Tier

_MOST_CUTS = 1 << 18
_Rates = Mapping[NodeId, Mapping[NodeId, int]]
"""Of each switch, the rate to each other that it is joined to, in bit/s."""


def bisection_bps(fabric: Fabric) -> float | None:
    """Return the bisection in bit/s, summed over the networks that links inside zones make; None if it is not known."""
    rates: defaultdict[NodeId, defaultdict[NodeId, int]] = defaultdict(lambda: defaultdict(int))
    for link in fabric.links_of_tier(Tier.UPLINK):
        rates[link.a.node][link.b.node] += link.rate_bps
        rates[link.b.node][link.a.node] += link.rate_bps
    found = [_of_network(network, rates) for network in _parts(rates, rates)]
    return None if None in found else sum(filter(None, found), 0.0)


def _parts(switches: Collection[NodeId], rates: _Rates) -> Iterator[set[NodeId]]:
    """Yield the sets of switches that links between them join."""
    left = dict.fromkeys(switches)
    while left:
        reached, part = [next(iter(left))], set()
        while reached:
            one = reached.pop()
            if one in left:
                del left[one]
                part.add(one)
                reached += rates[one]
        yield part


def _of_network(network: Collection[NodeId], rates: _Rates) -> float | None:
    regular = _of_layers(network, rates)
    return _least_cut(network, rates) if regular is None else regular


def _of_layers(network: Collection[NodeId], rates: _Rates) -> float | None:
    """Return the bisection of equal pods below cores, or of one pod; None of anything else.

    In a pod each spine is joined to all leaves alike. A cut has half of the pods on either side; it crosses what each
    spine of one half has up, or down if that is less. An odd pod, and leaves of an odd number, count half.
    """
    cores = {switch for switch in network if all(one.role is not Role.LEAF for one in (switch, *rates[switch]))}
    below = [switch for switch in network if switch not in cores]
    pods = [_spines_of(pod, cores, rates) for pod in _parts(below, _without(cores, rates))]
    are_equal = bool(pods) and bool(pods[0]) and all(pod == pods[0] for pod in pods)
    if not are_equal or any(not cores.isdisjoint(rates[core]) for core in cores):
        return None
    halved = sum(spine.down_bps for spine in pods[0]) / 2
    crossed = sum(min(spine.down_bps, sum(rate for _, rate in spine.up)) for spine in pods[0])
    return len(pods) // 2 * crossed + len(pods) % 2 * halved


class _Spine(NamedTuple):
    """What joins a spine to all leaves of its pod, and to each core, in bit/s."""

    down_bps: int
    up: tuple[tuple[NodeId, int], ...]


def _spines_of(pod: Collection[NodeId], cores: Collection[NodeId], rates: _Rates) -> list[_Spine]:
    """Return the spines of a pod in an order that equal pods have, too; none if not all of them join all leaves alike,
    or switches of a layer are joined."""
    leaves = {switch for switch in pod if switch.role is Role.LEAF}
    spines = []
    for spine in set(pod) - leaves:
        down = {peer: rate for peer, rate in rates[spine].items() if peer not in cores}
        if set(down) != leaves or len(set(down.values())) > 1:
            return []
        up = tuple(sorted((peer, rate) for peer, rate in rates[spine].items() if peer in cores))
        spines.append(_Spine(sum(down.values()), up))
    return [] if any(not leaves.isdisjoint(rates[leaf]) for leaf in leaves) else sorted(spines)


def _without(left_out: Collection[NodeId], rates: _Rates) -> _Rates:
    return {
        switch: {peer: rate for peer, rate in peers.items() if peer not in left_out}
        for switch, peers in rates.items()
        if switch not in left_out
    }


def _least_cut(network: Collection[NodeId], rates: _Rates) -> float | None:
    """Return the least of all cuts into halves of the leaves, as equal as their number allows; None if there are too
    many to try.

    Of the other switches, those that are joined to none of their kind that is left to the end take the better side.
    """
    leaves = sorted(switch for switch in network if switch.role is Role.LEAF)
    last: list[NodeId] = []
    for switch in sorted(set(network) - set(leaves)):
        if rates[switch].keys().isdisjoint(last):
            last.append(switch)
    tried = sorted(set(network) - set(leaves) - set(last))
    halves = math.comb(len(leaves), len(leaves) // 2)
    if halves << len(tried) > _MOST_CUTS:
        return None
    sides = dict(zip([*leaves, *tried], _sides(len(leaves), len(tried)), strict=True))
    crossing: npt.NDArray[np.int64] = np.zeros(halves << len(tried), np.int64)
    for a, b in combinations(sides, 2):
        if b in rates[a]:
            crossing += rates[a][b] * (sides[a] != sides[b])
    for switch in last:
        to_one = np.zeros_like(crossing)
        for peer, rate in rates[switch].items():
            to_one += rate * sides[peer]
        crossing += np.minimum(to_one, sum(rates[switch].values()) - to_one)
    return float(crossing.min())


def _sides(leaves: int, others: int) -> npt.NDArray[np.bool_]:
    """Return each switch's side, a row per switch and a column per cut: those of half of the leaves, and any others."""
    halves = np.zeros((leaves, math.comb(leaves, leaves // 2)), bool)
    for column, half in enumerate(combinations(range(leaves), leaves // 2)):
        halves[list(half), column] = True
    free = (np.arange(1 << others) >> np.arange(others)[:, None] & 1).astype(bool)
    return np.concatenate([np.repeat(halves, 1 << others, axis=1), np.tile(free, halves.shape[1])])
