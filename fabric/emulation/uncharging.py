"""Frames that have left a host are taken off its sockets' account, where the kernel's datapath switches.

A kernel charges a frame to the socket that sent it until its memory is freed, and TCP continues to send only while few
bytes of a connection are charged ("small queues"), to keep the queues of its own NIC short. Between namespaces of one
kernel, frames stay charged through all switches, so a sender would hold back because of frames anywhere in the fabric,
as no real host does. A small BPF program on each switch port with a host replaces a frame by its clone, which is
charged to nobody. Userspace switching copies frames anyway, lossless ports put an account of their own in this one's
place, and a guest's kernel has been changed.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from fabric.world.kernel_api import bpf
from fabric.world.kernel_api.bpf import EXIT, TC_ACT_STOLEN, Way, instruction
from fabric.world.kernel_api.netlink import Netlink

_WHAT = "what uncharges sockets"
MARK = 0x0FAB
"""Tells a clone, which comes by again, from a frame; the mark of a frame is cleared as it leaves its host. Packet
sockets see both."""
_TC_ACT_UNSPEC = -1
_MARK_OFFSET, _IFINDEX_OFFSET = 8, 40  # In struct __sk_buff.
_CLONE_REDIRECT, _INGRESS = 13, 1


def _program() -> bytes:
    """Return the program: r6 is the frame."""
    replace = [
        instruction(0xB7, to=1, immediate=MARK),
        instruction(0x63, to=6, source=1, offset=_MARK_OFFSET),  # its mark = r1
        instruction(0xBF, to=1, source=6),
        instruction(0x61, to=2, source=6, offset=_IFINDEX_OFFSET),  # r2 = this port
        instruction(0xB7, to=3, immediate=_INGRESS),
        instruction(0x85, immediate=_CLONE_REDIRECT),  # bpf_clone_redirect(r1, r2, r3)
        instruction(0xB7, immediate=TC_ACT_STOLEN),
        instruction(EXIT),
    ]
    return b"".join(
        [
            instruction(0xBF, to=6, source=1),
            instruction(0x61, to=1, source=6, offset=_MARK_OFFSET),  # r1 = its mark
            instruction(0x15, to=1, offset=len(replace), immediate=MARK),  # if r1 == MARK: pass
            *replace,
            instruction(0xB7, immediate=_TC_ACT_UNSPEC),
            instruction(EXIT),
        ]
    )


def install(link: Netlink, interfaces: Mapping[int, str]) -> None:
    """Put the program on ports, given by their indices and names, where it stays. Raises EmulationError."""
    descriptor = bpf.load(_program(), _WHAT)
    try:
        link.send(
            [
                request
                for index, interface in interfaces.items()
                for request in bpf.install_requests(descriptor, index, interface, Way.IN, _WHAT)
            ]
        )
    finally:
        os.close(descriptor)


def remove(link: Netlink, interfaces: Mapping[int, str]) -> None:
    """Take the program off ports."""
    link.send([bpf.remove_request(index, interface, Way.IN, _WHAT) for index, interface in interfaces.items()])
