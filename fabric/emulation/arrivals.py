"""The delay of a host's link where it is made at the far end: in real time, with the kernel's datapath.

netem delays a frame before the queues below it give a link its rate, and takes the frame off its sender's account at
once. As a host's own qdisc it would let UDP send without a limit and TCP fill a queue that no real host has. So a
host's port has its queues only. A frame leaves the host when they let it, and is delayed where it arrives: the switch's
port hands it to an intermediate device (IFB) with netem, which gives it back after the delay. There netem takes it off
its sender's account, as a NIC does with a frame that it has sent.

The kernel of the virtual engine needs none of this: its netem has the order of a real link (``netem.c.inc``). Where a
process switches, it would see each frame before the delay: :func:`require` refuses that.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from fabric.errors import EmulationError
from fabric.model.network import Fabric
from fabric.world.kernel_api import bpf, netlink
from fabric.world.kernel_api.bpf import Way
from fabric.world.kernel_api.netlink import LinkEnd, Netlink, Request

_FIRST_INDEX = 1 << 20
"""Of the devices that delay: above those of all ports."""
_ALL = struct.pack("=HBBI", 0x06, 0, 0, 0xFFFFFFFF)
"""A classic BPF program that takes every frame."""
_STOLEN, _EGRESS_REDIRECT = 4, 1  # linux/pkt_cls.h, linux/tc_act/tc_mirred.h
_WHAT = "a delay"


@dataclass(frozen=True)
class Arrival:
    """A switch's port at which frames of a host arrive late: its interface and index, and by how much."""

    interface: str
    index: int
    delay_ns: int

    @property
    def device(self) -> str:
        """The name of the device that delays."""
        return f"delay{self.index}"

    @property
    def device_index(self) -> int:
        """Its interface index."""
        return _FIRST_INDEX + self.index


def require(fabric: Fabric) -> None:
    """Raise EmulationError, where a process switches, if a link of a host has a delay."""
    for link in fabric.links:
        if link.delay_ns and not all(port.node.is_switch for port in link.ports):
            raise EmulationError(
                f"link {link}: a delay of {link.delay_ns} ns at a host's link in real time needs Open vSwitch's kernel"
                " datapath (module openvswitch), which this machine lacks; use --engine virtual, or"
                " --set topology.link_delay=0"
            )


def install(link: Netlink, arrivals: Iterable[Arrival], mtu_bytes: int) -> None:
    """Delay what arrives at ports, from now on. Raises EmulationError, as where the kernel has no IFB or netem."""
    for arrival in arrivals:
        link.send([*_install_requests(arrival, mtu_bytes)])


def _install_requests(arrival: Arrival, mtu_bytes: int) -> Iterator[Request]:
    index, device = arrival.device_index, arrival.device
    mac = "06:01:" + ":".join(f"{byte:02x}" for byte in arrival.index.to_bytes(4, "big"))
    yield netlink.new_link(LinkEnd(device, index, mac), mtu_bytes, "ifb", b"")
    yield netlink.delay_root(index, device, arrival.delay_ns)
    yield netlink.link_state(index, device, up=True)
    yield from bpf.filter_requests(arrival.index, arrival.interface, Way.IN, _redirect(index), _WHAT, bpf.THIRD)


def _redirect(device_index: int) -> bytes:
    """Return the options of a filter that hands every frame to a device. Layout: linux/tc_act/tc_mirred.h."""
    parameters = struct.pack("=IIiiiiI", 0, 0, _STOLEN, 0, 0, _EGRESS_REDIRECT, device_index)
    action = netlink.attribute(1, b"mirred\0") + netlink.attribute(2, netlink.attribute(2, parameters))
    program = netlink.attribute(4, struct.pack("=H", 1)) + netlink.attribute(5, _ALL)
    return program + netlink.attribute(1, netlink.attribute(1, action))


def remove(link: Netlink, arrivals: Iterable[Arrival]) -> None:
    """Delay nothing any more; what is on its way is lost."""
    for arrival in arrivals:
        link.send(
            [
                bpf.remove_request(arrival.index, arrival.interface, Way.IN, _WHAT, bpf.THIRD),
                netlink.delete_link(arrival.device_index, arrival.device),
            ]
        )
