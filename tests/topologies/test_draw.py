from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from fabric.model.encoding import fabric_as_json
from fabric.report.figures import draw_topology
from fabric.report.figures.topology import lay_out, segments
from tests.controllers.free_forms import free_form, hosted, ring
from topologies.load import load_fabric


@pytest.mark.parametrize("name", ["fire_flyer_2_small", "fire_flyer_2"])
@pytest.mark.parametrize("coloured", [False, True])
def test_builtin_topologies_are_drawn(tmp_path: Path, name: str, coloured: bool) -> None:
    fabric = load_fabric(name)
    use = {str(port): 0.5 for port, _ in fabric.directed_ports()} if coloured else None
    draw_topology(fabric_as_json(fabric), tmp_path / "new" / "fabric.svg", use)
    text = (tmp_path / "new" / "fabric.svg").read_text()
    assert ElementTree.fromstring(text).tag.endswith("svg")
    assert ("near end sends" in text) == coloured


def test_links_between_leaves_are_seen_apart_from_those_in_between() -> None:
    """In a ring of four leaves in a row, the link from the last to the first is an arc over the two others."""
    fabric = free_form(hosted(ring(4)))
    data = fabric_as_json(fabric)
    layout = lay_out(data)
    halves = segments(data, layout, None)
    assert len(halves) == len({half.line for half in halves}) == 2 * len(fabric.links)
    row = layout.of_switch["z0l00"][1]
    arcs = [half for half in halves if half.start[1] == row and max(y for _, y in half.line) > row]
    assert len(arcs) == 2
    assert arcs[0].end == pytest.approx(arcs[1].end)


def test_pictures_have_the_names_of_the_users_own() -> None:
    layout = lay_out(fabric_as_json(free_form(["client1-leaf1", "client2-leaf1"])))
    assert layout.label_of == {"z0h000": "client1", "z0h001": "client2", "z0l00": "leaf1"}
