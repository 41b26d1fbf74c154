"""containerlab's files of labs: hosts and switches, links of either format, what is left out or refused."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from app.cli import main
from fabric.errors import ConfigError
from fabric.model.network import Fabric
from topologies.containerlab_files import HOST_KINDS, SWITCH_KINDS, left_out
from topologies.load import fabric_of, load_fabric, read_topology

LAB = """
name: clos.1
prefix: ""
mgmt: {network: statics}
topology:
  defaults: {kind: nokia_srlinux, env: {A: b}}
  kinds:
    linux: {image: alpine}
    nokia_srlinux: {type: ixr-d2l}
  groups:
    servers: {kind: linux, labels: {rack: 3}}
  nodes:
    leaf-1:
    leaf-2: {kind: vr-nokia_sros, startup-config: leaf2.cfg}
    core: {kind: linux, labels: {fabric: switch}, exec: [sysctl -w net.ipv4.ip_forward=1]}
    anna: {group: servers}
    bert: {kind: linux}
    disks: {kind: linux, labels: {fabric: storage}}
    grafana: {kind: linux}
  links:
    - endpoints: ["anna:eth1", "leaf-1:e1-1"]
    - {type: veth, mtu: 1500, endpoints: [{node: bert, interface: eth1}, {node: leaf-2, interface: e1-1}]}
    - endpoints: ["disks:eth1", "leaf-2:e1-2"]
    - endpoints: ["leaf-1:e1-49", "core:eth1"]
    - endpoints: ["leaf-2:e1-49", "core:eth2"]
    - endpoints: ["leaf-2:e1-50", "core:eth3"]
    - endpoints: ["leaf-1:e1-50", "mgmt-net:leaf1"]
    - {type: host, endpoint: {node: anna, interface: eth2}, host-interface: anna}
"""


def lab(change: Any = None) -> dict[str, Any]:
    """Return a lab, changed by a function of its ``topology``."""
    data: dict[str, Any] = yaml.safe_load(LAB)
    if change is not None:
        change(data["topology"])
    return data


def small(links: list[Any], **nodes: Any) -> dict[str, Any]:
    return {"name": "small", "topology": {"nodes": nodes, "links": links}}


@pytest.fixture
def written(tmp_path: Path) -> str:
    path = tmp_path / "lab.clab.yml"
    path.write_text(LAB)
    return str(path)


def names(fabric: Fabric, nodes: Any) -> list[str]:
    return [fabric.own_names[node] for node in nodes]


def test_a_lab_is_a_fabric_of_its_nodes_and_links(written: str) -> None:
    fabric = load_fabric(written)
    assert fabric.name == "clos_1"
    assert names(fabric, fabric.computes) == ["anna", "bert"]
    assert names(fabric, fabric.hosts) == ["anna", "bert", "disks"]
    assert names(fabric, fabric.switches) == ["leaf-1", "leaf-2", "core"]
    ends = [{fabric.label_of(port).rpartition(":")[0] for port in link.ports} for link in fabric.links]
    assert [*map(sorted, ends)].count(["core", "leaf-2"]) == 2
    assert len(fabric.links) == 6
    assert load_fabric(written, ["nic_rate=2 Gbit/s"]).nic_rate_bps == 2 * 10**9


def test_what_is_left_out_is_listed_by_name(written: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", written]) == 0
    shown = capsys.readouterr().out
    assert f"{written}: good; 3 hosts, 3 switches" in shown.replace("\n", "")
    for note in left_out(lab(), "lab"):
        assert f"  left out of containerlab's file: {note}\n" in shown
    keys = "defaults.env, kinds.image, kinds.type, links.mtu, mgmt, nodes.exec, nodes.startup-config, prefix"
    assert left_out(lab(), "lab") == [
        f"keys of the lab: {keys}",
        "nodes without a link: grafana",
        "a link between leaf-1 and mgmt-net, which leaves the lab",
        "a link of type host, which leaves the lab",
    ]


def test_a_name_in_the_file_is_not_needed(tmp_path: Path) -> None:
    path = tmp_path / "my lab.clab.yaml"
    path.write_text(yaml.safe_dump({"topology": lab()["topology"]}))
    assert read_topology(str(path))["name"] == "my_lab"


def test_no_kind_is_both() -> None:
    assert HOST_KINDS.isdisjoint(SWITCH_KINDS)
    assert not any(kind.startswith("vr-") for kind in HOST_KINDS | SWITCH_KINDS)


HOST = {"kind": "linux"}
LINK = {"endpoints": ["h:eth1", "s:eth1"]}


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (small([LINK], h=HOST, s={"kind": "toaster"}), "topology.nodes.s: kind 'toaster' is not known to be"),
        (small([LINK], h=HOST, s={}), "topology.nodes.s: has no kind; say it by a label, e.g. labels: {fab"),
        (
            small([LINK], h=HOST, s={"kind": "srl", "labels": {"fabric": "leaf"}}),
            "topology.nodes.s: label fabric: 'leaf' is not one of host, storage, switch",
        ),
        (
            small([{"endpoints": ["h:eth1", "spine:eth1"]}], h=HOST, spine1={"kind": "srl"}),
            "topology.links.0: no node 'spine'; did you mean 'spine1'?",
        ),
        (
            small([{"type": "wireless", **LINK}], h=HOST, s={"kind": "srl"}),
            "topology.links.0: type 'wireless' is not known; veth, or host, mgmt-net, macvlan",
        ),
        (
            small([{"endpoints": ["h:eth1"]}], h=HOST),
            "topology.links.0: endpoints: ['h:eth1'] are not two ends, such as [client1:eth1, leaf1:e1-1]",
        ),
        (
            small([{"endpoints": [{"interface": "eth1"}, "h:eth1"]}], h=HOST),
            "topology.links.0: endpoints: {'interface': 'eth1'} has no node",
        ),
        (
            small([LINK], h=HOST, s={"kind": "linux"}),
            "topology.links.0: h and s are both hosts by their kinds; if one forwards, say labels: {fabric: switch}",
        ),
        (
            small([LINK], h={"kind": "ceos"}, s={"kind": "srl"}),
            "topology.links: none has a host, and traffic is between hosts; add a node of kind linux, or labels: {fa",
        ),
        ({"topology": {"nodes": {"h": HOST}, "links": {"a": "b"}}}, "topology: needs nodes, a mapping, and links, a"),
        ({"topology": {"links": []}}, "topology: needs nodes, a mapping, and links, a list, as containerlab has them"),
        ({"name": "empty"}, "topology: needs nodes, a mapping, and links, a list, as containerlab has them"),
        (small([{"endpoints": ["s:a", "s:b"]}, LINK], h=HOST, s={"kind": "srl"}), "joins s to itself"),
    ],
)
def test_what_cannot_be_had_is_refused_by_name(tmp_path: Path, data: dict[str, Any], says: str) -> None:
    path = tmp_path / "lab.clab.yml"
    path.write_text(yaml.safe_dump(data))
    with pytest.raises(ConfigError, match=re.escape(says)):
        load_fabric(str(path))


def test_a_topology_of_ours_whose_builder_is_missing_is_no_lab() -> None:
    with pytest.raises(ConfigError, match="builder: None does not exist"):
        fabric_of({"name": "mine", "links": ["h1-leaf1"]}, "mine")
