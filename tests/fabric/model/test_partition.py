"""Which guest plays which part of a fabric."""

from __future__ import annotations

import pytest

from fabric.errors import UsageError
from fabric.model.identity import Role
from fabric.model.network import Tier
from fabric.model.partition import partition
from tests.controllers.free_forms import free_form
from topologies.load import load_fabric

DELAYED = ("link_delay=1us", "inter_zone.delay=1us")
FABRICS = {
    "fire_flyer_2_small_200g": (),
    "fire_flyer_2": DELAYED,
    "fat_tree_k4": (),
    "fat_tree_k8": (),
    "dgx_a100_nodes": ("link_delay=1us",),
    "uneven_small": ("link_delay=1us",),
}


@pytest.mark.parametrize("name", FABRICS)
@pytest.mark.parametrize("guests", [1, 2, 3])
def test_every_node_is_in_one_guest_and_every_link_in_one_or_between_two(name: str, guests: int) -> None:
    fabric = load_fabric(name, FABRICS[name])
    parts = partition(fabric, guests)
    for nodes, of_guest in ((fabric.hosts, parts.hosts_of), (fabric.switches, parts.switches_of)):
        assert sorted(node for guest in range(guests) for node in of_guest(guest)) == sorted(nodes)
    within = [link for guest in range(guests) for link in parts.links_within(guest)]
    assert len(within) + len(parts.crossing) == len(fabric.links) + len(fabric.inner_links)
    assert {*within, *parts.crossing} == {*fabric.links, *fabric.inner_links}


@pytest.mark.parametrize("name", FABRICS)
def test_two_guests_have_about_as_many_hosts_each(name: str) -> None:
    parts = partition(load_fabric(name, FABRICS[name]), 2)
    one, other = (len(parts.hosts_of(guest)) for guest in range(2))
    assert abs(one - other) <= max(1, 0.2 * (one + other))


@pytest.mark.parametrize("name", ["fire_flyer_2_small_200g", "fire_flyer_2"])
def test_each_zone_of_fire_flyer_2_is_a_guest(name: str) -> None:
    fabric = load_fabric(name, FABRICS[name])
    parts = partition(fabric, 2)
    for role in (Role.COMPUTE, Role.LEAF, Role.SPINE):
        assert {(node.zone, parts.guest_of(node)) for node in fabric.with_role(role)} == {(0, 0), (1, 1)}
    # All others have their nodes' two zones at their ends.
    for link in parts.crossing:
        assert link.tier is Tier.INTER_ZONE or Role.STORAGE in {port.node.role for port in link.ports}


def test_leaves_stay_with_their_hosts() -> None:
    fabric = load_fabric("fat_tree_k8")
    parts = partition(fabric, 4)
    for nic in fabric.nics:
        assert parts.guest_of(nic.node) == parts.guest_of(fabric.leaf_of(nic))


def test_one_guest_may_be_ahead_of_another_by_the_least_delay_between_them() -> None:
    fabric = load_fabric("fire_flyer_2_small_200g", ["inter_zone.delay=0.3us"])
    assert partition(fabric, 2).lookahead_ns == 300
    assert partition(fabric, 1).lookahead_ns == 0


def test_parts_cannot_be_cut_along_links_without_a_delay() -> None:
    with pytest.raises(UsageError, match=r"--guests 2: the link .* has no delay.* set topology.link_delay"):
        partition(load_fabric("fire_flyer_2_small"), 2)


def test_there_is_a_host_for_each_guest() -> None:
    with pytest.raises(UsageError, match=r"--guests 5: .* has only 4 hosts"):
        partition(load_fabric("dgx_a100_nodes"), 5)


def test_switches_without_a_way_to_a_host_are_in_the_first_guest() -> None:
    fabric = free_form(["z0h000-z0l00", "z0h001-z0l01", {"a": "z0l00", "b": "z0l01", "delay": "1 us"}, "z0s00-z0s01"])
    for guests in (1, 2):
        found = partition(fabric, guests)
        assert {found.guest_of(spine) for spine in fabric.with_role(Role.SPINE)} == {0}
