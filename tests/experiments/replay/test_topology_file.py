"""htsim's topology files."""

from __future__ import annotations

from pathlib import Path

import pytest

from experiments.replay.topology_file import read_topology_file, topology_of
from fabric.errors import ConfigError
from fabric.model.identity import Role
from fabric.model.network import Tier
from tests.experiments.replay.htsim import LEAF_SPINE
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
    "no pods": (("Podsize 4", "Podsize 0"), "Podsize 0: must be 1 or more"),
    "no nodes": (("Nodes 16", "Nodes 0"), "Nodes 0: must be 1 or more"),
    "no digit": (("Nodes 16", "Nodes ²"), "line 2: 'Nodes ²': must be one of .* and a number up to 1,000,000,000"),
    "digits": (("Nodes 16", f"Nodes {'9' * 5000}"), "must be one of .* and a number up to 1,000,000,000"),
    "no bundle": (("Bundle 1", "Bundle 0"), "Tier 1: Bundle 0: must be 1 or more"),
    "key twice": (("Podsize 4", "Nodes 16"), "line 4: 'Nodes 16': Nodes is there twice"),
    "tier twice": (("Tier 2", "Tier 1"), "'Tier 1': is there twice"),
    "another tier": (("Tiers 3", "Tiers 2"), "Tier 2: Tiers 2 are 0 to 1; remove it, or raise Tiers"),
    "uneven": (("Nodes 16", "Nodes 18"), "Nodes in pods: 18 are not a multiple of 4"),
    "switch": (("Bundle 1", "Switch_Latency_ns 500"), "Switch_Latency_ns: switches have no delay"),
    "latency": (("Radix_Down 4\nDownlink_Latency_ns 1000", "Radix_Down 4\nDownlink_Latency_ns 9"), "differs between"),
    "oversubscribed": (("Tier 1", "Oversubscribed 4\nTier 1"), "Oversubscribed 4: by its radices and rates it is 1"),
}


@pytest.mark.parametrize(("change", "words"), FAULTS.values(), ids=list(FAULTS))
def test_what_cannot_be_had_is_named(change: tuple[str, str], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        topology_of(THREE_TIERS.replace(*change, 1), "k4.topo")


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        read_topology_file(tmp_path / "none.topo")


def test_a_file_that_is_not_utf_8_is_told(tmp_path: Path) -> None:
    (tmp_path / "a.topo").write_bytes("# für\nNodes 16\n".encode("latin-1"))
    with pytest.raises(ConfigError, match=r"is not UTF-8 \(byte 3, 0xfc\); give the path of an htsim topology file"):
        read_topology_file(tmp_path / "a.topo")
