"""What a cut and a lower rate do to real queues: a veth pair with our trees on both ends."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator, Sequence

import pytest

from fabric.failures import injector
from fabric.failures.injector import switch_end
from fabric.model.lanes import QueueConfig, Queueing, plan_lanes
from fabric.model.network import Port, Tier
from fabric.queueing.counters import QueueReader
from fabric.queueing.htb import ShapedPort, install_requests, rate_requests
from fabric.world.isolation.sysctl import write_sysctl
from fabric.world.kernel_api.netlink import LinkCounters, LinkEnd, Netlink, link_state, veth_pair
from tests.links import wait_until_running
from tests.waiting import until
from topologies.load import load_fabric

FABRIC = load_fabric("fire_flyer_2_small")
PLAN = plan_lanes(QueueConfig(), Queueing.SHARED)
ENDS = [LinkEnd("cut0", 100, "02:00:00:00:00:02"), LinkEnd("cut1", 101, "02:00:00:00:00:01")]
INDICES = [end.index for end in ENDS]
FRAME = b"\x02\0\0\0\0\1\x02\0\0\0\0\2\x88\xb5" + bytes(986)
COUNT = 100
SO_SNDBUFFORCE = 32

root = pytest.mark.root


def port(end: LinkEnd, rate_bps: int = 10**5) -> ShapedPort:
    return ShapedPort(end.interface, end.index, rate_bps, 1500)


@pytest.fixture
def link(private_network: None) -> Iterator[Netlink]:
    write_sysctl("net/ipv6/conf/default/disable_ipv6", 1)
    with Netlink() as netlink:
        netlink.send([veth_pair(ENDS[0], ENDS[1], 1500)])
        for end in ENDS:
            netlink.send([link_state(end.index, end.interface, True), *install_requests(port(end), PLAN)])
        wait_until_running(netlink, INDICES)
        yield netlink


def fill() -> None:
    """Send 8 s' worth of frames each way."""
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0) as sock:
        sock.setsockopt(socket.SOL_SOCKET, SO_SNDBUFFORCE, 10**7)  # Or it would wait for the queues to drain.
        for _ in range(COUNT):
            for end in ENDS:
                sock.sendto(FRAME, (end.interface, 0x88B5))


def queues(link: Netlink) -> dict[int, tuple[int, int, int]]:
    """Return packets sent, waiting and dropped by the queue of each end."""
    keys, rows = QueueReader().read(link.dump_qdiscs())
    found: dict[int, tuple[int, int, int]] = {}
    for (index, _), row in zip(keys, rows.tolist(), strict=True):
        sent, waiting, dropped = found.get(index, (0, 0, 0))
        found[index] = (sent + row[1], waiting + row[2], dropped + row[4])
    return found


@root
def test_a_cut_takes_carrier_and_queues_of_both_ends_at_once_and_the_trees_stay(link: Netlink) -> None:
    fill()
    waiting = {index: found[1] for index, found in queues(link).items()}
    link.send([link_state(ENDS[1].index, ENDS[1].interface, False)])
    carrier = [link.link(end.index).carrier for end in ENDS]
    until(lambda: not any(found[1] for found in queues(link).values()), "queues that the cut empties")
    after = queues(link)
    print(waiting, after)
    assert min(waiting.values()) > 50
    assert carrier == [False, False]
    assert [found[1:] for found in after.values()] == [(0, 0), (0, 0)], "no queue counts what a cut empties"
    link.send([link_state(ENDS[1].index, ENDS[1].interface, True)])
    assert all(link.link(end.index).carrier for end in ENDS)
    wait_until_running(link, INDICES)
    fill()
    assert all(found[1] > 50 for found in queues(link).values()), "the trees shape again"


@root
def test_another_rate_keeps_what_waits(link: Netlink) -> None:
    fill()
    link.send([request for end in ENDS for request in rate_requests(port(end, 10**6).at_fraction(0.5), PLAN)])
    earliest, before, started = time.monotonic(), queues(link), time.monotonic()
    time.sleep(0.4)
    ended, middle, latest = time.monotonic(), queues(link), time.monotonic()
    carried_bits = [(middle[end.index][0] - before[end.index][0]) * len(FRAME) * 8 for end in ENDS]
    print(carried_bits, latest - earliest, ended - started)
    # The old rate was a fifth of the new one. On a busy machine, queues are read any time between two of the clock's.
    assert all(bits / (latest - earliest) < 0.6e6 and bits / (ended - started) > 0.3e6 for bits in carried_bits)
    link.send([request for end in ENDS for request in rate_requests(port(end, 10**8), PLAN)])
    until(lambda: not any(found[1] for found in queues(link).values()), "queues that are sent")
    assert [queues(link)[end.index] for end in ENDS] == [(COUNT, 0, 0), (COUNT, 0, 0)]


def test_it_is_a_switchs_end_that_is_set_down() -> None:
    for tier in Tier:
        assert all(switch_end(found).node.is_switch for found in FABRIC.links_of_tier(tier))


class BusyWatch(injector._Watch):
    """A switch to which 1,000 packets come while the queues of its ports are read."""

    def __init__(self, ports: Sequence[Port]) -> None:
        ends = {
            one: injector._End(one, None, ShapedPort("none", number, 10**9, 1500)) for number, one in enumerate(ports)
        }
        super().__init__(injector._Setup(ends, FABRIC.ports_of), lambda _: pytest.fail("reads counters"))
        self.arrived = 0

    def waiting(self, ports: Sequence[Port]) -> dict[Port, int]:
        self.arrived += 1000
        return {}

    def counters(self, port: Port) -> LinkCounters:
        at_one = self.arrived if port == FABRIC.ports_of[port.node][0] else 0
        return LinkCounters(at_one, 0, 0, 0, 0, 0, True, True)


def test_what_comes_while_queues_are_read_is_within_what_a_cut_may_take() -> None:
    cut = FABRIC.links_of_tier(Tier.UPLINK)[0]
    watch = BusyWatch([one for switch in FABRIC.switches for one in FABRIC.ports_of[switch]])
    watch.before_cut([cut], cut.ports)
    watch.after_return(cut)
    assert all(watch.in_switches()[one.node] >= 1000 for one in cut.ports)
