"""Every fabric that can be built can be drawn: each port has its place, above what is nearer to hosts."""

from __future__ import annotations

import pytest

from fabric.model.encoding import fabric_as_json
from fabric.report.view.layout import HOST_ROLES, lay_out
from topologies.load import load_fabric

NAMES = (
    "fire_flyer_2", "head_of_line", "fat_tree_k4", "three_layer_1600_small", "rail_optimised_small", "dual_tor_small",
    "dgx_a100_10000_small", "next_generation_32768_small", "uneven_small",
)  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_every_port_has_a_place_of_its_node_or_below_its_leaf(name: str) -> None:
    fabric = fabric_as_json(load_fabric(name))
    layout = lay_out(fabric)
    roles = {node["name"]: node["role"] for node in fabric["nodes"]}
    assert layout.levels.keys() == roles.keys()
    for link in fabric["links"]:
        for port, peer in ((link["a"], link["b"]), (link["b"], link["a"])):
            node, other = (one.rpartition(":")[0] for one in (port, peer))
            if roles[node] in HOST_ROLES:
                assert layout.levels[node] == 0
                if roles[other] not in HOST_ROLES:
                    assert abs(layout.of_port[port][0] - layout.of_switch[other][0]) < 0.5
            else:
                assert layout.of_port[port] == layout.of_switch[node]
    places = list(layout.of_switch.values())
    assert len(set(places)) == len(places), "two switches at one place"


def test_levels_of_fire_flyer_2() -> None:
    layout = lay_out(fabric_as_json(load_fabric("fire_flyer_2_small")))
    found = {name: layout.levels[name] for name in ("z0h000", "st000", "z0l00", "z1s03", "ix0")}
    assert found == {"z0h000": 0, "st000": 0, "z0l00": 1, "z1s03": 2, "ix0": 3}
    assert not layout.grouped
    assert lay_out(fabric_as_json(load_fabric("fire_flyer_2"))).grouped
