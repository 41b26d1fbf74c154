"""Fabrics of many shapes for the tests of planners."""

from __future__ import annotations

from typing import Any

from fabric.model.network import Fabric, Nic
from tests.fakes import is_storage
from topologies.load import fabric_of


def tree(
    zones: int = 2, *, leaves: int, spines: int, parallel: int = 1, compute: int, storage: int, exits: tuple[int, int]
) -> Fabric:
    """Return a zoned fat-tree; ``exits`` are the inter-zone switches and the links of a zone to them."""
    switches, links = exits
    join = {"switches": switches, "links_per_zone": links, "rate": "20 Mbit/s"}
    spec: dict[str, Any] = {
        "name": "tree",
        "builder": "zoned_fat_tree",
        "zones": zones,
        "leaves_per_zone": leaves,
        "spines_per_zone": spines,
        "switch_ports": 64,
        "uplinks_per_spine": parallel,
        "compute": compute,
        "storage": storage,
        "nic_rate": "20 Mbit/s",
        "uplink_rate": "20 Mbit/s",
        "mtu": 4200,
        "reference_nic_rate": "200 Gbit/s",
    }
    return fabric_of(spec | ({"inter_zone": join} if zones > 1 else {}), "test")


def may_reach(source: Nic, destination: Nic) -> bool:
    """Whether packets between two NICs have a way in a whole fabric."""
    return source.zone == destination.zone or not (is_storage(source) or is_storage(destination))
