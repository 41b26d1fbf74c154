"""Cuts a process off from the network, as a broken cable does: packets from and to its addresses vanish, and nobody is
told. Or parts two of them, in one direction or in both, as wrong routes do. Made of socket filters that drop what
comes, put on all sockets of all processes concerned; no root needed.

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
    deaf: set[tuple[str, str]] = field(default_factory=set)
    """Of each pair, the first hears nothing of the second."""

    def add(self, name: str, pid: int, addresses: Iterable[str]) -> None:
        self.addresses[name] = frozenset(addresses)
        self.processes[name] = pid

    def remove(self, name: str) -> None:
        """Forget a node whose process has ended."""
        del self.processes[name]
        self.cut_off.discard(name)
        self.deaf = {pair for pair in self.deaf if name not in pair}

    def cut(self, name: str) -> None:
        """Let nothing from or to a node through."""
        self.cut_off.add(name)
        self._apply()

    def part(self, hearer: str, speaker: str, both_ways: bool) -> None:
        """Let nothing of one node through to another; nor the other way, if so told."""
        self.deaf |= {(hearer, speaker), (speaker, hearer)} if both_ways else {(hearer, speaker)}
        self._apply()

    def heal(self) -> None:
        """Let everything through again."""
        self.cut_off.clear()
        self.deaf.clear()
        self._apply()

    def _apply(self) -> None:
        """Those that are cut off hear nothing, the others nothing from them. Sockets that are accepted later inherit
        the filter of the listening one."""
        gone = self._addresses_of(self.cut_off)
        owners = {address: name for name in self.processes for address in self.addresses[name]}
        for pid in set(self.processes.values()):
            for sock in sockets_of(pid):
                with sock:
                    own = sock.getsockname()[0]
                    unheard = self._unheard_by(owners.get(own), sock)
                    _filter(sock, _DROP_ALL if own in gone else _drop_from(gone | unheard))

    def _unheard_by(self, name: str | None, sock: socket.socket) -> frozenset[str]:
        """Return whom a socket of a node does not hear. One that listens does not answer those either that would not
        hear the answer: what they dial with has no filter yet."""
        unheard = {speaker for hearer, speaker in self.deaf if hearer == name}
        if sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
            unheard |= {hearer for hearer, speaker in self.deaf if speaker == name}
        return self._addresses_of(unheard)

    def _addresses_of(self, names: Iterable[str]) -> frozenset[str]:
        return frozenset().union(*(self.addresses[name] for name in names))


def _drop_from(addresses: frozenset[str]) -> list[Instruction]:
    if not addresses:
        return []
    numbers = [int.from_bytes(socket.inet_aton(address), "big") for address in sorted(addresses)]
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
