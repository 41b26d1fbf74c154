"""Numbers of published setups that need no run: they are of plans and wirings. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache

from controllers.planning.collisions import collisions
from controllers.planning.planner import plan_routes
from controllers.planning.policies import ECMP, STATIC
from controllers.routing import Routing
from fabric.measures import Better, Measure
from topologies.load import load_fabric
from topologies.summary import summarize

LINKS_WITH = Measure("<policy>.links_with_<count>_fraction", "share of leaves' uplinks with this number of flows")
LINKS_WITH_IN_THEORY = Measure(
    "<policy>.links_with_<count>_theory_fraction", "share of leaves' uplinks that have as many in theory"
)
SWITCHES = Measure("<topology>.switches", "switches of a topology", Better.LESS)
OF_THREE_LAYERS = Measure(
    "fire_flyer_2.of_three_layers_fraction", "price of Fire-Flyer 2's network over one of three layers", Better.LESS
)
MEASURES = (LINKS_WITH, LINKS_WITH_IN_THEORY, SWITCHES, OF_THREE_LAYERS)
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
            found[LINKS_WITH.of(policy.name, count)] = one.counted.get(count, 0.0)
            found[LINKS_WITH_IN_THEORY.of(policy.name, count)] = one.theory.get(count, 0.0)
    return found


def switch_counts(seed: int) -> dict[str, float]:
    """Return how many switches topologies have; no seed changes that."""
    return dict(_switch_counts())


@cache
def _switch_counts() -> Mapping[str, float]:
    """Return the same for all seeds: the largest of these fabrics take a second each to build."""
    found = {name: summarize(load_fabric(name)) for name in _TOPOLOGIES}
    counts = {SWITCHES.of(name): float(one.switches) for name, one in found.items()}
    return counts | {OF_THREE_LAYERS.name: found["fire_flyer_2"].relative_cost}


COMPUTED: dict[str, Callable[[int], dict[str, float]]] = {one.__name__: one for one in (ecmp_collisions, switch_counts)}
"""By the names that cases call them by; each is given a seed and returns metrics by their paths."""
