"""Counts of fat-trees against closed forms and what is published; where hosts are; what is refused."""

from __future__ import annotations

from collections import Counter
from functools import cache
from typing import Any

import pytest

from fabric.errors import ConfigError
from fabric.model.identity import Role
from fabric.model.network import Fabric
from topologies.load import fabric_of, load_fabric, read_topology

CORES = {"switches": 4, "groups": 2, "links_per_spine": 2}


@cache
def fabric_named(name: str) -> Fabric:
    return load_fabric(name)


@pytest.mark.parametrize(
    ("name", "leaves", "spines", "cores", "ports", "nics", "links"),
    [
        ("three_layer_1600", 80, 80, 40, 1600, 1560, 1560 + 1600 + 1600),
        ("dgx_a100_10000", 500, 500, 320, 10_000, 10_000, 30_000),
        ("dgx_superpod_140", 7 * 8, 80, 28, 1120, 1120, 3 * 1120),
        ("next_generation_32768", 4 * 128, 4 * 64, 0, 32_768, 32_768, 2 * 32_768),
        ("rail_optimised", 8, 8, 0, 256, 256, 2 * 256),
        ("dual_tor", 16, 16, 0, 512, 512, 2 * 512),
        ("fat_tree_k4", 8, 8, 4, 16, 16, 3 * 16),
        ("fat_tree_k8", 32, 32, 16, 128, 128, 3 * 128),
        ("fat_tree_k16", 128, 128, 64, 1024, 1024, 3 * 1024),
    ],
)
def test_published_sizes(name: str, leaves: int, spines: int, cores: int, ports: int, nics: int, links: int) -> None:
    fabric = fabric_named(name)
    counts = [len(fabric.with_role(role)) for role in (Role.LEAF, Role.SPINE, Role.CORE)]
    assert counts == [leaves, spines, cores]
    assert (fabric.access_ports, len(fabric.nics), len(fabric.links)) == (ports, nics, links)
    assert all(len(found) <= fabric.switch_ports for node, found in fabric.ports_of.items() if node.is_switch)


@pytest.mark.parametrize("name", ["three_layer_1600", "dgx_superpod_140", "fat_tree_k4", "fat_tree_k8", "fat_tree_k16"])
def test_every_port_of_a_core_is_used_and_leads_to_every_pod_equally(name: str) -> None:
    fabric, keys = fabric_named(name), read_topology(name)
    for core in fabric.with_role(Role.CORE):
        pods = Counter(fabric.peer(port).node.index // keys["spines_per_pod"] for port in fabric.ports_of[core])
        assert pods.total() == fabric.switch_ports
        assert len(pods) == keys["pods"]
        assert len(set(pods.values())) == 1


def test_uneven_core_links_differ_by_one_port() -> None:
    fabric = fabric_named("dgx_a100_10000")
    ports = Counter(len(fabric.ports_of[core]) for core in fabric.with_role(Role.CORE))
    assert set(ports) == {31, 32}  # 25 pods x 20 links / 16 cores = 31.25.


@pytest.mark.parametrize("name", ["three_layer_1600", "dgx_a100_10000", "dgx_superpod_140", "fat_tree_k8"])
def test_leaves_have_as_many_nics_as_uplinks(name: str) -> None:
    fabric = fabric_named(name)
    for leaf in fabric.with_role(Role.LEAF):
        assert abs(len(fabric.nics_on_leaf(leaf)) - len(fabric.uplinks_of(leaf))) <= 1


@pytest.mark.parametrize("name", ["rail_optimised", "dgx_superpod_140"])
def test_a_leaf_has_one_rail(name: str) -> None:
    fabric = fabric_named(name)
    for leaf in fabric.with_role(Role.LEAF):
        assert len({nic.port.number for nic in fabric.nics_on_leaf(leaf)}) == 1


def test_the_leaves_of_a_superpods_unit_have_its_twenty_nodes() -> None:
    fabric = fabric_named("dgx_superpod_140")
    for unit in range(7):
        leaves = [leaf for leaf in fabric.with_role(Role.LEAF) if leaf.index % 7 == unit]
        hosts = {nic.node.index // 20 for leaf in leaves for nic in fabric.nics_on_leaf(leaf)}
        assert (len(leaves), hosts) == (8, {unit})


def test_the_two_ports_of_a_nic_are_on_two_leaves() -> None:
    fabric = fabric_named("dual_tor")
    for host in fabric.computes:
        nics = fabric.nics_of[host]
        assert all(fabric.leaf_of(nics[rail]) != fabric.leaf_of(nics[rail + 8]) for rail in range(8))


def test_planes_are_networks_of_their_own_with_equal_shares_of_every_node() -> None:
    fabric = fabric_named("next_generation_32768_small")
    assert len(fabric.networks) == 4
    for host in fabric.computes:
        assert Counter(fabric.network_of(nic) for nic in fabric.nics_of[host]) == dict.fromkeys(range(4), 1)


def test_hosts_of_k_ary_trees_are_numbered_leaf_by_leaf() -> None:
    fabric = fabric_named("fat_tree_k8")
    assert [fabric.leaf_of(nic).index for nic in fabric.nics] == [number // 4 for number in range(128)]


def test_addresses_tell_the_nic_and_the_host() -> None:
    fabric = fabric_named("rail_optimised_small")
    assert fabric.nic_at_ip["10.3.0.2"].port == fabric.nics_of[fabric.host_named("z0h001")][3].port


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"cores": {**CORES, "groups": 3}}, "cores.groups: 3 must divide cores.switches 4 and spines_per_pod 2"),
        (
            {"nics": "across_pods", "nics_per_host": 3},
            "nics_per_host: 3 NICs cannot be dealt to 4 pods; use a multiple",
        ),
        (
            {"cores": None},
            "pods: 4 pods without cores do not reach each other; set cores, or nics: across_pods",
        ),
        ({"compute": 3}, "compute: 3 leave pods without a host; use at least 4"),
        ({"compute": 17}, "compute: a leaf would have 3 NICs on 2 ports for hosts; use fewer, or more leaves"),
        (
            {"cores": {**CORES, "links_per_spine": 3}},
            "switch_ports: a spine needs 5 ports, has 4; raise it or use fewer links",
        ),
        ({"switch_ports": 2}, "switch_ports: 2 leave none for hosts next to a leaf's uplinks; raise it"),
        ({"compute": 70_000}, "compute: 70000 exceeds 65000, the most that the addresses allow; use fewer"),
    ],
)
def test_what_cannot_be_wired_is_told(changes: dict[str, Any], fault: str) -> None:
    with pytest.raises(ConfigError) as refused:
        fabric_of({**read_topology("fat_tree_k4"), **changes}, "test")
    assert fault in refused.value.faults


