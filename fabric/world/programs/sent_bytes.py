"""What each of several programs sends by the NICs of its hosts, with all processes that it starts there or by ``ssh``.

A program has a control group per host, into which its processes are cloned (``host_programs.c``); the kernel knows of
each socket in which group it was made, queue pairs of RDMA verbs among them. A BPF program on the groups adds up what
their sockets send by any interface but loopback: frames as the NIC's queues count them. Nothing is added to a program,
and in virtual time it takes none.
"""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress
from pathlib import Path

from fabric.errors import EmulationError
from fabric.world.isolation.mounts import NODEV, NOEXEC, NOSUID, mount
from fabric.world.kernel_api import bpf
from fabric.world.kernel_api.bpf import EXIT, ProgramKind, instruction

PLACE = "FABRIC_PROGRAM_GROUP"
"""Names, to what enters hosts, the directory in which a program has its groups; ``host_programs.c`` knows it, too."""
_MOUNTED = Path("/sys/fs/cgroup")
"""Of the run's own /sys, which hosts do not see; ``host_programs.c`` knows it, too."""
_PREFIX = "fabric-"
"""What the groups of a run begin with; ``host_programs.c`` knows it, too."""
_MOST_GROUPS = 1 << 20
_WHAT = "counting what programs send"
_LOOPBACK = 1
_LENGTH, _INTERFACE, _SEGMENTS = 0, 40, 164  # In struct __sk_buff.
_LOOK_UP, _UPDATE, _LOAD_BYTES, _GROUP_OF = 1, 2, 26, 79
_ETHERNET_BYTES, _IP_BYTES, _UDP_BYTES = 14, 20, 8
_UDP = 17
_IP_PROTOCOL, _TCP_OFFSET = 9, 12


class SentBytes:
    """Counts, from when it is made until it is closed.

    ``mtu_bytes``: above it a datagram is sent in parts. Raises EmulationError on a kernel without control groups of
    version 2 for BPF programs, or where this process may not make any.
    """

    def __init__(self, mtu_bytes: int) -> None:
        self._descriptors: list[int] = []
        self._root: Path | None = None
        try:
            self._root = self._made_root()
            self._table = bpf.table_of(8, 8, _MOST_GROUPS, _WHAT, bpf.UNSEEDED | bpf.GROWING)
            self._descriptors.append(self._table)
            program = bpf.load(_program(self._table, mtu_bytes), _WHAT, ProgramKind.GROUP)
            self._descriptors.append(program)
            self._descriptors.append(bpf.attach_to_group(program, self._descriptors[0], _WHAT))
        except (EmulationError, OSError) as error:
            self.close()
            raise EmulationError(f"{_WHAT}: {error}") from error

    def environment(self, program: int) -> dict[str, str]:
        """Return the variables by which a program is counted: processes with the same number are one program."""
        assert self._root is not None
        place = self._root / str(program)
        place.mkdir(exist_ok=True)
        return {PLACE: str(place)}

    def sent(self) -> dict[tuple[int, str], int]:
        """Return the bytes that programs have sent so far, by their number and host."""
        assert self._root is not None
        return {
            (int(group.parent.name), group.name): self._count_of(group) for group in sorted(self._root.glob("*/*/"))
        }

    def _count_of(self, group: Path) -> int:
        key = group.stat().st_ino.to_bytes(8, "little")
        try:
            return int.from_bytes(bpf.look_up(self._table, key, 8, _WHAT), "little")
        except EmulationError:  # It has sent nothing.
            return 0

    def close(self) -> None:
        """Count no more. The groups of programs that still run are left to the next run on this machine."""
        if self._root is not None:
            _remove(self._root)
        while self._descriptors:
            os.close(self._descriptors.pop())

    def _made_root(self) -> Path:
        """Make the group of all programs of this run, below that of this process, whose limits hold for them, too. It
        is held by a lock, so that what a killed run has left can be told from what is in use."""
        if not (_MOUNTED / "cgroup.procs").exists():
            mount("cgroup2", _MOUNTED, NOSUID | NODEV | NOEXEC)
        own = next(line[3:] for line in Path("/proc/self/cgroup").read_text().splitlines() if line.startswith("0::"))
        place = _MOUNTED / own.lstrip("/")
        root = place / f"{_PREFIX}{Path('/proc/self/ns/net').stat().st_ino}-{os.getpid()}"
        alone = _held(place, wait=True)  # Nobody removes what is not held yet.
        try:
            for left in place.glob(f"{_PREFIX}*/"):
                _remove_unused(left)
            root.mkdir()
            self._descriptors.append(_held(root))
        finally:
            os.close(alone)
        return root


