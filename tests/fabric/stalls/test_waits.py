from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from fabric.model.lanes import PortLane
from fabric.queueing.vl import DropCause, FlowControlMode, LaneStats, PortStats, Wait
from fabric.stalls import waits
from fabric.stalls.waits import ObservedPort, PortView
from topologies.load import load_fabric

RING = ("ab", "bc", "ca")
INDEX = {name: i for i, name in enumerate(("ab", "ba", "bc", "cb", "ca", "ac", "bx", "xb"), start=1)}


def lane(stalled: bool, used_bytes: int) -> LaneStats:
    none = (0,) * len(DropCause)
    return LaneStats(0, 0, 0, 0, 0, none, none, 0, 0, 5 if stalled else 0, 1000, used_bytes, used_bytes, 0, 0, 0, 0, 0)


def _wait(entered: str, size_bytes: int) -> Wait:
    return Wait(input_index=INDEX[entered], input_lane=0, lane=0, bytes=size_bytes)


def view(name: str, *, used_bytes: int = 0, stalled: bool = False, waits: Mapping[str, int] | None = None) -> PortView:
    """A port ``ab`` is of switch a, on the link to b; ``waits``: by which port the bytes came in that wait here."""
    held = tuple(_wait(entered, size) for entered, size in (waits or {}).items())
    stats = PortStats(INDEX[name], 0, FlowControlMode.CREDIT, 0, 0, 10, {0: lane(stalled, used_bytes)}, held)
    return PortView(name[0], name[::-1], stats)


def ring(*, to_bx: int = 0, under_way: int = 0, bx_stalled: bool = False) -> dict[str, PortView]:
    """a -> b -> c -> a, all stalled; of the 900 bytes that fill the buffer of b from a, some wait for bx."""
    ports = {
        "ab": view("ab", used_bytes=900 + under_way, stalled=True, waits={"ac": 900}),
        "bc": view("bc", used_bytes=900, stalled=True, waits={"ba": 900 - to_bx}),
        "ca": view("ca", used_bytes=900, stalled=True, waits={"cb": 900}),
        "bx": view("bx", stalled=bx_stalled, used_bytes=50, waits={"ba": to_bx} if to_bx else {}),
    }
    return ports | {name: view(name) for name in ("ba", "cb", "ac", "xb")}


def test_who_waits_for_whom_is_told_with_the_bytes() -> None:
    found = waits.waits(ring(to_bx=100))
    assert found[PortLane("ab", "0")] == {PortLane("bc", "0"): 800, PortLane("bx", "0"): 100}
    assert set(found) == {PortLane(name, "0") for name in RING}


def test_a_cycle_that_nothing_can_end_is_a_deadlock_in_its_order() -> None:
    (cycle,) = waits.deadlocks(ring())
    assert cycle == tuple(PortLane(name, "0") for name in RING)
    assert "ab 0 -> bc 0 -> ca 0 -> ab 0" in waits.describe(cycle)


def test_lanes_have_their_names_where_there_are_some() -> None:
    names = {0: "storage"}
    (cycle,) = waits.deadlocks({name: replace(view, names=names) for name, view in ring().items()})
    assert str(cycle[0]) == "ab storage"


def test_a_port_is_observed_by_the_names_that_users_have() -> None:
    fabric = load_fabric("fire_flyer_2_tiny")
    port, link = next((port, link) for port, link in fabric.directed_ports() if port.node.is_switch)
    other = link.other(port)
    found = ObservedPort.of(port, link)
    assert found == ObservedPort(f"{port.node}:{port.number}", str(port.node), f"{other.node}:{other.number}")


def test_a_cycle_with_a_way_out_is_none() -> None:
    assert waits.deadlocks(ring(to_bx=100)) == []


def test_a_way_out_that_is_stalled_but_not_for_ever_is_a_way_out() -> None:
    assert waits.deadlocks(ring(to_bx=100, bx_stalled=True)) == []


def test_while_news_of_room_is_under_way_there_is_no_deadlock() -> None:
    assert waits.deadlocks(ring(under_way=10)) == []


def test_a_lane_that_waits_for_a_deadlock_is_not_in_its_cycle() -> None:
    ports = ring()
    stats = view("bc", used_bytes=900, stalled=True, waits={"ba": 900, "bx": 50})
    ports |= {"bc": stats, "xb": view("xb", stalled=True, used_bytes=50)}
    assert [len(cycle) for cycle in waits.deadlocks(ports)] == [3]


def test_what_came_by_an_interface_that_is_no_more_is_nobodys() -> None:
    ports = ring()
    del ports["ba"]
    assert waits.waits(ports)[PortLane("ab", "0")] == {}
    assert waits.deadlocks(ports) == []
