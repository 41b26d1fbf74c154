"""Which rank is on which host, or GPU (pure)."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from enum import Enum

from fabric.errors import ConfigError, TopologyError
from fabric.model.identity import NodeId
from fabric.model.inside import gpu_of
from fabric.model.network import Fabric, Nic


class Placement(str, Enum):
    """``packed``: ranks fill a node, then the next; ``spread``: one after the other they go to the next leaf, and to
    the next node there; ``random``: to a random free place."""

    PACKED = "packed"
    SPREAD = "spread"
    RANDOM = "random"


def ranks_per_node(fabric: Fabric, asked: int | None) -> int:
    """Return how many ranks a node has: by default one, or of nodes with an inside one per GPU."""
    if asked is not None:
        return asked
    return 1 if fabric.inside is None else fabric.inside.gpus


def nodes_needed(ranks: int, per_node: int) -> int:
    """Return how many nodes so many ranks need."""
    return -(-ranks // per_node)


def placed(
    fabric: Fabric, nodes: Sequence[NodeId], ranks: int, per_node: int, placement: Placement | Sequence[str], seed: int
) -> tuple[NodeId, ...]:
    """Return the host of each rank, or its GPU where nodes have an inside. ``placement``: a rule, or the name of each
    rank's host or GPU. Raises ConfigError for names that are none of the nodes', and if they are too few."""
    if len(nodes) != nodes_needed(ranks, per_node):
        raise ConfigError(
            "work",
            [
                f"nodes: {len(nodes)}; {ranks} ranks, {per_node} on a node, need {nodes_needed(ranks, per_node)}; give "
                "so many, or change ranks_per_node"
            ],
        )
    if not isinstance(placement, Placement):
        return _as_named(fabric, nodes, ranks, per_node, placement)
    ordered = _leaf_by_leaf(fabric, nodes) if placement is Placement.SPREAD else list(nodes)
    if placement is Placement.SPREAD:
        places = [_place(fabric, node, number) for number in range(per_node) for node in ordered]
    else:
        places = [_place(fabric, node, number) for node in ordered for number in range(per_node)]
    if placement is Placement.RANDOM:
        random.Random(seed).shuffle(places)
    return tuple(places[:ranks])


def _place(fabric: Fabric, node: NodeId, number: int) -> NodeId:
    return node if fabric.inside is None else gpu_of(node, number)


def _leaf_by_leaf(fabric: Fabric, nodes: Sequence[NodeId]) -> list[NodeId]:
    """Return nodes dealt from one leaf after the other."""
    by_leaf: dict[NodeId, list[NodeId]] = {}
    for node in nodes:
        by_leaf.setdefault(fabric.leaf_of(fabric.nics_of[node][0]), []).append(node)
    longest = max(map(len, by_leaf.values()))
    return [of_leaf[turn] for turn in range(longest) for of_leaf in by_leaf.values() if turn < len(of_leaf)]


def unknown_places(fabric: Fabric, names: Sequence[str], ranks: int) -> list[str]:
    """Return what of names for ranks holds on no nodes of a fabric."""
    gpus = range(0 if fabric.inside is None else fabric.inside.gpus)
    known = {str(node) for node in fabric.computes}
    if gpus:
        known = {str(gpu_of(node, number)) for node in fabric.computes for number in gpus}
    kind = "GPU" if gpus else "compute node"
    faults = [f"placement: {name}: no {kind} of {fabric.name}; they run to {max(known)}" for name in {*names} - known]
    if len(names) != ranks:
        faults.append(f"placement: names {len(names)} places for {ranks} ranks; name one for each")
    return faults


def _as_named(
    fabric: Fabric, nodes: Sequence[NodeId], ranks: int, per_node: int, names: Sequence[str]
) -> tuple[NodeId, ...]:
    known = {str(place): place for node in nodes for place in (_place(fabric, node, n) for n in range(per_node))}
    faults = []
    if len(names) != ranks:
        faults.append(f"placement: names {len(names)} places for {ranks} ranks; name one for each")
    faults += [
        f"placement: {name}: none of the job's places; it has {', '.join(known)}" for name in {*names} - {*known}
    ]
    most = 1 if fabric.inside is not None else per_node
    crowded = sorted(name for name in {*names} if names.count(name) > most)
    faults += [f"placement: {name}: {names.count(name)} ranks; it has room for {most}" for name in crowded]
    if faults:
        raise ConfigError("work", faults)
    return tuple(known[name] for name in names)


def addresses_of(fabric: Fabric, place: NodeId) -> tuple[str, ...]:
    """Return the addresses of a rank's GPU: for GPUs of other nodes, and, where a switch joins those of a node, for
    these."""
    outer = fabric.address_inside(place)
    has_switch = fabric.inside is not None and fabric.inside.has_nvswitch
    return (outer, fabric.address_inside(place, nvlink=True)) if has_switch else (outer,)


def relays(fabric: Fabric, rank: int, places: Sequence[NodeId], peers: Iterable[int]) -> dict[int, str]:
    """Return, of a rank's peers in other nodes that its own NIC does not reach, the address from which it reaches each:
    that of the first GPU of its node that does, as if data were handed to it (NCCL's PXN). Raises TopologyError if
    none does."""
    found = {}
    for peer in peers:
        here, there = places[rank], places[peer]
        if here.host == there.host or not here.is_inside or _reaches(fabric, here, there):
            continue
        assert fabric.inside is not None
        gpus = (gpu_of(here.host, number) for number in range(fabric.inside.gpus))
        relay = next((gpu for gpu in gpus if _reaches(fabric, gpu, there)), None)
        if relay is None:
            raise TopologyError(fabric.name, [f"no NIC of {here.host} reaches that of {there}; place ranks elsewhere"])
        found[peer] = fabric.address_inside(relay)
    return found


def _reaches(fabric: Fabric, one: NodeId, other: NodeId) -> bool:
    return fabric.reaches(_nic_of(fabric, one), _nic_of(fabric, other))


def _nic_of(fabric: Fabric, gpu: NodeId) -> Nic:
    assert fabric.inside is not None
    return fabric.nics_of[gpu.host][fabric.inside.nic_of_gpu[gpu.place]]
