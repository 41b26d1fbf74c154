"""Random loss of frames on a port, counted exactly, by a small BPF program on its way out (clsact).

A kernel without netem has this still. A frame that is lost is taken before the port's queues, so the link carries less
by what it loses; the sender is told nothing, as on a real wire (``TC_ACT_STOLEN``: a drop would make a host's TCP slow
down without having missed an acknowledgement). Layouts: linux/{bpf,pkt_cls,pkt_sched}.h.
"""

from __future__ import annotations

import ctypes
import os
import platform
import socket
import struct

from fabric import netlink
from fabric.errors import EmulationError
from fabric.netlink import Request

_SYS_BPF = {"x86_64": 321, "aarch64": 280, "riscv64": 280, "ppc64le": 361, "s390x": 351}
_MAP_CREATE, _MAP_LOOKUP, _MAP_UPDATE, _PROG_LOAD = 0, 1, 2, 5
_MAP_TYPE_ARRAY, _PROG_TYPE_SCHED_CLS = 2, 3
_ATTRIBUTES_BYTES = 128
_LOG_BYTES = 4096
_THRESHOLD = struct.Struct("=Q")
"""The program's first memory: lose a frame if a random 32-bit number is below it."""
_LOST = struct.Struct("=QQ")
"""Its second, which it alone writes, so that no frame goes uncounted: frames and bytes lost so far."""
_TC_ACT_OK, _TC_ACT_STOLEN = 0, 4
_CLSACT, _CLSACT_HANDLE, _CLSACT_EGRESS = 0xFFFFFFF1, 0xFFFF0000, 0xFFFFFFF3
_ETH_P_ALL = 0x0003

_libc = ctypes.CDLL(None, use_errno=True)


def _bpf(command: int, attributes: bytes, what: str) -> int:
    number = _SYS_BPF.get(platform.machine())
    if number is None:
        raise EmulationError(f"{what}: this project does not know bpf(2) on {platform.machine()}")
    buffer = ctypes.create_string_buffer(attributes, _ATTRIBUTES_BYTES)
    result = int(_libc.syscall(number, command, buffer, _ATTRIBUTES_BYTES))
    if result < 0:
        raise EmulationError(
            f"{what}: {os.strerror(ctypes.get_errno())}; needs root and a kernel with CONFIG_BPF_SYSCALL"
        )
    return result


def _instruction(code: int, to: int = 0, source: int = 0, offset: int = 0, immediate: int = 0) -> bytes:
    return struct.pack("=BBhi", code, source << 4 | to, offset, immediate)


def _program(threshold: int, lost: int) -> bytes:
    """Return the program over two maps of one value: r6 the frame, r7 the threshold, r8 the counters."""
    lose = [
        _instruction(0xB7, to=1, immediate=1),  # r1 = 1
        _instruction(0xDB, to=8, source=1, offset=0),  # frames lost += r1, atomically
        _instruction(0x61, to=1, source=6, offset=0),  # r1 = length of the frame
        _instruction(0xDB, to=8, source=1, offset=8),  # bytes lost += r1, atomically
        _instruction(0xB7, immediate=_TC_ACT_STOLEN),
        _instruction(0x95),  # exit
    ]
    return b"".join(
        [
            _instruction(0xBF, to=6, source=1),
            _instruction(0x18, to=7, source=2, immediate=threshold) + _instruction(0),  # r7 = the map's value itself
            _instruction(0x18, to=8, source=2, immediate=lost) + _instruction(0),
            _instruction(0x85, immediate=7),  # r0 = bpf_get_prandom_u32()
            _instruction(0x79, to=1, source=7, offset=0),  # r1 = threshold
            _instruction(0x3D, source=1, offset=len(lose)),  # if r0 >= r1: pass
            *lose,
            _instruction(0xB7, immediate=_TC_ACT_OK),
            _instruction(0x95),
        ]
    )


class LossProgram:
    """A loaded program with its memory. Raises EmulationError, with the kernel's reason, if it cannot be."""

    def __init__(self) -> None:
        what = "random loss"
        self._threshold, self._lost = (
            _bpf(_MAP_CREATE, struct.pack("=IIIII", _MAP_TYPE_ARRAY, 4, value.size, 1, 0), what)
            for value in (_THRESHOLD, _LOST)
        )
        instructions = ctypes.create_string_buffer(_program(self._threshold, self._lost))
        licence, log = ctypes.create_string_buffer(b"Apache-2.0"), ctypes.create_string_buffer(_LOG_BYTES)
        count = (len(instructions) - 1) // 8
        pointers = ctypes.addressof(instructions), ctypes.addressof(licence)
        attributes = struct.pack(
            "=IIQQIIQ", _PROG_TYPE_SCHED_CLS, count, *pointers, 1, _LOG_BYTES, ctypes.addressof(log)
        )
        try:
            self._descriptor = _bpf(_PROG_LOAD, attributes, what)
        except EmulationError as error:
            raise EmulationError(f"{error}; the kernel's verifier: {log.value.decode(errors='replace')}") from error

    def set_fraction(self, fraction: float) -> None:
        """Lose this part of the frames from now on; what was lost stays counted."""
        _exchange(_MAP_UPDATE, self._threshold, _THRESHOLD.pack(round(fraction * 2**32)))

    def lost(self) -> tuple[int, int]:
        """Return the frames and bytes lost so far."""
        frames, size_bytes = _LOST.unpack(_exchange(_MAP_LOOKUP, self._lost, bytes(_LOST.size)))
        return frames, size_bytes

    def install_requests(self, index: int, interface: str) -> list[Request]:
        """Return what puts the program on a port's way out."""
        what = f"putting random loss on {interface}"
        clsact = netlink.traffic_control(index, _CLSACT_HANDLE, _CLSACT, 0, "clsact", b"")
        options = netlink.attribute(6, struct.pack("=I", self._descriptor)) + netlink.attribute(7, b"loss\0")
        options += netlink.attribute(8, struct.pack("=I", 1))  # TCA_BPF_FLAG_ACT_DIRECT: what it returns is done.
        info = 1 << 16 | socket.htons(_ETH_P_ALL)
        loss = netlink.traffic_control(index, 0, _CLSACT_EGRESS, info, "bpf", options)
        flags = netlink.NLM_F_CREATE | netlink.NLM_F_EXCL
        return [
            Request(netlink.RTM_NEWQDISC, flags, clsact, what),
            Request(netlink.RTM_NEWTFILTER, flags, loss, what),
        ]

    def close(self) -> None:
        """Let go of it; where it is installed it stays until it is taken off."""
        os.close(self._descriptor)
        os.close(self._threshold)
        os.close(self._lost)


def _exchange(command: int, memory: int, value: bytes) -> bytes:
    """Read or write the only value of a map; return it."""
    key, buffer = ctypes.create_string_buffer(4), ctypes.create_string_buffer(value, len(value))
    attributes = struct.pack("=IxxxxQQQ", memory, ctypes.addressof(key), ctypes.addressof(buffer), 0)
    _bpf(command, attributes, "random loss")
    return buffer.raw


def remove_request(index: int, interface: str) -> Request:
    """Return what takes the program off a port."""
    body = struct.pack("=BxxxiIII", 0, index, _CLSACT_HANDLE, _CLSACT, 0)
    return Request(netlink.RTM_DELQDISC, 0, body, f"taking random loss off {interface}")
