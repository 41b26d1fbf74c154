"""Levels and networks of a graph of nodes: how far up a switch is, and what has a way to what."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from fabric.model.identity import NodeId

Neighbours = Mapping[NodeId, Collection[NodeId]]
"""The nodes that each node has a link to."""


def levels_of(hosts: Iterable[NodeId], leaves: Iterable[NodeId], neighbours: Neighbours) -> dict[NodeId, int]:
    """Return each node's level: hosts 0, leaves 1, others one above the lowest that they have a link to.

    What has no way to a leaf is one above all.
    """
    levels = dict.fromkeys(hosts, 0)
    edge = list(leaves)
    level = 1
    while edge:
        levels.update(dict.fromkeys(edge, level))
        edge = list(dict.fromkeys(peer for node in edge for peer in neighbours[node] if peer not in levels))
        level += 1
    return levels | {node: level for node in neighbours if node not in levels}


def hops_from(start: NodeId, neighbours: Neighbours) -> dict[NodeId, int]:
    """Return the links on the shortest way from a node to each that has one; 0 to itself."""
    hops, edge, distance = {start: 0}, [start], 0
    while edge:
        distance += 1
        edge = list(dict.fromkeys(peer for node in edge for peer in neighbours[node] if peer not in hops))
        hops.update(dict.fromkeys(edge, distance))
    return hops


def networks_of(nodes: Iterable[NodeId], neighbours: Neighbours) -> tuple[frozenset[NodeId], ...]:
    """Return the parts of a graph of ``nodes`` that no link joins, the one with the first node first."""
    left = dict.fromkeys(nodes)
    found = []
    while left:
        part = _joined(next(iter(left)), left, neighbours)
        found.append(part)
        left = {node: None for node in left if node not in part}
    return tuple(found)


def _joined(start: NodeId, among: Collection[NodeId], neighbours: Neighbours) -> frozenset[NodeId]:
    part, edge = {start}, [start]
    while edge:
        for peer in neighbours[edge.pop()]:
            if peer in among and peer not in part:
                part.add(peer)
                edge.append(peer)
    return frozenset(part)
