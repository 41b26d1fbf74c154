"""The ways of a result's flows, by the topology in its config; or why there are none."""

from __future__ import annotations

from pathlib import Path

import yaml

from fabric.delivered import Flow
from fabric.results import Result
from runs.launching.result_ways import ways_of
from tests.synthetic_result import Recipe, write_result
from topologies.load import load_fabric, read_topology


def result_with(directory: Path, topology: object) -> Result:
    """Return a result on the small fabric whose config has some topology."""
    write_result(directory, Recipe(without=("ports", "stalls", "waits", "flows", "operations")))
    (directory / "config.yaml").write_text(yaml.safe_dump({"experiment": "isolation", "topology": topology}))
    return Result(directory)


def test_a_way_leads_from_the_hosts_nic_to_its_peer(tmp_path: Path) -> None:
    result = result_with(tmp_path / "one", read_topology("fire_flyer_2_small"))
    ways = ways_of(result)
    assert ways.find is not None
    ((way,),) = ways.find(result.phases[0], [Flow("hfreduce", "z0h000", "z0h001")])
    fabric = load_fabric("fire_flyer_2_small")
    peers = {str(port): str(fabric.peer(port)) for port, _ in fabric.directed_ports()}
    assert way[0] == "z0h000:0"
    assert peers[way[-1]] == "z0h001:0"
    assert [peers[port].split(":")[0] for port in way[:-1]] == [port.split(":")[0] for port in way[1:]]


def test_without_its_topology_a_result_says_why(tmp_path: Path) -> None:
    assert "names its topology" in ways_of(result_with(tmp_path / "one", "fire_flyer_2_small")).missing
    other = result_with(tmp_path / "two", read_topology("fire_flyer_2_tiny"))
    assert "makes other links than the run had" in ways_of(other).missing
