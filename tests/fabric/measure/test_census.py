"""Conservation: what two censuses say became of every packet, on a fabric of two hosts and a leaf."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from fabric.measure import census as census_module
from fabric.measure.census import Census, HostCount, PortCount, conservation, host_count
from fabric.model.identity import NodeId, Role
from fabric.model.network import Fabric, FabricBuilder, Port, Tier
from fabric.records.conservation import Conservation

MTU = 1500
FRAME = MTU + 14
NOTHING = PortCount(0, 0, 0, 0, 0, 0)
LEAF = NodeId.parse("z0l00")


def two_hosts() -> Fabric:
    builder = FabricBuilder("pair", 1, MTU, access_ports=2, switch_ports=2, reference_nic_rate_bps=10**7)
    builder.add_node(LEAF)
    for index in range(2):
        host = builder.add_node(NodeId(Role.COMPUTE, 0, index))
        builder.connect(host, LEAF, 10**7, Tier.ACCESS, address=f"10.0.0.{index + 1}")
    return builder.build()


FABRIC = two_hosts()
HOST_0, HOST_1 = (nic.port for nic in FABRIC.nics)
LEAF_TO_0, LEAF_TO_1 = FABRIC.ports_of[LEAF]


def census(rule_drops: int = 0, **counts: PortCount) -> Census:
    ports = {"host_0": HOST_0, "host_1": HOST_1, "leaf_to_0": LEAF_TO_0, "leaf_to_1": LEAF_TO_1}
    return Census({port: counts.get(name, NOTHING) for name, port in ports.items()}, {LEAF: rule_drops})


def sent(packets: int, **also: Any) -> PortCount:
    return replace(NOTHING, sent_packets=packets, sent_bytes=packets * 100, **also)


def received(packets: int, **also: Any) -> PortCount:
    return replace(NOTHING, received_packets=packets, received_bytes=packets * 100, **also)


def both(sent_packets: int, received_packets: int) -> PortCount:
    there = received(received_packets)
    return sent(sent_packets, received_packets=there.received_packets, received_bytes=there.received_bytes)


def change(after: Census, before: Census | None = None) -> Conservation:
    return conservation(FABRIC, before or census(), after)


def test_what_is_sent_and_delivered_is_accounted_for() -> None:
    found = change(census(host_0=sent(10), leaf_to_0=received(10), leaf_to_1=sent(10), host_1=received(10)))
    assert found == Conservation(
        sent_packets=10,
        sent_bytes=1000,
        switched_bytes=1000,
        dropped_by_queues=0,
        dropped_by_rules=0,
        waiting_packets=0,
        unaccounted={},
        unaccounted_bytes=0,
        switched_packets=10,
    )
    assert found.unaccounted_packets == 0


def hosts_counted(**counts: int) -> Conservation:
    """Return what comes of hosts that had counted one of everything before, and so much more since."""
    names = [field.name for field in fields(HostCount) if field.name != "not_counted"]
    before: dict[str, Any] = dict.fromkeys(names, 1)
    after: dict[str, Any] = {name: 1 + counts.get(name, 0) for name in names}
    return change(
        replace(census(), hosts={"h": HostCount(**after)}), replace(census(), hosts={"h": HostCount(**before)})
    )


def test_what_hosts_count_is_what_came_since() -> None:
    found = hosts_counted(retransmissions=7, backlog_drops=3, udp_dropped=2, connections_dropped=4, timeouts=6)
    assert (found.retransmissions, found.tcp_short_of_memory, found.timeouts) == (7, 3, 6)
    assert hosts_counted(spurious_timeouts=5).spurious_timeouts == 5
    assert (found.udp_dropped, found.connections_dropped, found.not_counted) == (2, 4, ())
    assert hosts_counted(challenges=10, syn_challenges=2).discarded == 8


def test_what_a_small_window_drops_is_no_want_of_memory() -> None:
    found = hosts_counted(pruned=6)
    assert (found.tcp_short_of_memory, found.tcp_pruned) == (0, 6)
    found = hosts_counted(pruned=6, memory_pressures=1)
    assert (found.tcp_short_of_memory, found.tcp_pruned) == (7, 0)


SNMP = """Tcp: InSegs RetransSegs
Tcp: 9 12
Udp: InDatagrams RcvbufErrors MemErrors
Udp: 5 2 1
TcpExt: TCPMemoryPressures TCPBacklogDrop RcvPruned OfoPruned TCPRcvQDrop TCPSpuriousRTOs ListenDrops TCPReqQFullDrop
TcpExt: 1 2 3 4 5 6 7 8
TcpExt: TCPTimeouts TCPChallengeACK TCPACKSkippedChallenge TCPSYNChallenge
TcpExt: 9 5 3 4
TcpExt: TCPDSACKRecv TCPDSACKOfoRecv TCPOFOQueue
TcpExt: 5 2 6
"""


def test_counters_of_a_host_are_read_by_their_names() -> None:
    assert host_count(SNMP) == HostCount(12, 7, 6, 9, 6, 1, 2, 12, 3, 15, 8, 4)
    assert host_count(SNMP).discarded == 4


RDMA = """Rdma: Resent Naks Timeouts CnpsReceived CnpsSent Duplicates Early
Rdma: 100 200 300 400 500 600 700
"""


def test_what_queue_pairs_count_is_added_to_what_tcp_counts() -> None:
    found = host_count(SNMP + RDMA)
    assert (found.retransmissions, found.sent_twice, found.overtook, found.timeouts) == (112, 607, 706, 309)
    assert (found.naks, found.cnps, found.not_counted) == (200, 400, ())


def test_a_counter_that_the_kernel_lacks_is_named() -> None:
    found = host_count(SNMP.replace("TCPReqQFullDrop", "TCPReqQFull").replace("RcvbufErrors", "Rcvbuf"))
    assert found.not_counted == ("Udp:RcvbufErrors", "TcpExt:TCPReqQFullDrop")
    assert (found.udp_dropped, found.connections_dropped) == (1, 7)


def test_this_kernel_has_every_counter() -> None:
    text = "".join(Path(f"/proc/net/{file}").read_text() for file in ("snmp", "netstat"))
    assert host_count(text).not_counted == ()


def test_both_directions_of_a_link_are_format_apart() -> None:
    found = change(
        census(host_0=both(10, 4), leaf_to_0=both(4, 10), leaf_to_1=both(10, 4), host_1=both(4, 10)),
    )
    assert (found.sent_packets, found.switched_bytes, found.unaccounted) == (14, 1400, {})


def test_a_packet_lost_on_a_wire_is_named_with_its_direction() -> None:
    found = change(census(host_0=sent(10), leaf_to_0=received(9), leaf_to_1=sent(9), host_1=received(9)))
    assert found.unaccounted == {"wire z0h000:0 to z0l00:1": 1}
    assert found.unaccounted_bytes == 100
    assert found.unaccounted_packets == 1


def test_a_packet_lost_in_a_switch_is_named_and_counts_as_a_full_frame() -> None:
    found = change(census(host_0=sent(10), leaf_to_0=received(10), leaf_to_1=sent(7), host_1=received(7)))
    assert found.unaccounted == {"switch z0l00": 3}
    assert found.unaccounted_bytes == 3 * FRAME


def test_a_packet_that_nobody_sent_is_unaccounted_too() -> None:
    found = change(census(host_0=sent(10), leaf_to_0=received(10), leaf_to_1=sent(12), host_1=received(12)))
    assert found.unaccounted == {"switch z0l00": -2}
    assert found.unaccounted_packets == 2
    assert found.unaccounted_bytes == 2 * FRAME


def test_a_loss_in_one_place_does_not_make_up_for_an_extra_packet_in_another() -> None:
    found = change(census(host_0=sent(10), leaf_to_0=received(9), leaf_to_1=sent(9), host_1=received(10)))
    assert found.unaccounted == {"wire z0h000:0 to z0l00:1": 1, "wire z0l00:2 to z0h001:0": -1}
    assert found.unaccounted_packets == 2
    assert found.unaccounted_bytes == 200


def test_bytes_missing_from_packets_that_arrived_are_unaccounted() -> None:
    short = replace(received(10), received_bytes=960)
    found = change(census(host_0=sent(10), leaf_to_0=short, leaf_to_1=sent(10), host_1=received(10)))
    assert found.unaccounted == {}
    assert found.unaccounted_bytes == 40


def test_what_a_rule_drops_is_no_loss() -> None:
    found = change(census(rule_drops=3, host_0=sent(10), leaf_to_0=received(10), leaf_to_1=sent(7), host_1=received(7)))
    assert (found.dropped_by_rules, found.unaccounted) == (3, {})


def test_what_the_queue_of_a_switch_drops_is_no_loss() -> None:
    full = sent(6, dropped_packets=4)
    found = change(census(host_0=sent(10), leaf_to_0=received(10), leaf_to_1=full, host_1=received(6)))
    assert (found.dropped_by_queues, found.unaccounted) == (4, {})


def test_what_the_queue_of_a_host_drops_never_left_it() -> None:
    host = sent(10, dropped_packets=5)
    found = change(census(host_0=host, leaf_to_0=received(10), leaf_to_1=sent(10), host_1=received(10)))
    assert (found.sent_packets, found.dropped_by_queues, found.unaccounted) == (10, 5, {})
    assert found.dropped_at_senders == {str(HOST_0): 5}
    at_the_leaf = sent(5, dropped_packets=5)
    passed = change(census(host_0=sent(10), leaf_to_0=received(10), leaf_to_1=at_the_leaf, host_1=received(5)))
    assert passed.dropped_at_senders == {}


def test_what_still_waits_is_no_loss() -> None:
    waiting = sent(8, waiting_packets=2)
    found = change(census(host_0=sent(10), leaf_to_0=received(10), leaf_to_1=waiting, host_1=received(8)))
    assert (found.waiting_packets, found.unaccounted) == (2, {})


def test_only_what_happened_between_the_censuses_counts() -> None:
    before = census(rule_drops=5, host_0=sent(100, dropped_packets=9), leaf_to_0=received(77), leaf_to_1=sent(50))
    after = census(
        rule_drops=6,
        host_0=sent(110, dropped_packets=10),
        leaf_to_0=received(87),
        leaf_to_1=sent(59),
        host_1=received(9),
    )
    found = change(after, before)
    assert (found.sent_packets, found.sent_bytes, found.dropped_by_queues, found.dropped_by_rules) == (10, 1000, 1, 1)
    assert found.unaccounted == {}


def test_all_kinds_of_loss_are_told_together() -> None:
    found = change(
        census(
            rule_drops=1,
            host_0=sent(20, dropped_packets=2),
            leaf_to_0=received(18),
            leaf_to_1=sent(10, dropped_packets=3, waiting_packets=1),
            host_1=received(9),
        )
    )
    assert found.unaccounted == {
        "wire z0h000:0 to z0l00:1": 2,
        "wire z0l00:2 to z0h001:0": 1,
        "switch z0l00": 3,
    }
    assert (found.dropped_by_queues, found.dropped_by_rules, found.waiting_packets) == (5, 1, 1)
    assert found.unaccounted_packets == 6
    assert found.unaccounted_bytes == 3 * 100 + 3 * FRAME


@pytest.mark.parametrize("port", [HOST_0, LEAF_TO_1], ids=str)
def test_what_a_port_was_offered_was_sent_waits_or_was_dropped(port: Port) -> None:
    assert (
        replace(NOTHING, sent_packets=5, waiting_packets=2, dropped_packets=1, received_packets=99).offered_packets == 8
    )


def test_drops_are_told_by_their_causes() -> None:
    before = census(host_0=sent(0, dropped_by_cause={"headroom": 2, "limit": 1}))
    after = census(
        host_0=sent(0, dropped_packets=1, dropped_by_cause={"headroom": 3, "limit": 1}),
        leaf_to_1=sent(0, dropped_packets=4, dropped_by_cause={"headroom": 0, "limit": 0, "too_big": 4}),
    )
    assert change(after, before).dropped_by_cause == {"headroom": 1, "too_big": 4}


class LateSwitches:
    """Switches that wait for a core, and a frame in front of them for their next pass."""

    def __init__(self) -> None:
        self.switches = self
        self.has_passed = False

    def finish_pass(self) -> None:
        self.has_passed = True

    def count(self) -> dict[Port, PortCount]:
        passed, arrived = (sent(1), received(1)) if self.has_passed else (NOTHING, NOTHING)
        return {HOST_0: sent(1), LEAF_TO_0: received(1), LEAF_TO_1: passed, HOST_1: arrived}


def test_what_waits_for_switches_that_wait_for_a_core_is_not_at_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    late: Any = LateSwitches()
    monkeypatch.setattr(census_module, "_count_ports", lambda emulation: emulation.count())
    monkeypatch.setattr(census_module, "_count_hosts", lambda emulation: {})
    monkeypatch.setattr(census_module, "_REST_S", 0.0)
    found = census_module.take_census(late, lambda: {LEAF: 0})
    assert found.ports[HOST_1] == received(1)
