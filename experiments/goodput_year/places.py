"""Where a platform's job is, and which leaf is whose. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from cluster.decisions import Action
from cluster.nodes import GROUP, Nodes
from cluster.policies import HAI
from cluster.scheduler import ClusterState, tick
from cluster.tasks import Task, Users
from fabric.model.network import Fabric


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


def first_nodes(nodes: Nodes, count: int) -> tuple[str, ...]:
    """Return the nodes that a job of ``count`` gets if it is alone. Raises ValueError if it gets none."""
    (decision,) = tick(ClusterState(nodes, Users(), [Task(1, "ada", count)], 0.0), HAI, 1)
    if decision.action is not Action.START:
        raise ValueError(f"a job of {count} nodes does not start on {', '.join(nodes.names)}: {decision.reason.value}")
    return tuple(nodes.names[place] for place in decision.nodes)
