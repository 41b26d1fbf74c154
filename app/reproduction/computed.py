"""Numbers of published setups that need no run: they are of plans and wirings. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache

from controllers.planning.collisions import collisions
from controllers.planning.planner import plan_routes
from controllers.planning.policies import ECMP, STATIC
from controllers.routing import Routing
from topologies.load import load_fabric
from topologies.summary import summarize

_PERMUTATIONS = 40
_TOPOLOGIES = ("fire_flyer_2", "three_layer_1600", "dgx_a100_10000", "dgx_superpod_140")
_MOST_FLOWS = 4


def ecmp_collisions(seed: int) -> dict[str, float]:
    """Return the share of leaves' uplinks with each number of flows of random permutations, and what theory says."""
    fabric = load_fabric("fat_tree_k8")
    found: dict[str, float] = {}
    for policy in (ECMP, STATIC):
        one = collisions(fabric, plan_routes(fabric, Routing(policy=policy)), policy, _PERMUTATIONS, seed)
        for count in range(_MOST_FLOWS + 1):
            found[f"{policy.name}.links_with_{count}_fraction"] = one.counted.get(count, 0.0)
            found[f"{policy.name}.links_with_{count}_theory_fraction"] = one.theory.get(count, 0.0)
    return found


def switch_counts(seed: int) -> dict[str, float]:
    """Return how many switches topologies have; no seed changes that."""
    return dict(_switch_counts())


@cache
def _switch_counts() -> Mapping[str, float]:
    """Return the same for all seeds: the largest of these fabrics take a second each to build."""
    found = {name: summarize(load_fabric(name)) for name in _TOPOLOGIES}
    counts = {f"{name}.switches": float(one.switches) for name, one in found.items()}
    return counts | {"fire_flyer_2.of_three_layers_fraction": found["fire_flyer_2"].relative_cost}


COMPUTED: dict[str, Callable[[int], dict[str, float]]] = {one.__name__: one for one in (ecmp_collisions, switch_counts)}
"""By the names that cases call them by; each is given a seed and returns metrics by their paths."""
