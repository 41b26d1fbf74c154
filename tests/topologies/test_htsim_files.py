"""htsim's topology files."""

from __future__ import annotations

from pathlib import Path

import pytest

from controllers.planning.paths import planned_path, port_load
from controllers.planning.planner import plan_routes
from controllers.planning.policies import ECMP
from controllers.routing import Routing
from fabric.config import files_noted
from fabric.errors import ConfigError
from fabric.model.identity import Role
from fabric.model.network import Tier
from tests.controllers.free_forms import verify_delivery
from tests.experiments.replay.htsim import LEAF_SPINE
from topologies.htsim_files import read_topology_file, topology_of
from topologies.load import fabric_of, load_fabric

THREE_TIERS = """
Nodes 16
Tiers 3
Podsize 4
Tier 0
Downlink_speed_Gbps 100
Radix_Down 2
Radix_Up 2
Downlink_Latency_ns 1000
Tier 1
Downlink_speed_Gbps 100
Radix_Down 2
Radix_Up 2
Downlink_Latency_ns 1000
Bundle 1
Tier 2
Downlink_speed_Gbps 100
Radix_Down 4
Downlink_Latency_ns 1000
"""


def test_a_leaf_spine_fabric_has_the_files_switches_and_links() -> None:
    fabric = fabric_of(read_topology_file(LEAF_SPINE), "leaf_spine")
    assert len(fabric.computes) == 32
    assert (len(fabric.with_role(Role.LEAF)), len(fabric.with_role(Role.SPINE))) == (4, 2)
    assert len(fabric.links_of_tier(Tier.UPLINK)) == 8
    assert {(link.rate_bps, link.delay_ns) for link in fabric.links} == {(100 * 10**9, 1000)}


def test_three_tiers_are_the_k_ary_fat_tree() -> None:
    fabric, known = fabric_of(topology_of(THREE_TIERS, "k4.topo"), "k4"), load_fabric("fat_tree_k4")
    assert {str(link): (link.rate_bps, link.delay_ns) for link in fabric.links} == {
        str(link): (link.rate_bps, link.delay_ns) for link in known.links
    }


FAULTS = {
    "word": (("Podsize 4", "Podsize four"), "line 4: 'Podsize four': must be one of"),
    "key": (("Bundle 1", "Colour 1"), "line 15: 'Colour 1': must be one of"),
    "tiers": (("Tiers 3", "Tiers 4"), "Tiers 4: fat-trees of 2 or 3 tiers"),
    "missing": (("Radix_Up 2\n", ""), "Tier 0: Radix_Up: is missing"),
    "uneven": (("Nodes 16", "Nodes 18"), "Nodes in pods: 18 are not a multiple of 4"),
    "oversubscribed": (("Tier 1", "Oversubscribed 4\nTier 1"), "Oversubscribed 4: by its radices and rates it is 1"),
    "oversubscribed above": (("Bundle 1", "Oversubscribed 2"), "Tier 1: Oversubscribed 2: by its radices and rates"),
    "another shape": (("Nodes 16", "topology dragonfly"), "line 2: 'topology dragonfly': only fat-trees can be read"),
    "queues": (("Bundle 1", "Queue_Up 9000"), "Tier 1: Queue_Up: sizes of queues are keys of a run"),
    "bundle of hosts": (("Tier 1", "Bundle 2\nTier 1"), "Tier 0: Bundle: a host has one link to its leaf"),
    "bundle 0": (("Bundle 1", "Bundle 0"), "Tier 1: Bundle 0: must be at least 1"),
    "bundle": (("Bundle 1", "Bundle 2"), "Bundle 2: Radix_Up 2 of tier 0 leads to 2 spines of its pod; set it to 1"),
    "cores": (("Radix_Down 4", "Radix_Down 16"), "cores at the spines of a pod: 1 are not a multiple of 2"),
    "up from the top": (
        ("Radix_Down 4", "Radix_Down 4\nRadix_Up 2"),
        "Tier 2: Radix_Up: the highest tier has no links",
    ),
    "twice": (("Podsize 4", "Podsize 4\nPodsize 8"), "line 5: 'Podsize 8': Podsize is 4 above; remove one"),
    "tier twice": (("Tier 2", "Tier 1"), "line 16: 'Tier 1': is there twice"),
    "tier too many": (("Tiers 3", "Tiers 2"), "Tier 2: Tiers is 2, counted from 0; remove it, or raise Tiers"),
    "nothing": (("Nodes 16", "Nodes 0"), "Nodes 0: must be at least 1"),
    "no pods": (("Podsize 4", "Podsize 0"), "Podsize 0: must be at least 1"),
    "too large pods": (("Podsize 4", "Podsize 32"), "Nodes in pods: 16 are not a multiple of 32"),
    "too many": (("Nodes 16", "Nodes 1000000000"), "Nodes 1000000000: exceeds 65000"),
    "a digit that is none": (("Podsize 4", "Podsize \u00b2"), "must be one of Nodes, Podsize, Tier, Tiers, and a num"),
    "digits": (
        ("Nodes 16", f"Nodes {'9' * 5000}"),
        "line 2: 'Nodes 9{74}': must be one of .* and a number up to 1,000,000,000",
    ),
    "third word": (("Podsize 4", "Podsize 4 5"), "line 4: 'Podsize 4 5': must be one of"),
}


