"""The watchdog: silent while anything may still move, loud, once, when nothing can."""

from __future__ import annotations

from fabric.queueing.vl import Wait
from fabric.queueing.vl_samples import VlReader
from fabric.stalls.deadlock_watch import Watchdog, switch_ports
from fabric.stalls.waits import ObservedPort
from tests.fabric.queueing.vl_dumps import lane, message, port
from topologies.load import load_fabric

NOW_NS = 10 * 10**9
RING = {10 + i: ObservedPort(f"s{i}:1", f"s{i}", f"s{(i + 1) % 3}:2") for i in range(3)} | {
    20 + i: ObservedPort(f"s{i}:2", f"s{i}", f"s{(i - 1) % 3}:1") for i in range(3)
}
"""Three switches in a ring: port 1 of each sends to port 2 of the next."""


def ring(since_ns: int, *, used: int = 4000, moving: int | None = None) -> bytes:
    """Return a dump in which what is in each input buffer of the ring waits to go on around it."""
    found = []
    for i in range(3):
        stalled = 0 if i == moving else since_ns
        ahead = lane(0, stalled_since_ns=stalled, used_bytes=used, backlog_packets=1, backlog_bytes=4000)
        found.append(port(10 + i, [ahead], [Wait(input_index=20 + i, input_lane=0, lane=0, bytes=4000)], now_ns=NOW_NS))
        found.append(port(20 + i, [lane(0)], now_ns=NOW_NS))
    return b"".join(map(message, found))


def look(watchdog: Watchdog, dump: bytes) -> str | None:
    sample = VlReader().read(dump)
    assert sample is not None
    return watchdog.look(sample, dump)


def test_a_circle_that_stands_still_is_told_once_with_its_ports() -> None:
    watchdog = Watchdog(RING, 1.0, {0: "storage"})
    told = look(watchdog, ring(10**9))
    assert told is not None
    assert all(f"s{i}:1 storage" in told for i in range(3))
    assert "s0:2" not in told
    assert look(watchdog, ring(10**9)) is None


def test_a_circle_that_has_just_formed_is_given_time() -> None:
    assert look(Watchdog(RING, 1.0, {0: "storage"}), ring(NOW_NS - 10**8)) is None


def test_a_lane_that_can_send_breaks_a_circle() -> None:
    assert look(Watchdog(RING, 1.0, {0: "storage"}), ring(10**9, moving=1)) is None


def test_room_that_is_under_way_breaks_a_circle() -> None:
    assert look(Watchdog(RING, 1.0, {0: "storage"}), ring(10**9, used=8000)) is None


def test_ports_of_hosts_are_not_watched() -> None:
    fabric = load_fabric("fire_flyer_2_small")
    indices = {port: number for number, (port, _) in enumerate(fabric.directed_ports())}
    watched = switch_ports(fabric, indices)
    assert len(watched) == sum(len(fabric.ports_of[switch]) for switch in fabric.switches)
    first = next(link for link in fabric.links if link.a.node.is_switch)
    assert watched[indices[first.a]] == ObservedPort(str(first.a), first.a.node.name, str(first.b))
