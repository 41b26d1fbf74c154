"""Samples as they are taken, in a file that somebody outside of the run reads meanwhile.

The sampler appends a record per phase, then one per sample: what it has read anyway, as it is. Nobody waits for the
reader, and no packet is sent. A record is its kind (a byte), the length of its content, and that:

======  ===============================================================================================
``p``   a phase begins: JSON of :class:`LivePhase`, with the port and lane of each queue
``s``   a sample: ``time.monotonic()``, then a row per labelled column, each with a whole number of 8 bytes per queue
======  ===============================================================================================
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

from fabric.tables import TABLES

_RECORD = struct.Struct("<cQ")
_TIME = struct.Struct("<d")
_PHASE, _SAMPLE = b"p", b"s"
Key = tuple[int, int, int]


@dataclass(frozen=True)
class LivePhase:
    """A phase that plays: times are ``time.monotonic()``. ``origin_s``: the run's time zero; ``queues``: the port and
    lane of each queue that is sampled, in order."""

    name: str
    title: str
    queueing: str
    routing: str
    jobs: tuple[str, ...]
    origin_s: float
    queues: tuple[tuple[str, str], ...] = ()
    columns: tuple[str, ...] = ()


@dataclass(frozen=True)
class LiveNames:
    """What a sampler needs to say whose queues it reads: names of ports by namespace and interface, and of lanes."""

    phase: LivePhase
    ports: Mapping[tuple[int, int], str]
    lanes: Mapping[int, str]


class LiveWriter:
    """Appends to the file. ``is_synced``: write through at once, where writes are otherwise kept back for seconds."""

    def __init__(self, path: Path, is_synced: bool) -> None:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC | (os.O_DSYNC if is_synced else 0)
        self._file = os.open(path, flags)
        self._places: npt.NDArray[np.intp] = np.zeros(0, np.intp)

    def begin(self, names: LiveNames, keys: Sequence[Key], is_lossless: bool) -> None:
        """Append that a phase begins, whose samples have these keys."""
        known = [place for place, (number, index, _) in enumerate(keys) if (number, index) in names.ports]
        self._places = np.array(known, np.intp)
        queues = tuple((names.ports[keys[place][:2]], names.lanes[keys[place][2]]) for place in known)
        columns = (*TABLES["ports"].labelled, *(TABLES["stalls"].labelled if is_lossless else ()))
        told = LivePhase(**{**vars(names.phase), "queues": queues, "columns": columns})
        self._append(_PHASE, json.dumps(asdict(told)).encode())

    def sample(self, at_s: float, counters: npt.NDArray[np.void], stalls: npt.NDArray[np.void] | None) -> None:
        """Append a sample."""
        rows = [counters[name][self._places].astype("<i8") for name in TABLES["ports"].labelled]
        if stalls is not None:
            rows += [stalls[name][self._places].astype("<i8") for name in TABLES["stalls"].labelled]
        self._append(_SAMPLE, _TIME.pack(at_s) + b"".join(row.tobytes() for row in rows))

    def _append(self, kind: bytes, content: bytes) -> None:
        os.write(self._file, _RECORD.pack(kind, len(content)) + content)


@dataclass
class LiveSeries:
    """The samples of a phase so far: times in seconds of the run, and columns x queues of each."""

    phase: LivePhase
    at_s: list[float] = field(default_factory=list)
    rows: list[npt.NDArray[np.int64]] = field(default_factory=list)


class LiveReader:
    """Reads the file while it grows."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("rb")
        self._rest = b""
        self.whole_bytes = 0
        """How much of the file has been taken in: whole records."""
        self.series: list[LiveSeries] = []

    def read(self) -> None:
        """Take in what has been appended since."""
        content = self._rest + self._file.read()
        place = 0
        while place + _RECORD.size <= len(content):
            kind, length = _RECORD.unpack_from(content, place)
            begin = place + _RECORD.size
            if begin + length > len(content):
                break
            self._take(kind, content[begin : begin + length])
            place = begin + length
        self._rest = content[place:]
        self.whole_bytes += place

    def _take(self, kind: bytes, content: bytes) -> None:
        if kind == _PHASE:
            values = json.loads(content)
            queues = tuple((port, lane) for port, lane in values["queues"])
            parts = {"queues": queues, "jobs": tuple(values["jobs"]), "columns": tuple(values["columns"])}
            self.series.append(LiveSeries(LivePhase(**{**values, **parts})))
        elif kind == _SAMPLE and self.series:
            now = self.series[-1]
            now.at_s.append(_TIME.unpack_from(content)[0] - now.phase.origin_s)
            now.rows.append(np.frombuffer(content, "<i8", offset=_TIME.size).reshape(len(now.phase.columns), -1))

    def close(self) -> None:
        """Close the file."""
        self._file.close()
