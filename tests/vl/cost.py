"""What the qdisc costs, in a guest: packet-hops a second of the host's time, beside HTB on the same links."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

from fabric.queueing import vl
from fabric.world.kernel_api import netlink
from fabric.world.kernel_api.netlink import HtbRates
from fabric.world.virtual.guest import host_time_s
from tests.vl import lab as labs
from tests.vl.lab import FRAME_BYTES, SEGMENT_BYTES, Lab

RATE_BPS = 10_000_000_000
HOPS = 4


def chain() -> Lab:
    """Return hosts a and b with three switches between them."""
    lab = Lab()
    for host in "ab":
        lab.add_host(host)
    nodes = ["a", "x", "y", "z", "b"]
    for one, other in pairwise(nodes):
        lab.link(one, other, labs.one_lane(RATE_BPS, delay_ns=500, return_ns=500))
    lab.give_addresses()
    rules = {}
    for before, switch, after in zip(nodes, nodes[1:], nodes[2:], strict=False):
        ways = {"a": before, "b": after}
        rules[switch] = [f"ip,nw_dst={lab.ip(h)},actions=output:{{{switch}-{way}}}" for h, way in ways.items()]
    lab.switch(rules)
    return lab


def install_htb(lab: Lab) -> None:
    """Give every port what the project's other queueing modes have: netem for the delay, HTB below, a byte FIFO."""
    for end in lab.interfaces.values():
        rate = RATE_BPS / 8
        lab.socket_of(end.node).send(
            [
                netlink.delete_root_qdisc(end.index, end.name),
                netlink.delay_root(end.index, end.name, 500),
                netlink.htb_root(end.index, end.name, 1, parent=netlink.DELAY_HANDLE | 1),
                netlink.htb_class(end.index, end.name, 1, 0, HtbRates(rate, rate, 2 * FRAME_BYTES, FRAME_BYTES, 0)),
                netlink.byte_fifo(end.index, end.name, 3, 1, 1_000_000),
            ]
        )


def install_vl(lab: Lab, flow_control: vl.FlowControlMode) -> None:
    """Give every port virtual lanes with this flow control."""
    buffer = vl.LaneBuffer(1_000_000, 256 * 1024, 128 * 1024, 64 * 1024, 128 * 1024)
    for end in lab.interfaces.values():
        lab.socket_of(end.node).send([netlink.delete_root_qdisc(end.index, end.name)])
    for name, port in list(lab.ports.items()):
        lab.install(name, replace(port, flow_control=flow_control, buffers={0: buffer}))


def cost(size_bytes: int, rounds: int) -> dict[str, list[float]]:
    """Return frames times hops a second of wall time, by kind of queue, a figure a round; kinds take turns."""
    lab = chain()
    found: dict[str, list[float]] = {"htb": [], **{each.name.lower(): [] for each in vl.FlowControlMode}}
    for _ in range(rounds):
        for kind, figures in found.items():
            if kind == "htb":
                install_htb(lab)
            else:
                install_vl(lab, vl.FlowControlMode[kind.upper()])
            started_s = host_time_s()
            labs.goodput_bps(lab, "a", "b", size_bytes)
            figures.append(size_bytes / SEGMENT_BYTES * HOPS / (host_time_s() - started_s))
    return found
