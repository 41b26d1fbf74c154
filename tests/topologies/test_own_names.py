"""Nodes with names of the user's own: what they are taken for, the names they get, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fabric.emulation.capture import parse_port
from fabric.errors import ConfigError, TopologyError, UsageError
from fabric.failures.kinds.link import LinkFailureConfig
from fabric.model.encoding import fabric_as_json, fabric_from_json, fabric_to_json
from fabric.model.identity import NodeId
from fabric.model.network import Fabric, Port, Tier
from tests.controllers.free_forms import free_form
from topologies.own_names import KINDS, WORDS, assigned

CLOS = [
    *(f"client{number}-leaf{number}" for number in (1, 2, 10)),
    *(f"leaf{number}-spine{spine}" for number in (1, 2, 10) for spine in (1, 2)),
]


def named(links: list[str], **stated: str) -> dict[str, str]:
    """Return our name for each of a user's."""
    found = assigned("test", [(a, b) for a, b in (link.split("-") for link in links)], stated)
    return {name: node.name for name, node in found.items()}


def test_a_clos_of_containerlab_needs_no_renaming() -> None:
    assert named(CLOS) == {
        **{"client1": "z0h000", "client2": "z0h001", "client10": "z0h002"},
        **{"leaf1": "z0l00", "leaf2": "z0l01", "leaf10": "z0l02", "spine1": "z0s00", "spine2": "z0s01"},
    }


def test_mininets_names_and_three_layers() -> None:
    found = named(["h1-s1", "h2-s1", "h3-s2", "s1-s3", "s2-s3", "s3-s4"])
    hosts = {"h1": "z0h000", "h2": "z0h001", "h3": "z0h002"}
    assert found == hosts | {"s1": "z0l00", "s2": "z0l01", "s3": "z0s00", "s4": "c00"}


def test_what_names_do_not_say_follows_from_links() -> None:
    found = named(["alice-paris", "bob-paris", "carol-rome", "paris-leaf1", "rome-leaf1"])
    hosts = {"alice": "z0h000", "bob": "z0h001", "carol": "z0h002"}
    assert found == hosts | {"leaf1": "z0l00", "paris": "z0l01", "rome": "z0l02"}


def test_names_like_ours_stay_and_others_take_what_is_free() -> None:
    found = named(["z0h001-z0l00", "h1-z0l00", "h2-z0l00", "store1-z0l00", "z0l00-spine1"], store1="storage")
    assert found == {
        **{"z0h001": "z0h001", "h1": "z0h000", "h2": "z0h002"},
        **{"store1": "st000", "z0l00": "z0l00", "spine1": "z0s00"},
    }


def test_nodes_says_what_names_and_links_do_not_and_goes_before_them() -> None:
    found = named(["h1-a", "h1-b", "a-b"], a="switch", b="z0l07", h1="host")
    assert found == {"h1": "z0h000", "a": "z0l00", "b": "z0l07"}
    assert named(["c01-s1", "s1-c02"], c01="host", c02="z0h009") == {"c01": "z0h000", "s1": "z0l00", "c02": "z0h009"}


def test_hosts_of_several_nics_are_told_by_their_names() -> None:
    assert named(["gpu1-rail1", "gpu1-rail2", "gpu2-rail1", "gpu2-rail2"]) == {
        "gpu1": "z0h000", "gpu2": "z0h001", "rail1": "z0l00", "rail2": "z0l01"
    }  # fmt: skip


@pytest.mark.parametrize("kind", WORDS)
def test_every_word_says_its_kind_in_any_case(kind: str) -> None:
    first = {"host": "h", "storage": "st", "switch": "l"}
    for word in WORDS[kind]:
        for name in (f"{word}9", word.upper(), f"{word}_a", f"{word}A", f"{word}.b"):
            peers = ["x1", "x2"] if kind == "switch" else ["s1", "s2"]
            links = [f"{name}-{peer}" for peer in peers]
            stated = dict.fromkeys(peers, "host" if kind == "switch" else "switch")
            role = named(links, **stated)[name]
            assert first[kind] in role, f"{name} is {role}"


@pytest.mark.parametrize("name", ["hub1", "stork", "leafy", "spinel", "rack1", "corex"])
def test_words_that_only_begin_so_say_nothing(name: str) -> None:
    with pytest.raises(TopologyError, match=f"node {name}: neither its name nor its 2 links say what it is"):
        named([f"{name}-s1", f"{name}-s2", "s1-h1"])


@pytest.mark.parametrize(
    ("links", "stated", "fault"),
    [
        (["a-b"], {}, "node a: neither its name nor its 1 links say what it is; add nodes: {a: switch}, or host"),
        (["h1-s1"], {"h9": "host"}, "nodes.h9: no link has it; add one, or remove it"),
        (["h1-s1"], {"h1": "hots"}, "nodes.h1: 'hots' is neither one of host, storage, switch nor a name like z0h003"),
        (["h1-s1"], {"h1": "z0h1"}, "did you mean 'z0h001'?"),
        (["h1-s1", "h2-s1"], {"h1": "z0h000", "h2": "z0h000"}, "nodes: h1 and h2 are both z0h000; give each its own"),
        (["h1-s1", "z0h1-s1"], {}, "links: 'z0h1' is not a node's name; did you mean 'z0h001'?"),
        (["z0h000.g1-s1"], {}, "'z0h000.g1' is inside a node"),
        (["h 1-s1"], {}, "'h 1' cannot be a node's name"),
        (["h1-"], {}, "'' cannot be a node's name"),
        (["h1-z0l00", "z1h000-z1l00"], {}, "node h1: others are in zone 1, so there are several zones; say which node"),
    ],
)
def test_what_cannot_be_named_is_told(links: list[str], stated: dict[str, str], fault: str) -> None:
    with pytest.raises(ConfigError) as refused:
        free_form(list(links), nodes=stated)
    assert any(fault in one for one in refused.value.faults), refused.value.faults


