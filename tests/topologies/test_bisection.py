"""The bisection of regular layers is that of a search over all cuts, and so is that of any few switches."""

from __future__ import annotations

from itertools import combinations, product

import pytest

from fabric.model.identity import Role
from fabric.model.network import Fabric
from topologies import bisection
from topologies.bisection import bisection_bps
from topologies.load import fabric_of, load_fabric

GBIT = 10**9
LINE = [(number, number + 1) for number in range(7)]
MESH = [(at, at + 1) for at in range(9) if at % 3 < 2] + [(at, at + 3) for at in range(6)]


def leaves_joined(pairs: list[tuple[int, int]], *more: object) -> Fabric:
    """Return leaves with a host each, joined at 100 Gbit/s as pairs of their numbers say."""
    count = 1 + max(map(max, pairs))
    hosts = [f"z0h{leaf:03d}-z0l{leaf:02d}" for leaf in range(count)]
    links = [*hosts, *(f"z0l{a:02d}-z0l{b:02d}" for a, b in pairs), *more]
    return fabric_of({**RATES, "builder": "free_form", "links": links}, "test")


RATES = {"name": "test", "nic_rate": "100 Gbit/s", "uplink_rate": "100 Gbit/s", "mtu": 4200}
RATES["reference_nic_rate"] = "100 Gbit/s"


def searched_bps(fabric: Fabric) -> float:
    """Return the least rate over all cuts into halves of the leaves, by trying every side of every switch."""
    leaves = fabric.with_role(Role.LEAF)
    others = [switch for switch in fabric.switches if switch.role is not Role.LEAF]
    links = [link for link in fabric.links if link.a.node.is_switch and link.b.node.is_switch]
    found = []
    for half in combinations(leaves, len(leaves) // 2):
        for sides in product([False, True], repeat=len(others)):
            one = {*half, *(switch for switch, side in zip(others, sides, strict=True) if side)}
            found.append(sum(link.rate_bps for link in links if (link.a.node in one) != (link.b.node in one)))
    return min(found)


@pytest.mark.parametrize(
    ("pairs", "gbit"),
    [
        pytest.param([*LINE, (7, 0)], 200, id="ring"),
        pytest.param(LINE, 100, id="line"),
        pytest.param([(0, 1)], 100, id="two leaves"),
        pytest.param(list(combinations(range(6), 2)), 900, id="all with all"),
        pytest.param(MESH, 400, id="mesh"),
    ],
)
def test_leaves_that_are_joined_are_cut_where_it_is_least(pairs: list[tuple[int, int]], gbit: int) -> None:
    fabric = leaves_joined(pairs)
    assert bisection_bps(fabric) == gbit * GBIT == searched_bps(fabric)


def test_a_spine_takes_the_better_side_and_parallel_links_count() -> None:
    fabric = leaves_joined([(0, 1)], "z0l00-z0s00", {"a": "z0l01", "b": "z0s00", "count": 2})
    assert bisection_bps(fabric) == 200 * GBIT == searched_bps(fabric)
    assert bisection_bps(load_fabric("uneven_small")) == 20_000_000


@pytest.mark.parametrize(
    ("pods", "cores", "per_spine"), [(2, 1, 1), (2, 2, 2), (3, 1, 1), (4, 1, 1), (2, 2, 4), (3, 2, 2)]
)
def test_layers_are_cut_as_a_search_cuts_them(pods: int, cores: int, per_spine: int) -> None:
    sizes = {"pods": pods, "leaves_per_pod": 2, "spines_per_pod": 1, "uplinks_per_spine": 3, "switch_ports": 16}
    above = {"cores": {"switches": cores, "links_per_spine": per_spine}, "compute": 2 * pods}
    fabric = fabric_of({**RATES, **sizes, **above, "builder": "fat_tree"}, "test")
    assert bisection_bps(fabric) == searched_bps(fabric)


def test_what_is_too_much_to_search_is_not_known() -> None:
    assert bisection_bps(leaves_joined([(leaf, (leaf + 1) % 40) for leaf in range(40)])) is None
    assert bisection_bps(load_fabric("fat_tree_k16")) == 51_200 * GBIT


def test_planes_are_cut_each_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    fabric = load_fabric("rail_optimised_small")
    layers = bisection_bps(fabric)
    monkeypatch.setattr(bisection, "_of_layers", lambda *_: None)
    assert bisection_bps(fabric) == layers == bisection_bps(load_fabric("rail_optimised_small"))
