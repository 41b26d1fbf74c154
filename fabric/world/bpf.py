"""Small BPF programs on ports, by bpf(2) and rtnetlink alone. Layouts: linux/{bpf,pkt_cls,pkt_sched}.h."""

from __future__ import annotations

import ctypes
import os
import platform
import socket
import struct
from enum import IntEnum

from fabric.errors import EmulationError
from fabric.world import netlink
from fabric.world.netlink import Request

_SYS_BPF = {"x86_64": 321, "aarch64": 280, "riscv64": 280, "ppc64le": 361, "s390x": 351}
_PROG_LOAD, _PROG_TYPE_SCHED_CLS = 5, 3
_ATTRIBUTES_BYTES = 128
_LOG_BYTES = 4096
_CLSACT, _CLSACT_HANDLE = 0xFFFFFFF1, 0xFFFF0000
_ETH_P_ALL = 0x0003
_FIRST = 1 << 16 | socket.htons(_ETH_P_ALL)
"""A port's first filter, of frames of any kind."""

TC_ACT_OK, TC_ACT_STOLEN = 0, 4
"""What a program returns: go on, or it is gone, which nobody counts as a drop."""
EXIT = 0x95

_libc = ctypes.CDLL(None, use_errno=True)


class Way(IntEnum):
    """Where on a port a program is: what the port sends, before its queues, or what it receives."""

    IN = 0xFFFFFFF2
    OUT = 0xFFFFFFF3


def call(command: int, attributes: bytes, what: str) -> int:
    """Make the system call. Raises EmulationError with ``what`` and the kernel's reason."""
    number = _SYS_BPF.get(platform.machine())
    if number is None:
        raise EmulationError(f"{what}: this project does not support bpf(2) on {platform.machine()}")
    buffer = ctypes.create_string_buffer(attributes, _ATTRIBUTES_BYTES)
    result = int(_libc.syscall(number, command, buffer, _ATTRIBUTES_BYTES))
    if result < 0:
        raise EmulationError(
            f"{what}: {os.strerror(ctypes.get_errno())}; needs root and a kernel with CONFIG_BPF_SYSCALL"
        )
    return result


def instruction(code: int, to: int = 0, source: int = 0, offset: int = 0, immediate: int = 0) -> bytes:
    """Return one instruction: registers ``to`` and ``source``."""
    return struct.pack("=BBhi", code, source << 4 | to, offset, immediate)


def load(program: bytes, what: str) -> int:
    """Return the descriptor of a program for ports. Raises EmulationError with the verifier's words."""
    instructions = ctypes.create_string_buffer(program, len(program))
    licence, log = ctypes.create_string_buffer(b"Apache-2.0"), ctypes.create_string_buffer(_LOG_BYTES)
    pointers = ctypes.addressof(instructions), ctypes.addressof(licence)
    attributes = struct.pack(
        "=IIQQIIQ", _PROG_TYPE_SCHED_CLS, len(program) // 8, *pointers, 1, _LOG_BYTES, ctypes.addressof(log)
    )
    try:
        return call(_PROG_LOAD, attributes, what)
    except EmulationError as error:
        raise EmulationError(f"{error}; the kernel's verifier: {log.value.decode(errors='replace')}") from error


def install_requests(descriptor: int, index: int, interface: str, way: Way, what: str) -> list[Request]:
    """Return what puts a program on a port. The first program on a port empties its queues."""
    clsact = netlink.traffic_control(index, _CLSACT_HANDLE, _CLSACT, 0, "clsact")
    options = netlink.attribute(6, struct.pack("=I", descriptor)) + netlink.attribute(7, what.encode() + b"\0")
    options += netlink.attribute(8, struct.pack("=I", 1))  # TCA_BPF_FLAG_ACT_DIRECT: what it returns is done.
    program = netlink.traffic_control(index, 0, way, _FIRST, "bpf", options)
    putting = f"putting {what} on {interface}"
    return [
        Request(netlink.RTM_NEWQDISC, netlink.NLM_F_CREATE, clsact, putting),  # It may be there.
        Request(netlink.RTM_NEWTFILTER, netlink.NLM_F_CREATE | netlink.NLM_F_EXCL, program, putting),
    ]


def remove_request(index: int, interface: str, way: Way, what: str) -> Request:
    """Return what takes a program off a port; what waits there stays."""
    body = struct.pack("=BxxxiIII", 0, index, 0, way, _FIRST)
    return Request(netlink.RTM_DELTFILTER, 0, body, f"taking {what} off {interface}")
