"""The NIC by which a host with several sends: pure functions of the fabric.

A program that does not say by which address it speaks sends by the first NIC that reaches the destination. One that
does (``bind``, ``iperf3 -B``), and whatever answers, sends by the NIC of that address: where two NICs of a host reach
the same destination, rules for each source address see to it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

from fabric.model.identity import NodeId, Role
from fabric.model.network import ADDRESSES, Fabric, Nic

_Thing = TypeVar("_Thing")
_Of = TypeVar("_Of")


def routes_by_destination(fabric: Fabric, host: NodeId) -> list[tuple[str, Nic]]:
    """Return networks (``10.1.0.0/16``), each with the NIC by which the host sends there, in order.

    A host with one NIC sends everything by it. Destinations of a /16 that are not all reached by the same NIC have
    routes of their own.
    """
    nics = fabric.nics_of[host]
    if len(nics) == 1:
        return [(str(ADDRESSES), nics[0])]
    blocks: dict[str, dict[str, Nic]] = defaultdict(dict)
    for other in fabric.nics:
        first = next((nic for nic in nics if fabric.reaches(nic, other)), None)
        if first is not None:
            blocks[_block(other.ip)][other.ip] = first
    routes = []
    for block, found in sorted(blocks.items(), key=lambda one: int(one[0].split(".")[1])):
        if len(set(found.values())) == 1:
            routes.append((block, next(iter(found.values()))))
        else:
            routes += [(f"{ip}/32", nic) for ip, nic in found.items()]
    return routes


def goes_by_source(fabric: Fabric, host: NodeId) -> bool:
    """Return whether two of a host's NICs reach the same destination, so that the source address must decide."""
    networks = [fabric.network_of(nic) for nic in fabric.nics_of[host]]
    zones = [nic.zone for nic in fabric.nics_of[host]]
    return len(set(zip(networks, zones, strict=True))) < len(networks)


def closed_blocks(fabric: Fabric) -> dict[NodeId, list[str]]:
    """Return, for each host with one NIC, the networks (``10.128.0.0/16``) of which it reaches no NIC, in order.

    It sends everything by its NIC, so what goes there would be dropped by a switch without a word.
    """
    kinds = {nic: _kind(fabric, nic) for nic in fabric.nics}
    examples = _two_of_each(kinds)
    in_block: dict[str, set[_Kind]] = defaultdict(set)
    for nic, kind in kinds.items():
        in_block[_block(nic.ip)].add(kind)
    closed = {
        kind: [
            block
            for block, others in in_block.items()
            if kind not in others and not any(_reach(fabric, found, examples[other]) for other in others)
        ]
        for kind, found in examples.items()
    }
    return {host: closed[kinds[nics[0]]] for host, nics in fabric.nics_of.items() if len(nics) == 1}


def named_nics(fabric: Fabric) -> dict[NodeId, tuple[Nic, ...]]:
    """Return the NICs whose addresses a host's name has: its first, then those by which others reach it that do not
    reach that one."""
    kinds = {host: tuple(_kind(fabric, nic) for nic in nics) for host, nics in fabric.nics_of.items()}
    examples = _two_of_each(kinds)
    chosen: dict[tuple[_Kind, ...], list[int]] = {}
    for kind, hosts in examples.items():
        pairs = (
            fabric.nic_pair(source, host)
            for host in hosts[:1]
            for sources in examples.values()
            for source in sources
            if source != host
        )
        chosen[kind] = sorted({0, *(fabric.nics_of[pair[1].node].index(pair[1]) for pair in pairs if pair)})
    return {host: tuple(nics[place] for place in chosen[kinds[host]]) for host, nics in fabric.nics_of.items()}


def near_address(fabric: Fabric, source: NodeId, destination: NodeId) -> str | None:
    """Return the address by which programs on a host reach another one, its own first one for itself; None if none
    does."""
    if source == destination:
        return fabric.nics_of[source][0].ip
    pair = fabric.nic_pair(source, destination)
    return None if pair is None else pair[1].ip


_Kind = tuple[int, int, bool]
"""What decides whom a NIC reaches: its zone, its network, whether it is a storage node's."""


def _kind(fabric: Fabric, nic: Nic) -> _Kind:
    return nic.zone, fabric.network_of(nic), nic.node.role is Role.STORAGE


def _two_of_each(kinds: Mapping[_Thing, _Of]) -> dict[_Of, list[_Thing]]:
    """Return two things of each kind, or the only one: a thing is never asked whether it reaches itself."""
    found: dict[_Of, list[_Thing]] = defaultdict(list)
    for thing, kind in kinds.items():
        if len(found[kind]) < 2:
            found[kind].append(thing)
    return found


def _reach(fabric: Fabric, nics: Sequence[Nic], others: Iterable[Nic]) -> bool:
    return any(fabric.reaches(nic, other) for other in others for nic in nics)


def _block(ip: str) -> str:
    _, second, *_ = ip.split(".")
    return f"10.{second}.0.0/16"