def test_links_may_be_written_as_containerlab_has_them() -> None:
    links = [
        {"endpoints": ["client1:eth1", "leaf-1:e1-1"]},
        {"endpoints": ["leaf-1:e1-2", "client2"], "rate": "2 Gbit/s"},
    ]
    fabric = free_form(links)
    assert [str(link) for link in fabric.links] == ["z0h000:0--z0l00:1", "z0l00:2--z0h001:0"]
    assert [link.rate_bps for link in fabric.links] == [10**9, 2 * 10**9]
    for ends in (["client1"], "client1-leaf1", [1, 2]):
        with pytest.raises(ConfigError, match="are not two ends, such as"):
            free_form([{"endpoints": ends}])
    with pytest.raises(ConfigError, match="and a or b say twice what it joins; leave either out"):
        free_form([{"endpoints": ["h1", "s1"], "a": "h1"}])


# In commands


@pytest.fixture
def clos() -> Fabric:
    return free_form([*CLOS, {"a": "gpu-1", "b": "leaf1"}])


def test_users_names_are_accepted_wherever_ours_are(clos: Fabric) -> None:
    leaf = NodeId.parse("z0l00")
    assert clos.host_named("client10") == clos.host_named("z0h002") == NodeId.parse("z0h002")
    assert clos.port_named("leaf1:2") == clos.port_named("z0l00:2") == Port(leaf, 2)
    assert parse_port(clos, "leaf1:2") == parse_port(clos, "z0l00-eth2") == Port(leaf, 2)
    wanted = LinkFailureConfig(link="z0l00-z0s01", at=0.0).links(clos)
    for name in ("leaf1-spine2", "spine2-leaf1", "leaf1-z0s01"):
        assert LinkFailureConfig(link=name, at=0.0).links(clos) == wanted
    assert LinkFailureConfig(link="gpu-1-leaf1", at=0.0).links(clos)[0].a.node == clos.host_named("gpu-1")
    assert len(LinkFailureConfig(switch="spine1", at=0.0).links(clos)) == 3
    assert LinkFailureConfig(host="client1", at=0.0).links(clos)[0].a.node == NodeId.parse("z0h000")


def test_a_name_may_look_like_that_of_an_interface() -> None:
    found = free_form([{"a": "h1", "b": "sw-ether1"}, {"a": "h2", "b": "sw-eth2"}, {"a": "sw-ether1", "b": "sw-eth2"}])
    for text, name in (("sw-ether1:2", "sw-ether1"), ("sw-ether1-eth2", "sw-ether1"), ("sw-eth2:1", "sw-eth2")):
        assert parse_port(found, text).node == found.node_named(name)
    with pytest.raises(UsageError, match="'sw-eth2' is not a port; write it like z0l03:7; sw-eth2 has ports 1, 2"):
        parse_port(found, "sw-eth2")


def test_messages_have_both_names(clos: Fabric) -> None:
    with pytest.raises(TopologyError, match=r"no host 'leaf1'; hosts run from client1 \(z0h000\) to gpu-1 \(z0h003\)"):
        clos.host_named("leaf1")
    with pytest.raises(ValueError, match=r"no link joins client1 and spine1; client1 is joined to leaf1 \(z0l00\)"):
        LinkFailureConfig(link="client1-spine1", at=0.0).links(clos)


def test_names_survive_json_and_pictures_have_them(clos: Fabric) -> None:
    assert fabric_from_json(fabric_to_json(clos), "test") == clos
    shown: dict[str, Any] = {node["name"]: node.get("shown") for node in fabric_as_json(clos)["nodes"]}
    assert shown["z0h000"] == "client1"
    assert "shown" not in fabric_as_json(free_form(["z0h000-z0l00"]))["nodes"][0]


def test_kinds_are_those_of_the_words() -> None:
    assert set(KINDS) == set(WORDS)


LETTERS = ["h", "s", "leaf", "spine", "client", "c0", "z0h00", "z0l0", "st00", "ix", "x", "gpu-", "tor_", "c", "core"]
NAMES = st.builds(lambda word, number: f"{word}{number}", st.sampled_from(LETTERS), st.integers(0, 3))


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.tuples(NAMES, NAMES), min_size=1, max_size=8),
    st.dictionaries(NAMES, st.one_of(st.sampled_from(KINDS), NAMES), max_size=2),
)
def test_any_names_make_a_fabric_that_knows_them_or_are_refused(
    links: list[tuple[str, str]], said: dict[str, str]
) -> None:
    try:
        fabric = free_form([{"a": a, "b": b} for a, b in links], nodes=said)
    except ConfigError as error:
        assert error.faults
        return
    names = {name for pair in links for name in pair}
    nodes = {name: fabric.node_named(name) for name in names}
    assert None not in nodes.values()
    assert len(set(nodes.values())) == len(names) == len(fabric.nodes)
    assert all(
        link.tier is not Tier.ACCESS or not link.a.node.is_switch or not link.b.node.is_switch for link in fabric.links
    )
    assert fabric_from_json(fabric_to_json(fabric), "test") == fabric
    for name, kind in said.items():
        node = nodes[name]
        assert node is not None
        if kind in KINDS:
            assert node.is_switch == (kind == "switch")
        else:
            assert node.name == kind
