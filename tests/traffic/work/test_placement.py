"""Which rank is on which host or GPU."""

from __future__ import annotations

import pytest

from fabric.errors import ConfigError
from topologies.load import load_fabric
from traffic.work.placement import Placement, addresses_of, nodes_needed, placed, ranks_per_node, relays

POINTS = load_fabric("fire_flyer_2_tiny")
INSIDE = load_fabric("fire_flyer_2_nodes", ["compute=2", "storage=0", "leaves_per_zone=1", "spines_per_zone=1"])


def names(placement: Placement | list[str], ranks: int, per_node: int = 1, seed: int = 1) -> list[str]:
    nodes = POINTS.computes[: nodes_needed(ranks, per_node)]
    return [str(one) for one in placed(POINTS, nodes, ranks, per_node, placement, seed)]


def test_packed_fills_nodes_and_spread_goes_from_leaf_to_leaf() -> None:
    assert names(Placement.PACKED, 3, per_node=2) == ["z0h000", "z0h000", "z0h001"]
    leaves = {str(node): str(POINTS.leaf_of(POINTS.nics_of[node][0])) for node in POINTS.computes}
    spread = names(Placement.SPREAD, 8)
    assert sorted(spread) == sorted(leaves)
    assert len({leaves[name] for name in spread[:4]}) == 4
    twice = names(Placement.SPREAD, 8, per_node=2)
    assert twice[:4] == twice[4:]


def test_random_is_the_same_for_a_seed() -> None:
    assert names(Placement.RANDOM, 8) == names(Placement.RANDOM, 8)
    assert names(Placement.RANDOM, 8) != names(Placement.RANDOM, 8, seed=2)
    assert sorted(names(Placement.RANDOM, 8)) == names(Placement.PACKED, 8)


def test_a_list_says_where_each_rank_is() -> None:
    assert names(["z0h002", "z0h000", "z0h001"], 3) == ["z0h002", "z0h000", "z0h001"]
    with pytest.raises(ConfigError) as error:
        names(["z0h002", "z9h000", "z0h002"], 4)
    assert [fault.partition(";")[0] for fault in error.value.faults] == [
        "placement: names 3 places for 4 ranks",
        "placement: z9h000: none of the job's places",
        "placement: z0h002: 2 ranks",
    ]


def test_ranks_of_nodes_with_an_inside_are_gpus() -> None:
    assert INSIDE.inside is not None
    per_node = ranks_per_node(INSIDE, None)
    assert per_node == INSIDE.inside.gpus == 8
    gpus = placed(INSIDE, INSIDE.computes[:2], 16, per_node, Placement.PACKED, 1)
    assert [str(gpu) for gpu in gpus[6:10]] == ["z0h000.g6", "z0h000.g7", "z1h000.g0", "z1h000.g1"]


def test_as_many_nodes_as_ranks_need() -> None:
    with pytest.raises(ConfigError, match="nodes: 3; 4 ranks, 2 on a node, need 2; give so many"):
        placed(POINTS, POINTS.computes[:3], 4, 2, Placement.PACKED, 1)


def test_a_gpu_whose_nic_does_not_reach_another_goes_by_a_neighbours() -> None:
    """Planes that nothing joins: two NICs of each node in each of four, by turns."""
    fabric = load_fabric("next_generation_nodes")
    ranks = placed(fabric, fabric.computes[:2], 16, 8, Placement.PACKED, 1)
    found = relays(fabric, 0, ranks, range(16))
    assert fabric.inside is not None
    nics = [fabric.nics_of[rank.host][fabric.inside.nic_of_gpu[rank.place]] for rank in ranks]
    assert sorted(found) == [peer for peer in range(8, 16) if not fabric.reaches(nics[0], nics[peer])] != []
    for peer, address in found.items():
        by = next(rank for rank in range(8) if fabric.address_inside(ranks[rank]) == address)
        assert fabric.reaches(nics[by], nics[peer])
    assert len(addresses_of(fabric, ranks[0])) == 2, "one for its node, over NVSwitch"
    assert relays(INSIDE, 0, placed(INSIDE, INSIDE.computes[:2], 16, 8, Placement.PACKED, 1), range(16)) == {}
