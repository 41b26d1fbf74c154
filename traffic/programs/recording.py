"""What unmodified programs send and receive, as values: what the library ``recorded_sockets.c`` has written."""

from __future__ import annotations

import ipaddress
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum, IntFlag
from pathlib import Path

import numpy as np
import numpy.typing as npt

from fabric.errors import EmulationError
from fabric.world.programs.preload import build_library

_SOURCE = Path(__file__).with_name("recorded_sockets.c")
_MAGIC = b"\0FABREC1"
_HEAD_BYTES = 4096
_HEAD = struct.Struct("<8si3I4Q72s512s512s")  # struct head of recorded_sockets.c
_INTERPRETER = 3  # PT_INTERP: what loads a program's libraries.
MOST_RECORDS = ((1 << 30) - _HEAD_BYTES) // 64
"""As many as a process can write."""

RECORD = np.dtype(
    [
        ("started_ns", "<u8"),
        ("ended_ns", "<u8"),
        ("bytes", "<u8"),
        ("wanted", "<u8"),
        ("busy_ns", "<u8"),
        ("busy_then_ns", "<u8"),
        ("connection", "<u4"),
        ("thread", "<u2"),
        ("kind", "u1"),
        ("flags", "u1"),
        ("other", "<u8"),
    ]
)
"""``struct record`` of ``recorded_sockets.c``, which says what each is."""
Records = npt.NDArray[np.void]


class RecordKind(IntEnum):
    """What a record says."""

    SENT = 1
    RECEIVED = 2
    CONNECTED = 3
    WOKEN = 4


class RecordFlag(IntFlag):
    """What else."""

    DOES_NOT_BLOCK = 1
    IS_SIGNALLED = 2


@dataclass(frozen=True)
class Endpoint:
    """An IPv4 address and a port."""

    address: str
    port: int

    @classmethod
    def unpacked(cls, value: int) -> Endpoint:
        """Return what ``address << 16 | port`` stands for."""
        return cls(str(ipaddress.IPv4Address(value >> 16)), value & 0xFFFF)

    def __str__(self) -> str:
        return f"{self.address}:{self.port}"


@dataclass(frozen=True)
class ProcessRecords:
    """What one process has written. ``records`` are of the type RECORD, in the order in which they were begun.

    ``lost``: records for which there was no room. ``beyond``: calls with descriptors above 65,535, which are not
    recorded. ``datagram_bytes``: sent by UDP. ``local_bytes``: sent over connections of a host with itself.
    """

    process: int
    host: str
    command: str
    environment: Mapping[str, str]
    records: Records
    lost: int = 0
    beyond: int = 0
    datagram_bytes: int = 0
    local_bytes: int = 0

    def __str__(self) -> str:
        return f"{self.command} (process {self.process} on {self.host})"


def recording_environment(directory: Path, preloaded: str = "") -> dict[str, str]:
    """Return what makes programs write their records into a directory, with the library that does so, built there.

    ``preloaded``: libraries that are preloaded anyway, as LD_PRELOAD names them. Raises EmulationError without a
    compiler.
    """
    directory.mkdir(exist_ok=True, parents=True)
    library = directory / "recorded_sockets.so"
    if not library.exists():
        build_library(library, [_SOURCE], "recording a program")
    return {"LD_PRELOAD": f"{preloaded}:{library}" if preloaded else str(library), "FABRIC_RECORD": str(directory)}


def is_static(program: Path) -> bool:
    """Return whether a program is linked statically, so that nothing can be preloaded into it; scripts are not."""
    with program.open("rb") as file:
        head = file.read(64)
        if len(head) < 64 or head[:6] != b"\x7fELF\x02\x01":
            return False
        (offset,) = struct.unpack_from("<Q", head, 32)
        size, count = struct.unpack_from("<HH", head, 54)
        file.seek(offset)
        table = file.read(size * count)
    kinds = [struct.unpack_from("<I", table, place)[0] for place in range(0, len(table) - 3, size or 1)]
    return _INTERPRETER not in kinds


def read_records(directory: Path) -> list[ProcessRecords]:
    """Return what all processes have written, by host and process. Raises EmulationError for a file that is none."""
    found = [_read(path) for path in sorted(directory.glob("*.records"))]
    return sorted(found, key=lambda one: (one.host, one.process))


def _read(path: Path) -> ProcessRecords:
    with path.open("rb") as file:
        head = file.read(_HEAD_BYTES)
        if len(head) < _HEAD.size or head[: len(_MAGIC)] != _MAGIC:
            raise EmulationError(f"{path}: is not a file of records of a program: its first bytes are {head[:8]!r}")
        _, process, _, _, beyond, count, lost, datagrams, local, host, names, command = _HEAD.unpack_from(head)
        data = file.read(min(count, MOST_RECORDS) * RECORD.itemsize)
    records = np.frombuffer(data, RECORD)
    lines = _text(names).splitlines()
    return ProcessRecords(
        process=process,
        host=_text(host),
        command=_text(command.rstrip(b"\0").replace(b"\0", b" ")),
        environment=dict(line.split("=", 1) for line in lines if "=" in line),
        records=records[records["kind"] > 0],  # A thread that was killed has not finished its last one.
        lost=lost,
        beyond=beyond,
        datagram_bytes=datagrams,
        local_bytes=local,
    )


def _text(value: bytes) -> str:
    return value.partition(b"\0")[0].decode(errors="replace")
