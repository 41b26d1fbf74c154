"""Kinds of nodes from YAML: the paper's values, own ones, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fabric.errors import ConfigError
from topologies.load import fabric_of, load_fabric, read_topology
from topologies.nodes import NodeSpec, as_written, builtin_kinds

OWN: dict[str, Any] = {
    "name": "own",
    "gpus": 4,
    "pcie_bandwidth": "10 GB",
    "memory_bandwidth": "100 GB",
    "copy_reads": 4,
}


def with_node(node: Any) -> Any:
    topology = read_topology("fire_flyer_2_nodes") | {"node": node}
    return fabric_of(topology, "test")


def test_the_papers_node_has_the_papers_limits() -> None:
    inside = load_fabric("fire_flyer_2_nodes").inside
    assert inside is not None
    assert inside.gpu_link_bps == 27 * 8 * 10**9
    assert inside.memory_Bps == 320 * 10**9
    assert inside.peer_to_peer_Bps == 9 * 2**30
    assert [(one.gpus, one.rate_Bps) for one in inside.root_ports] == [((5, 6), 37_500_000_000)]


@pytest.mark.parametrize("kind", [kind for kind in builtin_kinds() if kind != "point"])
def test_every_builtin_kind_is_a_good_one_of_its_name(kind: str) -> None:
    assert NodeSpec.model_validate(as_written(kind)).name == kind


def test_nvlink_is_all_that_the_node_with_nvlink_has_more() -> None:
    plain, bridged = dict(as_written("fire_flyer_2")), dict(as_written("fire_flyer_2_nvlink"))
    assert bridged.pop("nvlink")
    assert plain | {"name": "fire_flyer_2_nvlink"} == bridged


def test_an_own_kind_is_a_mapping_or_a_file(tmp_path: Path) -> None:
    file = tmp_path / "own.yaml"
    file.write_text("\n".join(f"{key}: {value}" for key, value in OWN.items()))
    assert with_node(OWN) == with_node(str(file))
    assert with_node(OWN).inside.gpus == 4


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"root_ports": [{"gpus": [4], "bandwidth": "1 GB"}]}, "root_ports: GPU 4 does not exist; they are 0 to 3"),
        ({"nvlink": {"groups": [[0, 1], [1, 2]], "bandwidth": "1 GB"}}, "nvlink.groups: GPU 1 is named 2 times"),
        ({"nvlink": {"groups": [[0, 1, 2], [3, 3]], "bandwidth": "1 GB"}}, "some are pairs and some are larger"),
        ({"copy_reads": 5}, "copy_reads: 5 exceeds one for each of 4 GPUs"),
        ({"nics": 5}, "nics: 5 exceed 4 GPUs"),
        ({"memory": 3}, "unknown key"),
        ({"pcie_bandwidth": "0 B"}, "greater than 0"),
    ],
)
def test_what_cannot_be_is_refused(change: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        with_node(OWN | change)


def test_an_unknown_kind_names_the_nearest() -> None:
    with pytest.raises(ConfigError, match="neither a kind of node nor a file; did you mean 'fire_flyer_2'"):
        with_node("fire_flyer2")