# Free form


def test_links_may_be_words_or_keys_and_several() -> None:
    fabric = fabric_named("uneven_small")
    assert [str(link) for link in fabric.links][3:6] == ["z0l00:3--z0s00:1", "z0l01:2--z0s00:2", "z0l01:3--z0s00:3"]
    assert {link.rate_bps for link in fabric.links} == {10**7, 2 * 10**7}
    assert (fabric.switch_ports, fabric.access_ports) == (4, 3)


_STAR = ["z0h000-z0l00", "z0h001-z0l00"]


@pytest.mark.parametrize(
    ("links", "fault"),
    [
        ([], "links: "),
        (["z0h000"], "links.0.b: "),
        (["z0h000-z0l0"], "links: 'z0l0' is not a node's name; did you mean 'z0l00'?"),
        (["z0h000-z0s00"], "link z0h000:0--z0s00:1: host z0h000 must be linked to a leaf, not to z0s00"),
        (["z0h000-z0h001"], "link z0h000-z0h001: joins two hosts; put a switch between them, with a link to each"),
        (["z0h000-z0h001-z0l00"], "'z0h000-z0h001-z0l00' has more than one '-'; write it as {a: z0h000, "),
        (["z0s00-z0l00"], "links: no link has a host; add one to a leaf, e.g. z0h000-z0l00"),
        (["z1h000-z1l00"], "zones: 1; number them from 0 to at most 99, and leave none out"),
        (["z0h000-z0l00", "z0l00-z1s00"], "node z1s00: zone 1 has no leaf; add z1l00, or name it of a zone that has"),
        (["z0h000-z0l00", "z1h000-z1l00", "z0h000-z1l00"], "NICs in one need hosts of different numbers; 0 is taken"),
        (["z0h70000-z0l00"], "node z0h70000: number 70000 exceeds 64999; use a lower one"),
        (["z0h000-z0l00"] * 129, "node z0h000: 129 NICs exceed 128; use fewer links"),
        ([*_STAR, {"a": "z0l00", "b": "z0l01", "count": 65280}], "node z0l00: 65282 ports exceed 65280; use fewer"),
        ([*_STAR, {"a": "z0l00", "b": "z0l01", "count": 65281}], "links.2.count: Input should be less than or equal"),
    ],
)
def test_links_that_are_none_are_told(links: list[Any], fault: str) -> None:
    with pytest.raises(ConfigError) as refused:
        fabric_of({**read_topology("uneven_small"), "links": links}, "test")
    assert any(fault in found for found in refused.value.faults), refused.value.faults


def test_the_first_fault_of_two_hosts_without_a_switch_stands_alone() -> None:
    """Nothing is said of addresses that a link of no switch does not give."""
    with pytest.raises(ConfigError) as refused:
        fabric_of({**read_topology("uneven_small"), "links": ["z0h000-z0h001"]}, "test")
    assert len(refused.value.faults) == 1


@pytest.mark.parametrize("changes", [{"uplink_rate": None}, {"switch_ports": None}, {"nic_rate": "fast"}])
def test_who_gives_an_oversubscription_is_not_asked_for_spines(changes: dict[str, Any]) -> None:
    """Whatever else is missing or wrong of what it is made of."""
    whole = {
        "name": "three_to_one", "builder": "fat_tree", "leaves_per_pod": 4, "oversubscription": 3, "switch_ports": 16,
        "compute": 48, "nic_rate": "100 Gbit/s", "uplink_rate": "100 Gbit/s", "mtu": 4200,
        "reference_nic_rate": "100 Gbit/s",
    }  # fmt: skip
    assert len(fabric_of(whole, "ours").with_role(Role.SPINE)) == 4
    (changed,) = changes
    wrong = {name: value for name, value in (whole | changes).items() if value is not None}
    with pytest.raises(ConfigError) as told:
        fabric_of(wrong, "ours")
    assert changed in str(told.value) and "spines_per_pod" not in str(told.value)
