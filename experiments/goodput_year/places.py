"""Where a platform's job is, and which leaf is whose. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from cluster.decisions import Action
from cluster.nodes import GROUP, Nodes
from cluster.placement import Placement
from cluster.policies import HAI
from cluster.scheduler import ClusterState, tick
from cluster.tasks import Task, Users
from fabric.errors import FabricError
from fabric.model.identity import NodeId
from fabric.model.network import Fabric, Tier


def leaf_names(fabric: Fabric, nodes: Sequence[str]) -> Mapping[str, str]:
    """Return the leaves of those of a platform's nodes that share theirs with no other one, the scheduler's left
    out."""
    leaves = {}
    for name in nodes:
        leaves[name] = fabric.leaf_of(fabric.nics_of[fabric.host_named(name)][0]).name
    shared = Counter(leaves.values())
    return {name: leaf for name, leaf in leaves.items() if shared[leaf] == 1 and name != nodes[0]}


def listed(fabric: Fabric, names: Sequence[str]) -> Nodes:
    """Return some nodes of a fabric as a scheduler sees them, all ready."""
    whole = Nodes.of(fabric)
    places = np.array([whole.names.index(name) for name in names], dtype=np.int64)
    return Nodes(
        tuple(names),
        whole.zones[places],
        whole.leaves[places],
        (GROUP,),
        np.zeros(len(places), dtype=np.int64),
        np.ones(len(places), dtype=np.bool_),
    )


def by_leaf(fabric: Fabric, nodes: Sequence[str]) -> Mapping[str, tuple[str, ...]]:
    """Return the leaves of nodes, with those that each has."""
    found: dict[str, tuple[str, ...]] = {}
    for name in nodes:
        leaf = fabric.leaf_of(fabric.nics_of[fabric.host_named(name)][0]).name
        found[leaf] = (*found.get(leaf, ()), name)
    return found


def leaf_faults(fabric: Fabric, nodes: Sequence[str], job: int) -> Iterator[str]:
    """Yield why no leaf with several nodes of a job can be taken, so that the job begins again on the others."""
    try:
        hosts = [fabric.host_named(name) for name in nodes]
    except FabricError as error:
        yield f"nodes: {error}"
        return
    if wrong := [host.name for host in hosts if host not in fabric.computes]:
        yield f"nodes: {', '.join(wrong)}: no compute node; choose others"
        return
    scheduler, *rest = by_leaf(fabric, nodes).items()
    if len(scheduler[1]) > 1:
        yield f"nodes: the scheduler's leaf, {scheduler[0]}, has {scheduler[1][1]}, too; choose others"
    elif not rest or len(max(rest, key=lambda one: len(one[1]))[1]) < 2:
        yield "nodes: no leaf has two of them; choose others"
    elif job > (left := len(nodes) - 1 - max(len(names) for _, names in rest)):
        yield f"job: {job} nodes, but without the fullest leaf {left} are left; lower it, or name more nodes"


def spines_above(fabric: Fabric, node: NodeId) -> tuple[str, ...]:
    """Return the switches that the leaf of a node's first NIC has links up to."""
    leaf = fabric.leaf_of(fabric.nics_of[node][0])
    ends = [end.node for link in fabric.links_of_tier(Tier.UPLINK) for end in (link.a, link.b)
            if leaf in (link.a.node, link.b.node)]  # fmt: skip
    return tuple(dict.fromkeys(end.name for end in ends if end != leaf))


def first_nodes(nodes: Nodes, count: int, placement: Placement = Placement.PACKED) -> tuple[str, ...]:
    """Return the nodes that a job of ``count`` gets if it is alone. Raises ValueError if it gets none."""
    (decision,) = tick(ClusterState(nodes, Users(), [Task(1, "ada", count)], 0.0), HAI.placed(placement), 1)
    if decision.action is not Action.START:
        raise ValueError(f"a job of {count} nodes does not start on {', '.join(nodes.names)}: {decision.reason.value}")
    return tuple(nodes.names[place] for place in decision.nodes)
