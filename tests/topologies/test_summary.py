from __future__ import annotations

import io
import json
from typing import Any

import pytest
from rich.console import Console

from topologies.load import fabric_of, load_fabric
from topologies.summary import render, summarize, three_layer_switches

GBIT = 10**9


def spec(**changes: Any) -> dict[str, Any]:
    return {
        "name": "test",
        "builder": "zoned_fat_tree",
        "zones": 2,
        "leaves_per_zone": 4,
        "spines_per_zone": 4,
        "switch_ports": 9,
        "compute": 24,
        "storage": 4,
        "nic_rate": "20 Mbit/s",
        "uplink_rate": "20 Mbit/s",
        "mtu": 1500,
        "inter_zone": {"switches": 2, "links_per_zone": 4, "rate": "20 Mbit/s"},
        "reference_nic_rate": "200 Gbit/s",
        **changes,
    }


def test_fire_flyer_2_has_the_papers_counts() -> None:
    summary = summarize(load_fabric("fire_flyer_2")).as_json()
    expected = {
        "name": "fire_flyer_2",
        "zones": 2,
        "leaves": 80,
        "spines": 40,
        "cores": 0,
        "inter_zone_switches": 2,
        "switches": 122,
        "compute": 1200,
        "storage": 180,
        "hosts": 1380,
        "nics": 1560,
        "links": 3200,
        "inter_zone_links": 40,
        "access_ports": 1600,
        "nic_rate_bps": 200 * GBIT,
        "oversubscription": 1.0,
        "oversubscription_by_tier": {"leaf": 1.0},
        "bisection_bps": 2 * 80_000 * GBIT,
        "inter_zone_bps": 20 * 200 * GBIT,
        "three_layer_switches": 200,
        "relative_cost": 0.61,
    }
    assert {key: summary[key] for key in expected} == expected


def test_fire_flyer_2_small_is_not_oversubscribed_and_says_its_scale() -> None:
    summary = summarize(load_fabric("fire_flyer_2_small", ["nic_rate=20 Mbit/s", "uplink_rate=20 Mbit/s"]))
    assert (summary.switches, summary.oversubscription, summary.scale) == (18, 1.0, 10_000)


@pytest.mark.parametrize("zones", [2, 3])
@pytest.mark.parametrize("leaves", [2, 5])
@pytest.mark.parametrize("spines", [1, 4])
@pytest.mark.parametrize("uplinks", [1, 2])
def test_counts_and_rates_follow_from_the_sizes(zones: int, leaves: int, spines: int, uplinks: int) -> None:
    compute, storage, ports, rate = 5 * zones, 3, 24, 20_000_000
    built = fabric_of(
        spec(
            zones=zones,
            leaves_per_zone=leaves,
            spines_per_zone=spines,
            uplinks_per_spine=uplinks,
            switch_ports=ports,
            compute=compute,
            storage=storage,
            inter_zone={"switches": 1, "links_per_zone": 2, "rate": "20 Mbit/s"},
        ),
        "test",
    )
    summary = summarize(built)
    nics = compute + zones * storage
    leaf_spine_links = zones * leaves * spines * uplinks
    assert summary.switches == zones * (leaves + spines) + 1
    assert (summary.hosts, summary.nics) == (compute + storage, nics)
    assert summary.links == nics + leaf_spine_links + 2 * zones
    assert summary.access_ports == zones * leaves * (ports - spines * uplinks)
    assert summary.access_ports_used == nics + 2 * zones
    assert summary.bisection_bps == leaf_spine_links * rate / 2
    assert summary.inter_zone_bps == 2 * rate
    most_on_a_leaf = -(-(5 + storage) // leaves)
    assert summary.oversubscription == pytest.approx(most_on_a_leaf / (spines * uplinks))
    assert sum(budget.used for budget in summary.port_budget.values()) == 2 * summary.links - nics
    assert all(budget.used + budget.free == budget.ports for budget in summary.port_budget.values())


def test_oversubscription_is_that_of_the_worst_leaf() -> None:
    packed = summarize(fabric_of(spec(compute=0, storage=5, placement="packed"), "test"))
    # The first leaf holds 5 storage NICs on its 4 uplinks.
    assert packed.oversubscription == 1.25


def test_one_zone_has_nothing_between_zones() -> None:
    data = spec(zones=1, compute=12, storage=0)
    del data["inter_zone"]
    summary = summarize(fabric_of(data, "test"))
    assert (summary.inter_zone_links, summary.inter_zone_bps) == (0, 0)


@pytest.mark.parametrize("ports", [4, 8, 40])
def test_three_layer_cost_is_that_of_a_full_fat_tree(ports: int) -> None:
    # k^3 / 4 hosts need 5 k^2 / 4 switches.
    assert three_layer_switches(ports**3 // 4, ports) == 5 * ports**2 // 4


def test_summary_is_json_and_renders_in_80_columns() -> None:
    summary = summarize(load_fabric("fire_flyer_2"))
    assert json.loads(json.dumps(summary.as_json(), allow_nan=False))["port_budget"]["leaf"]["free"] == 0
    out = io.StringIO()
    Console(file=out, width=80).print(render(summary))
    for part in ("122 of 40 ports: 80 leaves, 40 spines, 2 inter-zone", "160 Tbit/s", "200", "paper: Fire-Flyer 2"):
        assert part in out.getvalue()


def test_a_bisection_that_is_not_known_is_a_dash() -> None:
    ring = [f"h{leaf}-leaf{leaf}" for leaf in range(40)] + [f"leaf{leaf}-leaf{(leaf + 1) % 40}" for leaf in range(40)]
    data = {key: spec()[key] for key in ("nic_rate", "uplink_rate", "mtu", "reference_nic_rate")}
    summary = summarize(fabric_of({**data, "name": "ring", "builder": "free_form", "links": ring}, "test"))
    assert summary.as_json()["bisection_bps"] is None
    out = io.StringIO()
    Console(file=out, width=80).print(render(summary))
    assert "- (not known" in out.getvalue()
