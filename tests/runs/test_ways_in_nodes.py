"""The ways of flows between parts of nodes: out of the part, over the network if need be, and to the part."""

from __future__ import annotations

import pytest

from controllers.routing import Routing
from fabric.delivered import Flow
from fabric.model.lanes import QueueConfig, Queueing, plan_lanes
from runs.ways import WayFinder
from topologies.load import load_fabric

FABRIC = load_fabric("fire_flyer_2_nodes", ["compute=4", "storage=1"])
FINDER = WayFinder(FABRIC, plan_lanes(QueueConfig(), Queueing.LOSSLESS), Routing())


@pytest.mark.parametrize(
    ("source", "sink", "first", "last", "ports"),
    [
        ("z0h000.g0", "z0h000.g1", "z0h000.g0:0", "z0h000:18", 2),
        ("z0h000", "z0h000.g7", "z0h000.cpu0:0", "z0h000:24", 2),
        ("z0h000.g7", "z1h000.g0", "z0h000.g7:0", "z1h000:17", 6),
        ("z0h000", "z0h001", "z0h000.cpu0:0", "z0h001:16", 6),
        ("st000", "z0h000", "st000:0", "z0h000:16", 5),
    ],
)
def test_a_way_begins_and_ends_at_parts(source: str, sink: str, first: str, last: str, ports: int) -> None:
    ((way,),) = FINDER.ways(Flow("hfreduce", source, sink), [0.0])
    assert (way[0].port, way[-1].port, len(way)) == (first, last, ports)
