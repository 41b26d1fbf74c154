"""Who sends to whom: every NIC sends and receives as much as every other, within its network."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from fabric.errors import UsageError
from fabric.model.identity import Role
from fabric.model.patterns import all_to_all, all_to_all_in, compute_nics, permutation
from topologies.load import load_fabric

SMALL = load_fabric("fire_flyer_2_small")


@pytest.mark.parametrize(("most", "each"), [(10_000, 23), (24 * 23, 23), (100, 4), (1, 1)])
def test_all_to_all_gives_every_nic_as_much_to_send_as_to_receive(most: int, each: int) -> None:
    nics = [nic for nic in SMALL.nics if nic.node.role is Role.COMPUTE]
    flows, found = all_to_all(nics, most)
    assert found == each
    assert len(set(flows)) == len(flows) == 24 * each
    assert set(Counter(source for source, _ in flows).values()) == {each}
    assert set(Counter(destination for _, destination in flows).values()) == {each}
    assert all(source != destination for source, destination in flows)


@pytest.mark.parametrize(
    ("name", "flows"), [("rail_optimised_small", 16 * 12), ("next_generation_32768_small", 16 * 3)]
)
def test_all_to_all_stays_within_networks_and_leaves_out_a_hosts_own_nics(name: str, flows: int) -> None:
    fabric = load_fabric(name)
    made, _ = all_to_all_in(fabric, fabric.nics, 10_000)
    assert len(set(made)) == len(made) == flows
    assert all(fabric.reaches(*pair) for pair in made)
    fewer, each = all_to_all_in(fabric, fabric.nics, 48)
    assert each == 3
    assert len(fewer) <= 48


@pytest.mark.parametrize("name", ["fat_tree_k4", "rail_optimised_small", "next_generation_32768_small", "dual_tor"])
def test_in_a_permutation_every_nic_sends_one_flow_and_receives_one_of_another_host(name: str) -> None:
    fabric = load_fabric(name)
    nics = compute_nics(fabric)
    one, same, other = (permutation(fabric, nics, random.Random(seed)) for seed in (1, 1, 2))
    assert one == same != other
    assert [source for source, _ in one] != [destination for _, destination in one]
    assert {source for source, _ in one} == {destination for _, destination in one} == set(nics)
    assert all(fabric.reaches(*pair) for pair in one)


def test_where_a_host_has_more_than_half_of_the_nics_there_is_no_permutation() -> None:
    fabric = load_fabric("rail_optimised_small")
    some = [*fabric.nics_of[fabric.computes[0]], fabric.nics_of[fabric.computes[1]][0]]
    with pytest.raises(UsageError, match="has 4 of the 5 NICs of its network"):
        permutation(fabric, some, random.Random(1))