@pytest.mark.parametrize(("change", "words"), FAULTS.values(), ids=list(FAULTS))
def test_what_cannot_be_had_is_named(change: tuple[str, str], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        topology_of(THREE_TIERS.replace(*change, 1), "k4.topo")


def test_two_tiers_are_one_pod(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="Podsize 16: two tiers are one pod of all 32 nodes; set it to that"):
        topology_of(LEAF_SPINE.read_text().replace("Podsize 32", "Podsize 16"), "two.topo")


def test_a_file_that_is_not_utf_8_is_told(tmp_path: Path) -> None:
    (tmp_path / "a.topo").write_bytes("# für\nNodes 16\n".encode("latin-1"))
    with pytest.raises(ConfigError, match=r"is not UTF-8 \(byte 3, 0xfc\); give the path of an htsim topology file"):
        read_topology_file(tmp_path / "a.topo")


# What the builder of fat-trees cannot make


SLOW_CORES = """
nodes 8           # keys in any case, with comments behind them
TIERS 3
Podsize 4
Tier 0
downlink_speed_gbps 200
Radix_Down 2
Radix_Up 2
Downlink_Latency_ns 1000
Tier 1
Downlink_speed_Gbps 200
Radix_Down 2
Radix_Up 4
Downlink_Latency_ns 1000
Oversubscribed 1
Tier 2
Downlink_speed_Gbps 100
Radix_Down 4
Downlink_Latency_ns 1000
Bundle 2
"""


def test_cores_at_half_the_rate_have_bundles_of_two() -> None:
    """4 leaves, 4 spines, 4 cores, each spine with two links of 100 Gbit/s to each of two."""
    fabric = fabric_of(topology_of(SLOW_CORES, "8nodes.topo"), "8nodes")
    assert [len(fabric.with_role(role)) for role in (Role.COMPUTE, Role.LEAF, Role.SPINE, Role.CORE)] == [8, 4, 4, 4]
    assert {(link.a.node.role, link.b.node.role, link.rate_bps // 10**9) for link in fabric.links} == {
        (Role.COMPUTE, Role.LEAF, 200),
        (Role.LEAF, Role.SPINE, 200),
        (Role.SPINE, Role.CORE, 100),
    }
    for spine in fabric.with_role(Role.SPINE):
        cores = [fabric.peer(port).node for port in fabric.uplinks_of(spine)]
        assert sorted(map(cores.count, set(cores))) == [2, 2]
    for core in fabric.with_role(Role.CORE):
        assert len(fabric.ports_of[core]) == 4
    verify_delivery(fabric, plan_routes(fabric, Routing(policy=ECMP)))
    loads = port_load(plan_routes(fabric, Routing()), fabric)
    assert {loads[port] for core in fabric.with_role(Role.CORE) for port in fabric.ports_of[core]} == {2}


@pytest.mark.parametrize(("rate", "asked", "fits"), [(100, 4, True), (400, 4, True), (400, 1, True), (400, 2, False)])
def test_oversubscription_may_be_that_of_ports_or_of_rates(rate: int, asked: int, fits: bool) -> None:
    """Eight hosts of 100 Gbit/s on two uplinks: 4 to 1 in ports, and in rates 1 to 1 if uplinks have 400 Gbit/s."""
    text = LEAF_SPINE.read_text().replace("Oversubscribed 4", f"Oversubscribed {asked}")
    head, tail = text.split("Tier 1")
    text = f"{head}Tier 1{tail.replace('Gbps 100', f'Gbps {rate}')}"
    if fits:
        fabric = fabric_of(topology_of(text, "leaf_spine.topo"), "leaf_spine")
        assert {link.rate_bps // 10**9 for link in fabric.links_of_tier(Tier.UPLINK)} == {rate}
    else:
        with pytest.raises(ConfigError, match=r"it is 1 \(4 by radices alone\); set it to that"):
            topology_of(text, "leaf_spine.topo")


def test_a_bundle_that_is_missing_is_named() -> None:
    """With one link to each of two cores, each spine would have two links up, and not the four that its radix says."""
    words = "Tier 2: Bundle 1: Radix_Up 4 of tier 1 leads to 2 cores that each spine reaches; set it to 2"
    with pytest.raises(ConfigError, match=words):
        topology_of(SLOW_CORES.replace("Bundle 2", ""), "8nodes.topo")


def test_tiers_have_delays_of_their_own_and_switches_theirs_in_halves() -> None:
    changes = (
        "Radix_Down 4\nDownlink_Latency_ns 1000",
        "Radix_Down 4\nDownlink_Latency_ns 3000\nSwitch_Latency_ns 400",
    )
    text = (
        THREE_TIERS.replace(*changes)
        .replace("Bundle 1", "Switch_Latency_ns 200")
        .replace("Tier 1", "Switch_Latency_ns 100\nTier 1")
    )
    fabric = fabric_of(topology_of(text, "delays.topo"), "delays")
    known = load_fabric("fat_tree_k4")
    assert [(link.a, link.b) for link in fabric.links] == [(link.a, link.b) for link in known.links]
    delays = {(link.a.node.role, link.b.node.role): link.delay_ns for link in fabric.links}
    assert delays == {
        (Role.COMPUTE, Role.LEAF): 1050,
        (Role.LEAF, Role.SPINE): 1150,
        (Role.SPINE, Role.CORE): 3300,
    }
    path = planned_path(plan_routes(fabric, Routing()), fabric, fabric.nics[0], fabric.nics[-1])
    assert sum(fabric.link_at[port].delay_ns for port in path) == 2 * (1000 + 1000 + 3000) + 100 + 200 + 400 + 200 + 100


def test_such_a_file_is_a_topology_for_every_command(tmp_path: Path) -> None:
    path = tmp_path / "8 nodes.v2.topo"
    path.write_text(SLOW_CORES)
    with files_noted() as files:
        assert load_fabric(str(path), ["mtu=1500"]).name == "8_nodes_v2"
    assert files == [path]


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        read_topology_file(tmp_path / "none.topo")
