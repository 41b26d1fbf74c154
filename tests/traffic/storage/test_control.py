from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabric.errors import TrafficError
from fabric.model.identity import NodeId, Role
from traffic.storage.chain_states import LocalState
from traffic.storage.chains import Chain, ChunkId, TableChange, Target
from traffic.storage.control import (
    Nodes,
    pack_last,
    pack_states,
    parse_chain_version,
    parse_last,
    parse_states,
    parse_version,
)
from traffic.storage.managers.manager import TargetReport
from traffic.storage.service.replica import Applied
from traffic.storage.service.resync import ChunkState

NODES = Nodes(tuple(NodeId(Role.STORAGE, None, index) for index in range(5)))
number = st.integers(0, 2**32 - 1)
targets = st.builds(Target, st.sampled_from(NODES.nodes), st.integers(0, 63))
some = st.lists(targets, max_size=4).map(tuple)
chains = st.builds(Chain, number, some, number, st.none() | targets, some, st.booleans())


@given(st.builds(TableChange, st.integers(0, 2**63), st.lists(chains, max_size=4).map(tuple)))
def test_a_routing_crosses_whole(change: TableChange) -> None:
    assert NODES.parse_routing(NODES.pack_routing(change)) == change


@given(
    st.sampled_from(NODES.nodes), number, st.lists(st.builds(TargetReport, number, st.sampled_from(LocalState), number))
)
def test_a_heartbeat_crosses_whole(node: NodeId, count: int, reports: list[TargetReport]) -> None:
    assert NODES.parse_heartbeat(NODES.pack_heartbeat(node, count, reports)) == (node, count, reports)


def test_a_heartbeat_of_the_papers_size_is_small() -> None:
    """16 disks of 6 chains."""
    assert len(NODES.pack_heartbeat(NODES.nodes[0], 1, [TargetReport(0, LocalState.ONLINE, 1)] * 96)) < 1000


def test_states_and_last_writes_cross_whole() -> None:
    states = {ChunkId(1 << 20, index): ChunkState(index + 1, index, 3, 0xFFFFFFFF, 1 << 20) for index in range(3)}
    assert parse_states(pack_states(states)) == states
    last = {1: Applied(3, (1 << 32) + 5, 2), 2: Applied(4, (2 << 32) + 1, 0)}
    assert parse_last(pack_last(7, last)) == (7, last)


@pytest.mark.parametrize(
    ("parse", "fault"),
    [
        (lambda: NODES.parse_heartbeat(b"123"), "no heartbeat"),
        (lambda: NODES.parse_heartbeat(NODES.pack_heartbeat(NODES.nodes[4], 1, [])[:4] + bytes(9)), "no heartbeat"),
        (lambda: Nodes(NODES.nodes[:2]).parse_heartbeat(NODES.pack_heartbeat(NODES.nodes[4], 1, [])), "no heartbeat"),
        (lambda: NODES.parse_routing(bytes(11)), "no routing"),
        (lambda: NODES.parse_routing(bytes(8) + b"\1\0\0\0"), "no routing"),
        (lambda: parse_states(bytes(5)), "5 B of chunks' states"),
        (lambda: parse_last(b""), "no chunk's last writes"),
        (lambda: parse_last(bytes(5)), "no chunk's last writes"),
        (lambda: parse_version(b"1"), "no version"),
        (lambda: parse_chain_version(b"1"), "no chain's version"),
    ],
)
def test_what_makes_no_sense_is_named(parse: object, fault: str) -> None:
    assert callable(parse)
    with pytest.raises(TrafficError, match=fault):
        parse()
