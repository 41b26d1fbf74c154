"""Which NIC sends to which in a pattern, as places among the fabric's NICs: as many flows as arrays hold. Pure."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np

from controllers.planning.many_paths import Endpoints
from fabric.errors import UsageError
from fabric.model.identity import NodeId
from fabric.model.network import Fabric, Nic, Port
from fabric.model.patterns import NicPair, by_network, permutation, shifts

MOST_FLOWS = 1024 * 1023
"""Of one estimate: those of 1,024 hosts that all send to all."""


class Pattern(str, Enum):
    """Who sends to whom."""

    PERMUTATION = "permutation"
    ALL_TO_ALL = "all_to_all"
    INCAST = "incast"
    RING = "ring"


@dataclass(frozen=True)
class Drawn:
    """A pattern over the NICs of some hosts. ``peers``: to how many others each sends in all-to-all, None: to all;
    ``seed`` draws the permutation."""

    pattern: Pattern
    hosts: Sequence[NodeId]
    peers: int | None
    seed: int


def endpoints(fabric: Fabric, drawn: Drawn) -> Endpoints:
    """Return who sends to whom. Raises UsageError for a pattern that these hosts cannot play."""
    if len(drawn.hosts) < 2:
        raise UsageError(f"{drawn.pattern.value}: has {len(drawn.hosts)} host(s), and needs 2; name more")
    nics = [nic for host in drawn.hosts for nic in fabric.nics_of[host]]
    found = _MAKERS[drawn.pattern](fabric, drawn, nics)
    if not len(found.sources):
        raise UsageError(f"{drawn.pattern.value}: no two NICs of its hosts reach each other; name others")
    return found


def require_few(what: str, flows: int) -> None:
    """Raise UsageError for more flows than an estimate may have."""
    if flows > MOST_FLOWS:
        fewer = "let each host send to fewer others (--peers, in a file peers:), or name fewer hosts"
        raise UsageError(f"{what}: {flows:,} flows, and an estimate has {MOST_FLOWS:,} at most; {fewer}")


def _permutation(fabric: Fabric, drawn: Drawn, nics: list[Nic]) -> Endpoints:
    return _of_pairs(fabric, permutation(fabric, nics, random.Random(drawn.seed)))


def _all_to_all(fabric: Fabric, drawn: Drawn, nics: list[Nic]) -> Endpoints:
    places = _places(fabric)
    nodes = {host: number for number, host in enumerate(fabric.hosts)}
    found = []
    for members in by_network(fabric, nics).values():
        others = len(members) - 1
        each = others if drawn.peers is None else drawn.peers
        if each > others:
            raise UsageError(f"--peers {each}: a NIC has {others} others in its network; lower it, or omit it for all")
        require_few(drawn.pattern.value, each * len(members))
        at = np.array([places[nic.port] for nic in members])
        hosts = np.array([nodes[nic.node] for nic in members])
        first = np.tile(np.arange(len(members)), each)
        second = (first + np.repeat(np.array(shifts(others, each), dtype=np.int64), len(members))) % len(members)
        apart = hosts[first] != hosts[second]
        found.append((at[first[apart]], at[second[apart]]))
    return Endpoints(*(np.concatenate(parts) for parts in zip(*found, strict=True)))


def _incast(fabric: Fabric, drawn: Drawn, nics: list[Nic]) -> Endpoints:
    """All others send to the first NIC of the first host."""
    sink = nics[0]
    return _of_pairs(fabric, [(nic, sink) for nic in nics[1:] if fabric.reaches(nic, sink)])


def _ring(fabric: Fabric, drawn: Drawn, nics: list[Nic]) -> Endpoints:
    """Each NIC sends to the one of its number at the next host."""
    pairs: list[NicPair] = []
    for host, after in zip(drawn.hosts, [*drawn.hosts[1:], drawn.hosts[0]], strict=True):
        theirs = {nic.port.number: nic for nic in fabric.nics_of[after]}
        both = [(nic, theirs[nic.port.number]) for nic in fabric.nics_of[host] if nic.port.number in theirs]
        reached = [pair for pair in both if fabric.reaches(*pair)]
        if not reached:
            raise UsageError(f"ring: no NIC of {host} reaches the one of its number at {after}; name others")
        pairs += reached
    return _of_pairs(fabric, pairs)


def _of_pairs(fabric: Fabric, pairs: Sequence[NicPair]) -> Endpoints:
    places = _places(fabric)
    found = [[places[nic.port] for nic in pair] for pair in pairs]
    both = np.array(found, dtype=np.int64).reshape(-1, 2)
    return Endpoints(both[:, 0], both[:, 1])


def _places(fabric: Fabric) -> dict[Port, int]:
    """Return the place of each NIC among the fabric's, by its port."""
    return {nic.port: place for place, nic in enumerate(fabric.nics)}


_MAKERS: dict[Pattern, Callable[[Fabric, Drawn, list[Nic]], Endpoints]] = {
    Pattern.PERMUTATION: _permutation,
    Pattern.ALL_TO_ALL: _all_to_all,
    Pattern.INCAST: _incast,
    Pattern.RING: _ring,
}
