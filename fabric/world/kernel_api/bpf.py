"""Small BPF programs on ports, by bpf(2) and rtnetlink alone. Layouts: linux/{bpf,pkt_cls,pkt_sched}.h."""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import socket
import struct
from collections.abc import Collection, Iterator
from enum import Enum, IntEnum
from pathlib import Path

from fabric.errors import EmulationError
from fabric.world.kernel_api import netlink
from fabric.world.kernel_api.netlink import Request

_SYS_BPF = {"x86_64": 321, "aarch64": 280, "riscv64": 280, "ppc64le": 361, "s390x": 351}
_MAP_CREATE, _MAP_LOOKUP, _MAP_UPDATE, _PROG_LOAD = 0, 1, 2, 5
_MAP_TYPE_HASH, _MAP_TYPE_ARRAY = 1, 2
_ONLY = bytes(4)
"""The key of the only value of a map."""
_PIN, _GET_PINNED, _INFORMATION, _CREATE_LINK = 6, 7, 15, 28
_GROUPS_EGRESS = 1
GROWING, UNSEEDED = 1, 64
"""Flags of a table: memory is taken as entries come; nothing is drawn at random for it."""
_ATTRIBUTES_BYTES = 128
_LOG_BYTES = 1 << 18
"""The verifier tells of each instruction on each path: a program that it has no room to tell of is refused."""
_CLSACT, _CLSACT_HANDLE = 0xFFFFFFF1, 0xFFFF0000
FIRST, SECOND, THIRD = (place << 16 | socket.htons(netlink.ETH_P_ALL) for place in (1, 2, 3))
"""A port's filters, of frames of any kind, in their order."""

TC_ACT_OK, TC_ACT_STOLEN = 0, 4
"""What a program returns: go on, or it is gone, which nobody counts as a drop."""
EXIT = 0x95

_libc = ctypes.CDLL(None, use_errno=True)


class ProgramKind(IntEnum):
    """What a program is put on."""

    SOCKET = 1
    PORT = 3
    GROUP = 8
    """What all sockets send that were made in a control group."""


class Way(IntEnum):
    """Where on a port a program is: what the port sends, before its queues, or what it receives."""

    IN = 0xFFFFFFF2
    OUT = 0xFFFFFFF3


class ObjectKind(Enum):
    """What the kernel numbers, by the commands for the next number and for the descriptor of one."""

    MAP = 12, 14
    LINK = 31, 30


def call(command: int, attributes: bytes, what: str) -> int:
    """Make the system call. Raises EmulationError with ``what`` and the kernel's reason."""
    return _call(command, ctypes.create_string_buffer(attributes, _ATTRIBUTES_BYTES), what)


def exchange(command: int, attributes: bytes, what: str, at_end: bool = False) -> bytes:
    """Make the system call and return its attributes as the kernel has left them.

    ``at_end``: that there is no more (ENOENT) is not an error. Raises EmulationError as :func:`call` does.
    """
    buffer = ctypes.create_string_buffer(attributes, _ATTRIBUTES_BYTES)
    _call(command, buffer, what, (errno.ENOENT,) if at_end else ())
    return buffer.raw


def _call(command: int, attributes: ctypes.Array[ctypes.c_char], what: str, expected: Collection[int] = ()) -> int:
    number = _SYS_BPF.get(platform.machine())
    if number is None:
        raise EmulationError(f"{what}: this project does not support bpf(2) on {platform.machine()}")
    result = int(_libc.syscall(number, command, attributes, _ATTRIBUTES_BYTES))
    if result < 0 and (code := ctypes.get_errno()) not in expected:
        raise EmulationError(f"{what}: {os.strerror(code)}; needs root and a kernel with CONFIG_BPF_SYSCALL")
    return result


def pin(descriptor: int, path: Path) -> None:
    """Give something a name in a file system of the kind ``bpf``, which holds it."""
    name = ctypes.create_string_buffer(bytes(path))
    call(_PIN, struct.pack("=QII", ctypes.addressof(name), descriptor, 0), f"naming {path}")


def pinned(path: Path) -> int:
    """Return a descriptor of what has a name."""
    name = ctypes.create_string_buffer(bytes(path))
    return call(_GET_PINNED, struct.pack("=QII", ctypes.addressof(name), 0, 0), f"opening {path}")


def update(memory: int, key: bytes, value: bytes, what: str) -> None:
    """Write a value of a map."""
    _exchange(_MAP_UPDATE, memory, key, value, what)


def look_up(memory: int, key: bytes, size_bytes: int, what: str) -> bytes:
    """Read a value of a map."""
    return _exchange(_MAP_LOOKUP, memory, key, bytes(size_bytes), what)


def _exchange(command: int, memory: int, key: bytes, value: bytes, what: str) -> bytes:
    place = ctypes.create_string_buffer(key, len(key))
    buffer = ctypes.create_string_buffer(value, len(value))
    call(command, struct.pack("=IxxxxQQQ", memory, ctypes.addressof(place), ctypes.addressof(buffer), 0), what)
    return buffer.raw


