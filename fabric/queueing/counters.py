"""Counters of every lane's queue out of qdisc dumps, HTB's and lossless ones."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from fabric.queueing import marking_filter
from fabric.queueing.htb import _FIRST_LANE, _MAX_LANES
from fabric.queueing.vl_samples import VlReader, VlSample
from fabric.world.kernel_api import netlink

# Where the fields of a queue's counters are within its message, found once a layout.
_TCMSG_START = netlink.HEADER.size
_ATTRIBUTES_START = _TCMSG_START + 20
_KIND, _STATS2, _BASIC, _QUEUE, _APP = 1, 7, 1, 3, 4
_MARKS = "marked_packets"
COUNTERS = np.dtype(
    [
        ("sent_bytes", "<u8"),
        ("sent_packets", "<u4"),
        ("backlog_packets", "<u4"),
        ("backlog_bytes", "<u4"),
        ("drops_packets", "<u4"),
        (_MARKS, "<u4"),
    ]
)
"""Counters of a lane's queue: bytes and packets sent, packets and bytes waiting, packets dropped and marked (ECN). All
but those that wait are cumulative. Columns of the table ``ports`` have the same names."""


@dataclass(frozen=True)
class _Layout:
    """Where, in a dump of one length, each lane queue's message begins and where in it the counters are; ``marking``:
    which of the queues mark, and count that."""

    keys: list[tuple[int, int]]
    identities: npt.NDArray[np.intp]
    expected: npt.NDArray[np.uint8]
    fields: dict[str, npt.NDArray[np.intp]]
    marking: npt.NDArray[np.intp]

    @cached_property
    def interfaces(self) -> npt.NDArray[np.intp]:
        """The interface index of each queue."""
        return np.array([index for index, _ in self.keys], dtype=np.intp)

    @cached_property
    def minors(self) -> npt.NDArray[np.intp]:
        """The minor number of each queue's class."""
        return np.array([_FIRST_LANE + lane for _, lane in self.keys], dtype=np.intp)


@dataclass(frozen=True)
class QueueSample:
    """The (interface index, lane number) of each lane queue, their COUNTERS, and what else lossless ports tell."""

    keys: list[tuple[int, int]]
    counters: npt.NDArray[np.void]
    lossless: VlSample | None = None


class QueueReader:
    """Reads lane counters out of qdisc dumps.

    A namespace's dumps all look alike while its queues stay the same, so the places of the counters are found once and
    then gathered by index: a sample of a thousand queues costs microseconds, not milliseconds.
    """

    def __init__(self) -> None:
        self._layout: _Layout | None = None
        self._marks: marking_filter.Marks | None = None
        self._length = -1
        self._vl = VlReader()

    def read(self, dump: bytes) -> tuple[list[tuple[int, int]], npt.NDArray[np.void]]:
        """Return the (interface index, lane number) of each lane queue in a dump, and their COUNTERS."""
        sample = self.sample(dump)
        return sample.keys, sample.counters

    def sample(self, dump: bytes) -> QueueSample:
        """Return all that the ports of a dump tell. Raises EmulationError as :mod:`fabric.queueing.vl` does."""
        data = np.frombuffer(dump, dtype=np.uint8)
        layout = self._layout
        if layout is None or len(dump) != self._length or not np.array_equal(data[layout.identities], layout.expected):
            if (found := self._vl.read(dump)) is not None:
                self._layout = None
                return QueueSample(found.keys, _counters(found), found)
            layout = self._layout = _find_layout(dump)
            self._length = len(dump)
            self._marks = marking_filter.marks()
        counters = np.zeros(len(layout.keys), COUNTERS)
        for name, places in layout.fields.items():
            rows = layout.marking if name == _MARKS else slice(None)
            counters[name][rows] = data[places].view(COUNTERS[name])[:, 0]
        if self._marks is not None:
            counters[_MARKS] = self._marks.of(layout.interfaces, layout.minors)
        return QueueSample(layout.keys, counters)


def _counters(sample: VlSample) -> npt.NDArray[np.void]:
    counters = np.zeros(len(sample.keys), COUNTERS)
    for name in ("sent_bytes", "sent_packets", "backlog_packets", "backlog_bytes", _MARKS):
        counters[name] = sample.lanes[name]
    counters["drops_packets"] = sample.lanes["dropped_packets"].sum(axis=1)
    return counters


def _find_layout(dump: bytes) -> _Layout:
    keys = []
    starts: list[int] = []
    marking: list[int] = []
    fields: dict[str, list[int]] = {name: [] for name in COUNTERS.names or ()}
    offset = 0
    while offset + netlink.HEADER.size <= len(dump):
        (length,) = struct.unpack_from("=I", dump, offset)
        index, handle = struct.unpack_from("=iI", dump, offset + _TCMSG_START + 4)
        lane = (handle >> 16) - _FIRST_LANE
        if 1 <= lane <= _MAX_LANES and handle & 0xFFFF == 0:
            keys.append((index, lane))
            starts.append(offset)
            found = _counter_places(dump, offset, length)
            if _MARKS in found:
                marking.append(len(starts) - 1)
            for name, place in found.items():
                fields[name].append(place)
        offset += (length + 3) & ~3
    # Length, interface and handle of each message: if these bytes are as before, so is everything's place.
    identity = np.array([0, 1, 2, 3, *range(_TCMSG_START + 4, _TCMSG_START + 12)], dtype=np.intp)
    identities = (np.array(starts, dtype=np.intp)[:, None] + identity).ravel()
    places = {
        name: np.array(found, dtype=np.intp)[:, None] + np.arange(COUNTERS[name].itemsize)
        for name, found in fields.items()
    }
    expected = np.frombuffer(dump, dtype=np.uint8)[identities]
    return _Layout(keys, identities, expected, places, np.array(marking, dtype=np.intp))


def _counter_places(dump: bytes, start: int, length: int) -> dict[str, int]:
    stats = netlink.attribute_at(dump, start + _ATTRIBUTES_START, start + length, _STATS2)
    end = stats + struct.unpack_from("=H", dump, stats - 4)[0] - 4
    basic = netlink.attribute_at(dump, stats, end, _BASIC)
    queue = netlink.attribute_at(dump, stats, end, _QUEUE)
    kind = netlink.attribute_at(dump, start + _ATTRIBUTES_START, start + length, _KIND)
    marks = {} if dump[kind : kind + 4] != b"red\0" else {_MARKS: netlink.attribute_at(dump, stats, end, _APP) + 12}
    return {
        **marks,
        "sent_bytes": basic,
        "sent_packets": basic + 8,
        "backlog_packets": queue,
        "backlog_bytes": queue + 4,
        "drops_packets": queue + 8,
    }
