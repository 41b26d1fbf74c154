"""Queues of HTB that mark on kernels without RED: by a BPF program, the filter of each port's tree.

It marks as RED does here (:mod:`fabric.queueing.red`): as a frame comes, by what waits in its lane, but with a toss for
each frame, so that the curve is the configured one exactly. A run has one such program. What it has marked is in a map
that processes of the run find in a file system of the run's own.
"""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from fabric.errors import EmulationError
from fabric.model.marking import Marking
from fabric.world import inside
from fabric.world.isolation.mounts import NODEV, NOEXEC, NOSUID, mount
from fabric.world.kernel_api import bpf, libbpf, netlink
from fabric.world.kernel_api.netlink import Request

CONTROL = 256
"""The place of the entry of acknowledgements' own lane, if they have one, behind those of all TOS bytes."""
_LANE = struct.Struct("=IIII")
_MOUNTED = inside.RUN_DIR / "bpf"
_MARKS = _MOUNTED / "marks"
_LOOK_UP_BATCH = 24
_BATCH = struct.Struct("=QQQQIIQQ")
_MOST_QUEUES = 65536
_COUNT_OFFSET = 32


@dataclass(frozen=True)
class LaneEntry:
    """The class of a lane, as HTB knows it (major << 16 | minor), and its marking."""

    classid: int
    marking: Marking | None = None

    def packed(self) -> bytes:
        """Return it as the program knows it."""
        if self.marking is None:
            return _LANE.pack(self.classid, 0, 0, 0)
        pmax = min(round(self.marking.pmax * 2**32), 2**32 - 1)
        return _LANE.pack(self.classid, self.marking.kmin, self.marking.kmax, pmax)


class Program:
    """The program in the kernel, with the map of its lanes; the map of its marks is in the run's file system."""

    def __init__(self) -> None:
        loaded = libbpf.Loaded("marking")
        try:
            self.descriptor, self._lanes = loaded.program("mark"), loaded.map("lanes")
            _keep(loaded.map("marks"))
        finally:
            loaded.close()

    def know(self, entries: Mapping[int, LaneEntry]) -> None:
        """Learn the lanes by TOS byte without ECN bits, and that of acknowledgements at CONTROL if there is one."""
        nothing = LaneEntry(0)
        for place in range(CONTROL + 1):
            entry = entries.get(place, nothing)
            bpf.update(self._lanes, place.to_bytes(4, "little"), entry.packed(), "telling lanes to what marks")


_running: list[Program] = []
"""The program of this run, once it is loaded."""


def provide(entries: Mapping[int, LaneEntry]) -> None:
    """Let the ports of this run mark by these entries from now on. Raises EmulationError."""
    if not _running:
        _running.append(Program())
    _running[0].know(entries)


def request(index: int, interface: str) -> Request:
    """Make the program the filter of qdisc 1: of a port. Call :func:`provide` first."""
    options = netlink.attribute(6, struct.pack("=I", _running[0].descriptor)) + netlink.attribute(7, b"marking\0")
    body = netlink.traffic_control(index, 0, 1 << 16, bpf.FIRST, "bpf", options)
    flags = netlink.NLM_F_CREATE | netlink.NLM_F_EXCL
    return Request(netlink.RTM_NEWTFILTER, flags, body, f"letting {interface} mark")


def _keep(descriptor: int) -> None:
    """Give the map of marks a name in a file system that ends with the run."""
    _MOUNTED.mkdir(parents=True, exist_ok=True)
    mount("bpf", _MOUNTED, NOSUID | NODEV | NOEXEC, "mode=700")
    bpf.pin(descriptor, _MARKS)
    os.close(descriptor)


class Marks:
    """Reads how many frames each queue has marked."""

    def __init__(self, path: Path) -> None:
        self._descriptor = bpf.pinned(path)
        self._keys = np.zeros(_MOST_QUEUES, [("interface", "<u4"), ("minor", "<u4")])
        self._counts = np.zeros(_MOST_QUEUES, "<u8")
        self._next = ctypes.create_string_buffer(8)

    def of(self, interfaces: npt.NDArray[np.intp], minors: npt.NDArray[np.intp]) -> npt.NDArray[np.uint64]:
        """Return the frames marked by each of some queues. Raises EmulationError if frames had no queue."""
        size = self._read()
        found = self._codes(self._keys["interface"][:size], self._keys["minor"][:size])
        if (lost := self._counts[:size][found == 0]).size:
            raise EmulationError(
                f"{lost[0]} frames could not be marked: this kernel does not have their queues where a BPF program "
                "looks for them; use the virtual engine: --engine virtual"
            )
        order = np.argsort(found)
        wanted = self._codes(interfaces, minors)
        places = np.searchsorted(found[order], wanted)
        counts = np.zeros(len(wanted), np.uint64)
        inner = places < size
        inner[inner] = found[order][places[inner]] == wanted[inner]
        counts[inner] = self._counts[:size][order][places[inner]]
        return counts

    @staticmethod
    def _codes(interfaces: npt.NDArray[np.generic], minors: npt.NDArray[np.generic]) -> npt.NDArray[np.uint64]:
        return interfaces.astype(np.uint64) << np.uint64(32) | minors.astype(np.uint64)

    def _read(self) -> int:
        pointers = (ctypes.addressof(self._next), self._keys.ctypes.data, self._counts.ctypes.data)
        fields = _BATCH.pack(0, *pointers, _MOST_QUEUES, self._descriptor, 0, 0)
        answer = bpf.exchange(_LOOK_UP_BATCH, fields, "reading marks", at_end=True)
        return int(struct.unpack_from("=I", answer, _COUNT_OFFSET)[0])


def marks() -> Marks | None:
    """Return the reader of this run's marks; None: no program marks here."""
    return Marks(_MARKS) if _MARKS.exists() else None
