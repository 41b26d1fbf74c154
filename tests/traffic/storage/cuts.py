"""Cuts a process off from the network, as a broken cable does: packets from and to its addresses vanish, and nobody is
told. Made of socket filters that drop what comes, put on all sockets of all processes concerned; no root needed.

TCP acts as it does on a fabric: it retransmits, backs off, and gives up after its user timeout.
"""

from __future__ import annotations

import ctypes
import errno
import os
import socket
import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

_PIDFD_GETFD = 438  # asm-generic/unistd.h
_SO_ATTACH_FILTER, _SO_DETACH_FILTER = 26, 27
_NETWORK_HEADER = -0x100000  # linux/filter.h: SKF_NET_OFF
_SOURCE_ADDRESS = 12
_LOAD_WORD, _JUMP_IF_EQUAL, _RETURN = 0x20, 0x15, 0x06
_ALL_OF_IT = 0xFFFFFFFF

_DROP_ALL = [(_RETURN, 0, 0, 0)]

_libc = ctypes.CDLL(None, use_errno=True)
Instruction = tuple[int, int, int, int]


@dataclass
class Network:
    """Nodes by name: the addresses that each has, and the process that it is part of."""

    addresses: dict[str, frozenset[str]] = field(default_factory=dict)
    processes: dict[str, int] = field(default_factory=dict)
    cut_off: set[str] = field(default_factory=set)

    def add(self, name: str, pid: int, addresses: Iterable[str]) -> None:
        self.addresses[name] = frozenset(addresses)
        self.processes[name] = pid

    def remove(self, name: str) -> None:
        """Forget a node whose process has ended."""
        del self.processes[name]
        self.cut_off.discard(name)

    def cut(self, name: str) -> None:
        """Let nothing from or to a node through."""
        self.cut_off.add(name)
        self._apply()

    def heal(self) -> None:
        """Let everything through again."""
        self.cut_off.clear()
        self._apply()

    def _apply(self) -> None:
        """Those that are cut off hear nothing, the others nothing from them. Sockets that are accepted later inherit
        the filter of the listening one."""
        gone = frozenset().union(*(self.addresses[name] for name in self.cut_off))
        others = _drop_from(sorted(gone))
        for pid in set(self.processes.values()):
            for sock in sockets_of(pid):
                with sock:
                    _filter(sock, _DROP_ALL if sock.getsockname()[0] in gone else others)


def _drop_from(addresses: Sequence[str]) -> list[Instruction]:
    if not addresses:
        return []
    numbers = [int.from_bytes(socket.inet_aton(address), "big") for address in addresses]
    tests = [(_JUMP_IF_EQUAL, len(numbers) - place, 0, number) for place, number in enumerate(numbers)]
    load = (_LOAD_WORD, 0, 0, (_NETWORK_HEADER + _SOURCE_ADDRESS) & 0xFFFFFFFF)
    return [load, *tests, (_RETURN, 0, 0, _ALL_OF_IT), (_RETURN, 0, 0, 0)]


def _filter(sock: socket.socket, program: Sequence[Instruction]) -> None:
    if not program:
        try:
            sock.setsockopt(socket.SOL_SOCKET, _SO_DETACH_FILTER, 0)
        except FileNotFoundError:
            return  # It had none.
        return
    code = b"".join(struct.pack("=HBBI", *instruction) for instruction in program)
    buffer = ctypes.create_string_buffer(code)
    sock.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, struct.pack("@HP", len(program), ctypes.addressof(buffer)))


def sockets_of(pid: int) -> Iterator[socket.socket]:
    """Yield duplicates of a process's TCP sockets over IPv4, which the caller closes; none of one that has ended."""
    try:
        pidfd = os.pidfd_open(pid)
    except ProcessLookupError:  # A service ends itself when its own checks fail; who halts the job hears of that.
        return
    try:
        for entry in _descriptors(pid):
            try:
                if not str(entry.readlink()).startswith("socket:"):
                    continue
            except (FileNotFoundError, ProcessLookupError):
                continue  # Closed meanwhile.
            descriptor = _libc.syscall(_PIDFD_GETFD, pidfd, int(entry.name), 0)
            if descriptor < 0:
                if (code := ctypes.get_errno()) in (errno.EBADF, errno.ENOENT):  # Closed meanwhile.
                    continue
                if code == errno.ESRCH:  # The process ended meanwhile.
                    return
                raise OSError(code, f"pidfd_getfd: {os.strerror(code)}")
            sock = socket.socket(fileno=descriptor)
            if sock.family is socket.AF_INET and sock.type is socket.SOCK_STREAM:
                yield sock
            else:
                sock.close()
    finally:
        os.close(pidfd)


def _descriptors(pid: int) -> list[Path]:
    try:
        return list(Path(f"/proc/{pid}/fd").iterdir())
    except (FileNotFoundError, ProcessLookupError):
        return []
