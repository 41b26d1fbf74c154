from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from topologies.draw import draw
from topologies.load import load_fabric


@pytest.mark.parametrize("name", ["fire_flyer_2_small", "fire_flyer_2"])
@pytest.mark.parametrize("coloured", [False, True])
def test_builtin_topologies_are_drawn(tmp_path: Path, name: str, coloured: bool) -> None:
    fabric = load_fabric(name)
    use = {str(port): 0.5 for port, _ in fabric.directed_ports()} if coloured else None
    draw(fabric, tmp_path / "new" / "fabric.svg", use)
    text = (tmp_path / "new" / "fabric.svg").read_text()
    assert ElementTree.fromstring(text).tag.endswith("svg")
    assert ("near end sends" in text) == coloured
