"""Lossless ports from qdisc dumps, fast: the statistics of :func:`fabric.queueing.vl.read`, as arrays over all ports.

Answers differ in length from sample to sample, since each ends with what waits in its port. So messages are walked by
their lengths, the place of a port's statistics within its message is remembered, and all fields are gathered at once.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from fabric.queueing import vl, vl_abi
from fabric.world.kernel_api import netlink

_PORT = vl_abi.PORT_STATS.dtype
LANES = vl_abi.LANE_STATS.dtype
"""The fields of :class:`fabric.queueing.vl.LaneStats`."""
_WAIT = vl_abi.WAIT.dtype
WAITS = np.dtype([("index", "<u4"), ("lane", "<u4"), ("input_index", "<u4"), ("input_lane", "<u4"), ("bytes", "<u8")])
"""``bytes`` in the input buffer of lane ``input_lane`` of the interface ``input_index`` wait in ``lane`` of the port
``index``. Lanes by the numbers of :class:`fabric.model.lanes.Lane`."""
_START = netlink.HEADER.size + 20  # The header and struct tcmsg.
_KIND = slice(4, 7)  # Within the first attribute, TCA_KIND.
_STATS2, _APP = 7, 4


@dataclass(frozen=True)
class VlSample:
    """All lossless ports of a namespace at a moment. ``keys``, ``lanes`` (LANES) and ``peers`` run in parallel.

    ``keys`` has interface index and lane number, ``peers`` the index of the interface at the other end of the link, in
    its own namespace. ``now_ns`` is CLOCK_MONOTONIC.
    """

    keys: list[tuple[int, int]]
    lanes: npt.NDArray[np.void]
    peers: npt.NDArray[np.void]
    waits: npt.NDArray[np.void]
    now_ns: int


class VlReader:
    """Reads samples out of a namespace's qdisc dumps."""

    def __init__(self) -> None:
        self._place = 0
        self._identities: npt.NDArray[np.uint32] = np.zeros((0, 2), np.uint32)
        self._keys: list[tuple[int, int]] = []

    def read(self, dump: bytes) -> VlSample | None:
        """Return what a dump says of lossless ports; None: it has none. Raises EmulationError as
        ``fabric.queueing.vl.read``."""
        starts = _messages(dump)
        if not starts:
            return None
        data = np.frombuffer(dump, np.uint8)
        places = self._places(dump, data, np.array(starts, np.intp))
        ports = _gather(data, places, _PORT)
        _verify(ports)
        counts = ports["lanes"].astype(np.intp)
        lanes = _gather(data, _rows(places + _PORT.itemsize, counts, LANES.itemsize), LANES)
        waits_at = places + _PORT.itemsize + counts * LANES.itemsize
        return VlSample(
            keys=self._keys_of(np.repeat(ports["index"], counts), lanes["lane"] + 1),
            lanes=lanes,
            peers=np.repeat(ports["peer_index"], counts),
            waits=_waits(data, ports, waits_at),
            now_ns=int(ports["now_ns"].max()),
        )

    def _places(self, dump: bytes, data: Any, starts: npt.NDArray[np.intp]) -> npt.NDArray[np.intp]:
        """Return where each port's statistics begin: where they did in a message before, or else looked for."""
        places = starts + self._place
        if not self._place or places[-1] + _PORT.itemsize > len(dump) or not _are_statistics(data, starts, places):
            places = np.array([_find(dump, int(start)) for start in starts], np.intp)
            self._place = int(places[0] - starts[0])
        return places

    def _keys_of(self, indices: npt.NDArray[np.uint32], numbers: npt.NDArray[np.uint32]) -> list[tuple[int, int]]:
        identities = np.stack([indices, numbers], axis=1)
        if not np.array_equal(identities, self._identities):
            self._identities = identities
            self._keys = [(index, number) for index, number in identities.tolist()]
        return self._keys


def _messages(dump: bytes) -> list[int]:
    """Return where each message about a ``vl`` begins."""
    starts, offset, last = [], 0, len(dump) - _START
    kind = slice(_START + _KIND.start, _START + _KIND.stop)
    while offset < last:
        if dump[offset + kind.start : offset + kind.stop] == b"vl\0":
            starts.append(offset)
        (length,) = struct.unpack_from("=I", dump, offset)
        offset += (length + 3) & ~3
    return starts


def _are_statistics(data: Any, starts: npt.NDArray[np.intp], places: npt.NDArray[np.intp]) -> bool:
    """Return whether at every place an attribute TCA_STATS_APP begins that tells of its message's interface."""
    kinds = _gather(data, places - 2, np.dtype("<u2"))
    indices = _gather(data, starts + netlink.HEADER.size + 4, np.dtype("<u4"))
    told = _gather(data, places + 4, np.dtype("<u4"))
    return bool((kinds == _APP).all() and (indices == told).all())


def _find(dump: bytes, start: int) -> int:
    (length,) = struct.unpack_from("=I", dump, start)
    stats = netlink.attribute_at(dump, start + _START, start + length, _STATS2)
    (size,) = struct.unpack_from("=H", dump, stats - 4)
    return netlink.attribute_at(dump, stats, stats - 4 + size, _APP)


def _gather(data: Any, places: npt.NDArray[np.intp], kind: np.dtype[Any]) -> Any:
    """Return what is at each place, as an array of ``kind``."""
    return data[places[:, None] + np.arange(kind.itemsize)].view(kind)[:, 0] if len(places) else np.zeros(0, kind)


def _rows(starts: npt.NDArray[np.intp], counts: npt.NDArray[np.intp], size: int) -> npt.NDArray[np.intp]:
    """Return where rows of ``size`` bytes begin, ``counts`` of them from each start on."""
    first = np.repeat(np.cumsum(counts) - counts, counts)
    rows: npt.NDArray[np.intp] = np.repeat(starts, counts) + (np.arange(len(first)) - first) * size
    return rows


def _verify(ports: npt.NDArray[np.void]) -> None:
    """Raise EmulationError, as for a single port, if any cannot be used."""
    wrong = (ports["version"] != vl.VERSION) | (ports["waits"] < ports["all_waits"])
    for port in ports[wrong]:
        vl.verify(vl_abi.PORT_STATS.unpack(port.tobytes()))


def _waits(data: Any, ports: npt.NDArray[np.void], starts: npt.NDArray[np.intp]) -> npt.NDArray[np.void]:
    counts = ports["waits"].astype(np.intp)
    found = _gather(data, _rows(starts, counts, _WAIT.itemsize), _WAIT)
    waits = np.zeros(len(found), WAITS)
    waits["index"] = np.repeat(ports["index"], counts)
    waits["lane"] = found["lane"].astype(np.uint32) + 1
    waits["input_index"] = found["input_index"]
    waits["input_lane"] = found["input_lane"].astype(np.uint32) + 1
    waits["bytes"] = found["bytes"]
    return waits
