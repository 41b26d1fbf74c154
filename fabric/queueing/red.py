"""Queues that mark, below classes of HTB: the kernel's RED, told to mark and not to drop, by the length of the moment.

RED marks as frames come, not as they go. It averages the queue's length, with a weight of 1 here; what is not ECT is
queued like the rest (TC_RED_NODROP); above ``limit`` it drops. It does not toss a coin for each frame: it draws, after
each mark, after how many frames the next one comes, evenly up to 1 / p. So it marks 2 p / (1 + p) of them, and p is
chosen such that this is what was asked for at ``kmax``. Towards ``kmin`` up to 1 / (1 - pmax / 2) times as many are
marked as a straight line would have it: 0.5 % more with a pmax of 1 %, twice as many with 100 %. Layouts:
linux/pkt_sched.h.
"""

from __future__ import annotations

import platform
import struct
from functools import cache
from pathlib import Path

from fabric.errors import EmulationError, UsageError
from fabric.model.lanes import QueueConfig, Queueing
from fabric.model.marking import Marking
from fabric.world.engine import Engine
from fabric.world.kernel_api import libbpf, netlink
from fabric.world.kernel_api.netlink import Request

_PARMS, _STAB, _MAX_P, _FLAGS = 1, 2, 3, 4
_ECN, _NODROP = 1, 8
_FORGETTING = bytes([31]) * 256
"""For how long a queue was idle: by how many bits its average is then less. It is nothing, however short that was."""
_MARKED_IN_USERSPACE_BYTES = 3500
"""A frame and what is in front of it are in one piece up to a page of 4,096 B."""
_KERNEL_MODULES = Path("/lib/modules")
_SYMBOLS = Path("/proc/kallsyms")


def queue(index: int, interface: str, minor: int, limit_bytes: int, marking: Marking) -> Request:
    """Make the queue ``minor``: of class 1:``minor``, holding up to ``limit_bytes``, which marks."""
    probability = min(round(marking.pmax / (2 - marking.pmax) * 2**32), 2**32 - 1)
    # No average: the weight of what waits is 2^-0.
    parms = struct.pack("=IIIBBBB", limit_bytes, max(1, marking.kmin), max(1, marking.kmax), 0, 0, 0, 0)
    options = netlink.attribute(_PARMS, parms) + netlink.attribute(_STAB, _FORGETTING)
    options += netlink.attribute(_MAX_P, struct.pack("=I", probability))
    options += netlink.attribute(_FLAGS, struct.pack("=II", _ECN | _NODROP, _ECN | _NODROP))
    body = netlink.traffic_control(index, minor << 16, 1 << 16 | minor, 0, "red", options)
    what = f"making queue {minor:x}: on {interface} mark, which needs a kernel with CONFIG_NET_SCH_RED (5.7 or newer)"
    return Request(netlink.RTM_NEWQDISC, netlink.NLM_F_CREATE | netlink.NLM_F_REPLACE, body, what)


def require(engine: Engine, queues: QueueConfig, *queueings: Queueing) -> None:
    """Raise UsageError with the reason if queues are to mark that cannot in an engine on this machine."""
    dropping = [queueing.value for queueing in queueings if not queueing.is_of_vl]
    if queues.marks and dropping and (reason := why_not(engine)):
        raise UsageError(f"queues.marking in the queueing {', '.join(dropping)}: {reason}")


def why_not(engine: Engine) -> str | None:
    """Return why queues of HTB cannot mark in an engine on this machine, with what would mend it; None: they can."""
    if engine.has_own_kernel or (reason := libbpf.why_not()) is None or _is_on_host():
        return None
    return (
        "this machine's kernel has no RED (CONFIG_NET_SCH_RED), so that queues cannot mark, and no BPF program can do "
        f"it in its place: {reason}; use the virtual engine: --engine virtual"
    )


def is_there(engine: Engine) -> bool:
    """Return whether RED marks in an engine; else a BPF program does (:mod:`fabric.queueing.marking_filter`).

    On a host, where packets may be switched in userspace, a program comes first: RED cannot mark what a process has
    sent in frames of more than a page, of which the kernel has only the Ethernet header in one piece.
    """
    return engine.has_own_kernel or (libbpf.why_not() is not None and _is_on_host())


def require_datapath(engine: Engine, queueing: Queueing, marks: bool, frame_bytes: int) -> None:
    """Raise EmulationError if packets are switched in userspace, in frames that RED cannot mark and is to mark."""
    if marks and not queueing.is_of_vl and is_there(engine) and frame_bytes > _MARKED_IN_USERSPACE_BYTES:
        raise EmulationError(
            f"queues.marking: frames of {frame_bytes} B that are switched in userspace cannot be marked by the "
            f"kernel's RED, which needs them below {_MARKED_IN_USERSPACE_BYTES} B, and BPF programs, which can, are "
            f"not to be had: {libbpf.why_not()}; lower the mtu, load the kernel module openvswitch, or use --engine "
            "virtual"
        )


def _is_on_host() -> bool:
    return _is_built_in() or _is_loadable()


@cache
def _is_built_in() -> bool:
    return " red_enqueue" in _SYMBOLS.read_text()


def _is_loadable() -> bool:
    return any((_KERNEL_MODULES / platform.release()).glob("kernel/net/sched/sch_red.ko*"))
