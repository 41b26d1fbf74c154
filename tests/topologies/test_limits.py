"""What a topology cannot be is refused at once, however large the count is: with the limit, and without building it."""

from __future__ import annotations

import itertools
import re
import time

import pytest

from fabric.errors import ConfigError
from topologies.htsim_files import topology_of
from topologies.load import fabric_of, load_fabric, read_topology

SOON_S = 5.0
"""Of CPU time; to deal out the least of these counts takes longer."""
COUNTS = {
    "fat_tree_k4_small": (
        *("pods", "leaves_per_pod", "spines_per_pod", "uplinks_per_spine", "switch_ports", "compute", "storage"),
        *("cores.switches", "cores.links_per_spine"),
    ),
    "fire_flyer_2_tiny": (
        *("zones", "leaves_per_zone", "spines_per_zone", "uplinks_per_spine", "switch_ports", "compute", "storage"),
        *("inter_zone.switches", "inter_zone.links_per_zone"),
    ),
}


@pytest.mark.parametrize("count", [140_000, 10**8])
@pytest.mark.parametrize(("name", "key"), [(name, key) for name, keys in COUNTS.items() for key in keys])
def test_endless_counts_are_refused_at_once(name: str, key: str, count: int) -> None:
    began_s = time.process_time()
    with pytest.raises(ConfigError, match=r"exceeds? |less than or equal to|needs? |leave"):
        load_fabric(name, ["switch_ports=65280", f"{key}={count}"])
    assert time.process_time() - began_s < SOON_S


@pytest.mark.parametrize(
    ("name", "settings", "says"),
    [
        ("fat_tree_k4_small", ["switch_ports=65281"], "switch_ports: Input should be less than or equal to 65280"),
        ("fire_flyer_2_tiny", ["switch_ports=65281"], "switch_ports: Input should be less than or equal to 65280"),
        ("uneven_small", ["switch_ports=65281"], "switch_ports: Input should be less than or equal to 65280"),
        (
            "fat_tree_k4_small",
            ["switch_ports=65280", "leaves_per_pod=20000"],
            "pods x leaves_per_pod: 80,000 switches exceed 65,000, the most that DPIDs number; use fewer",
        ),
        (
            "fire_flyer_2_tiny",
            ["switch_ports=65280", "leaves_per_zone=60000", "spines_per_zone=10"],
            "1,200,016 links exceed 1,000,000, the most that are wired; use fewer nodes, or fewer links of each",
        ),
    ],
)
def test_what_is_too_large_names_the_limit(name: str, settings: list[str], says: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(says)):
        load_fabric(name, settings)


def test_parallel_links_of_a_free_form_have_a_limit_in_all() -> None:
    pairs = [(f"leaf{a}", f"spine{b}") for a, b in itertools.product(range(4), range(4))]
    links = ["h1-leaf1", *({"a": a, "b": b, "count": 65_000} for a, b in pairs)]
    with pytest.raises(ConfigError, match=re.escape("1,040,001 links exceed 1,000,000")):
        fabric_of({**read_topology("uneven_small"), "links": links}, "test")


@pytest.mark.parametrize("links", [["h1-leaf1", "h2-leaf1", "leaf1-leaf1"], ["h1-h1", "h1-leaf1"]])
def test_a_node_is_not_joined_to_itself(links: list[str]) -> None:
    name = "leaf1" if "leaf1-leaf1" in links else "h1"
    with pytest.raises(ConfigError, match=f"link {name}-{name}: joins {name} to itself; name the node at its other"):
        fabric_of({**read_topology("uneven_small"), "links": links}, "test")


def test_a_file_of_htsims_with_endless_radices_is_refused_at_once() -> None:
    tiers = ["Tier 0", "Downlink_speed_Gbps 100", "Radix_Down 1", "Radix_Up 1000000", "Downlink_Latency_ns 1000"]
    tiers += ["Tier 1", "Downlink_speed_Gbps 200", "Radix_Down 1", "Downlink_Latency_ns 2000"]
    began_s = time.process_time()
    with pytest.raises(ConfigError, match="Tier 1: 50,000,000,000 switches exceed 65,000"):
        topology_of("\n".join(["Nodes 50000", "Tiers 2", *tiers]), "huge.topo")
    assert time.process_time() - began_s < SOON_S