def _held(group: Path, wait: bool = False) -> int:
    """Return a descriptor of a group that nobody else holds until it is closed. Raises OSError if another does."""
    descriptor = os.open(group, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def _remove_unused(root: Path) -> None:
    """Remove the groups of a run that has ended."""
    with suppress(OSError):  # Another run holds it.
        descriptor = _held(root)
        try:
            _remove(root)
        finally:
            os.close(descriptor)


def _remove(root: Path) -> None:
    for group in (*root.glob("*/*/"), *root.glob("*/"), root):
        with suppress(OSError):  # Programs still run there.
            group.rmdir()


def _program(table: int, mtu_bytes: int) -> bytes:
    """Return the program, to which a packet comes from its IP header on: r6 is the packet, r7 the bytes of its frames.

    What is cut into segments or parts behind this has headers for each.
    """
    frames = [*_segments(), *_parts(mtu_bytes)]
    counting = [*_add(table), instruction(0xB7, immediate=1), instruction(EXIT)]
    start = [
        instruction(0xBF, to=6, source=1),
        instruction(0x61, to=7, source=6, offset=_LENGTH),
        instruction(0x61, to=2, source=6, offset=_INTERFACE),
        instruction(0x55, to=2, offset=2, immediate=_LOOPBACK),
        instruction(0xB7, immediate=1),
        instruction(EXIT),
    ]
    return b"".join([*start, *frames, *counting])


def _segments() -> list[bytes]:
    """Add the headers of all segments but the first; r9 is their bytes."""
    tcp = [
        *_byte_at(9, _TCP_OFFSET),
        instruction(0x77, to=1, immediate=4),
        instruction(0x67, to=1, immediate=2),
        instruction(0x0F, to=9, source=1),
    ]
    udp = [instruction(0x07, to=9, immediate=_UDP_BYTES), instruction(0x05, offset=len(tcp))]
    add = [
        *_byte_at(None, 0),
        instruction(0x57, to=1, immediate=15),
        instruction(0x67, to=1, immediate=2),
        instruction(0xBF, to=9, source=1),  # r9 = bytes of the IP header
        *_byte_at(None, _IP_PROTOCOL),
        instruction(0x55, to=1, offset=len(udp), immediate=_UDP),
        *udp,
        *tcp,
        instruction(0x07, to=9, immediate=_ETHERNET_BYTES),
        instruction(0xBF, to=1, source=9),
        instruction(0x2F, to=1, source=8),
        instruction(0x1F, to=1, source=9),
        instruction(0x0F, to=7, source=1),
    ]
    return [
        instruction(0x61, to=8, source=6, offset=_SEGMENTS),  # r8 = segments; 0 or 1: a packet as it is
        instruction(0x25, to=8, offset=1, immediate=1),
        instruction(0x05, offset=len(add)),
        *add,
    ]


def _parts(mtu_bytes: int) -> list[bytes]:
    """Add the headers of all parts of a datagram that is too long, and then one Ethernet header."""
    step = (mtu_bytes - _IP_BYTES) // 8 * 8
    add = [
        instruction(0xBF, to=1, source=7),
        instruction(0x07, to=1, immediate=-_IP_BYTES - 1),
        instruction(0x37, to=1, immediate=step),  # r1 = parts but the first
        instruction(0x27, to=1, immediate=_IP_BYTES + _ETHERNET_BYTES),
        instruction(0x0F, to=7, source=1),
    ]
    return [
        instruction(0x25, to=8, offset=len(add) + 1, immediate=1),
        instruction(0xB5, to=7, offset=len(add), immediate=mtu_bytes),
        *add,
        instruction(0x07, to=7, immediate=_ETHERNET_BYTES),
    ]


def _byte_at(register: int | None, offset: int) -> list[bytes]:
    """Read a byte of the packet into r1, ``offset`` bytes behind where a register points; 0 where there is none."""
    place = [instruction(0xB7, to=2)] if register is None else [instruction(0xBF, to=2, source=register)]
    return [
        instruction(0x7A, to=10, offset=-8),
        instruction(0xBF, to=1, source=6),
        *place,
        instruction(0x07, to=2, immediate=offset),
        instruction(0xBF, to=3, source=10),
        instruction(0x07, to=3, immediate=-8),
        instruction(0xB7, to=4, immediate=1),
        instruction(0x85, immediate=_LOAD_BYTES),
        instruction(0x79, to=1, source=10, offset=-8),
    ]


def _add(table: int) -> list[bytes]:
    """Add r7 to the entry of the socket's group, which is made if there is none."""
    entry = [
        instruction(0x18, to=1, source=1, immediate=table),
        instruction(0),
        instruction(0xBF, to=2, source=10),
        instruction(0x07, to=2, immediate=-16),
    ]
    look_up = [*entry, instruction(0x85, immediate=_LOOK_UP)]
    make = [
        *entry,
        instruction(0xBF, to=3, source=10),
        instruction(0x07, to=3, immediate=-24),
        instruction(0xB7, to=4, immediate=1),  # Only if there is none.
        instruction(0x85, immediate=_UPDATE),
        *look_up,
    ]
    return [
        instruction(0xBF, to=1, source=6),
        instruction(0x85, immediate=_GROUP_OF),
        instruction(0x7B, to=10, source=0, offset=-16),
        instruction(0x7A, to=10, offset=-24),
        *look_up,
        instruction(0x55, to=0, offset=len(make), immediate=0),
        *make,
        instruction(0x15, to=0, offset=1, immediate=0),
        instruction(0xDB, to=0, source=7),  # Atomically.
    ]