def memory_of(size_bytes: int, what: str) -> int:
    """Return the descriptor of a map of one value, which begins as zeros: a program's memory."""
    return call(_MAP_CREATE, struct.pack("=IIIII", _MAP_TYPE_ARRAY, len(_ONLY), size_bytes, 1, 0), what)


def table_of(key_bytes: int, value_bytes: int, entries: int, what: str, flags: int = 0) -> int:
    """Return the descriptor of an empty map from keys to values."""
    return call(_MAP_CREATE, struct.pack("=IIIII", _MAP_TYPE_HASH, key_bytes, value_bytes, entries, flags), what)


def write(memory: int, value: bytes, what: str) -> None:
    """Write all of a program's memory."""
    update(memory, _ONLY, value, what)


def read(memory: int, size_bytes: int, what: str) -> bytes:
    """Read all of a program's memory."""
    return look_up(memory, _ONLY, size_bytes, what)


def descriptors(kind: ObjectKind) -> Iterator[int]:
    """Yield a descriptor of each of a kind that is in the kernel; whoever iterates closes them. Needs root."""
    following, _ = kind.value
    attributes = ctypes.create_string_buffer(_ATTRIBUTES_BYTES)
    number = _SYS_BPF.get(platform.machine(), -1)
    while _libc.syscall(number, following, attributes, _ATTRIBUTES_BYTES) == 0:
        (identity,) = struct.unpack_from("=I", attributes, 4)
        if (descriptor := descriptor_of(kind, identity)) is not None:
            yield descriptor
        struct.pack_into("=II", attributes, 0, identity, 0)


def descriptor_of(kind: ObjectKind, identity: int) -> int | None:
    """Return a descriptor by the kernel's number of something; None: it is gone."""
    _, command = kind.value
    try:
        return call(command, struct.pack("=I", identity), f"getting at BPF {kind.name.lower()} {identity}")
    except EmulationError:
        return None


def information(descriptor: int, size_bytes: int) -> bytes:
    """Return what the kernel tells of something: as much as it has, zeros behind that."""
    buffer = ctypes.create_string_buffer(size_bytes)
    call(_INFORMATION, struct.pack("=IIQ", descriptor, size_bytes, ctypes.addressof(buffer)), "asking of a BPF object")
    return buffer.raw


def instruction(code: int, to: int = 0, source: int = 0, offset: int = 0, immediate: int = 0) -> bytes:
    """Return one instruction: registers ``to`` and ``source``."""
    return struct.pack("=BBhi", code, source << 4 | to, offset, immediate)


def load(program: bytes, what: str, kind: ProgramKind = ProgramKind.PORT) -> int:
    """Return the descriptor of a program. Raises EmulationError with the verifier's words."""
    instructions = ctypes.create_string_buffer(program, len(program))
    licence, log = ctypes.create_string_buffer(b"Apache-2.0"), ctypes.create_string_buffer(_LOG_BYTES)
    pointers = ctypes.addressof(instructions), ctypes.addressof(licence)
    attributes = struct.pack("=IIQQIIQ", kind, len(program) // 8, *pointers, 1, _LOG_BYTES, ctypes.addressof(log))
    try:
        return call(_PROG_LOAD, attributes, what)
    except EmulationError as error:
        raise EmulationError(f"{error}; the kernel's verifier: {log.value.decode(errors='replace')}") from error


def attach_to_group(program: int, group: int, what: str) -> int:
    """Have a program see what is sent in a control group, by its directory, and those below, until the descriptor that
    is returned is closed."""
    return call(_CREATE_LINK, struct.pack("=IIII", program, group, _GROUPS_EGRESS, 0), what)


def install_requests(
    descriptor: int, index: int, interface: str, way: Way, what: str, place: int = FIRST
) -> list[Request]:
    """Return what puts a program on a port, by default as its first. The first program on a port empties its queues."""
    options = netlink.attribute(6, struct.pack("=I", descriptor)) + netlink.attribute(7, what.encode() + b"\0")
    options += netlink.attribute(8, struct.pack("=I", 1))  # TCA_BPF_FLAG_ACT_DIRECT: what it returns is done.
    return filter_requests(index, interface, way, options, what, place)


def filter_requests(
    index: int, interface: str, way: Way, options: bytes, what: str, place: int = FIRST
) -> list[Request]:
    """Return what puts a filter with these options on a port, by default as its first. That empties its queues."""
    clsact = netlink.traffic_control(index, _CLSACT_HANDLE, _CLSACT, 0, "clsact")
    program = netlink.traffic_control(index, 0, way, place, "bpf", options)
    putting = f"putting {what} on {interface}"
    return [
        Request(netlink.RTM_NEWQDISC, netlink.NLM_F_CREATE, clsact, putting),  # It may be there.
        Request(netlink.RTM_NEWTFILTER, netlink.NLM_F_CREATE | netlink.NLM_F_EXCL, program, putting),
    ]


def remove_request(index: int, interface: str, way: Way, what: str, place: int = FIRST) -> Request:
    """Return what takes a program off a port; what waits there stays."""
    body = struct.pack("=BxxxiIII", 0, index, 0, way, place)
    return Request(netlink.RTM_DELTFILTER, 0, body, f"taking {what} off {interface}")
