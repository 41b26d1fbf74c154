"""Rates under load: a port whose queues never were empty must have sent at its link's rate, and a lane at its share.

Samples tell what a queue has sent and what waits in it only at their moments, and a queue that has something at both
ends of an interval may have been empty in between. But queues are first in, first out: one that sent *less than waited
in it at the start* never was empty. That holds whatever the rate really is, so that slow ports cannot hide.

Such intervals are joined where they follow each other, since one alone says little: the kernel sends bursts of two
frames, and a busy sampler reads late. Only runs of 500 frames' time and more count, in which a burst is 0.4 % of what
is sent; and of the time between two readings what counts is the least (for "too slow") and the most (for "too fast")
that it can have been. A port is judged by all its runs of a phase together: one pause is a stall and judged as such.

A lane that waited all the time must have got its share of the link while the port as a whole may be in order: this
finds a tree of classes that favours one lane. What it gets beyond its share is borrowed, and no fault.

Lossless ports that stood still for want of room at the other end send nothing, rightly: such intervals do not count,
and their lanes' shares are weights among those that may send, which samples do not tell. They are not judged by lanes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fabric.lanes import LanePlan
from fabric.model import Fabric, Port
from fabric.telemetry import Series

LEAST_RUN_FRAMES = 500
_MOST_UNCERTAIN = 0.01
"""Runs whose length in time is not known to this fraction say nothing: the limit for rates is twice that."""

Times = npt.NDArray[np.float64]
Counts = npt.NDArray[np.int64]


@dataclass(frozen=True)
class FullQueue:
    """What was seen of a port, or of one lane of it, while it never was empty: for ``seconds`` altogether it sent at
    ``rate`` (a fraction of ``expected``, itself a fraction of the link)."""

    port: str
    lane: str
    seconds: float
    rate: float
    expected: float

    @property
    def error(self) -> float:
        """How far it was from what was expected, as a fraction of the link; a lane may have more than its share."""
        off = (self.rate - 1) * self.expected
        return max(0.0, -off) if self.lane else abs(off)


@dataclass(frozen=True)
class Readings:
    """A queue over the samples: what it had sent and what waited in it, in bytes, and between which times
    (``time.monotonic()``) that was read. ``stood_still`` marks intervals (one fewer) in which it was not allowed to
    send."""

    earliest_s: Times
    latest_s: Times
    sent_bytes: Counts
    waiting_bytes: Counts
    stood_still: npt.NDArray[np.bool_] | None = None


def full_queues(
    series: Series, ports: Mapping[tuple[int, int], Port], plan: LanePlan, fabric: Fabric, spared: frozenset[Port]
) -> list[FullQueue]:
    """Return all ports and lanes that were seen full for long enough; ``ports`` maps (namespace number, interface
    index) to a port, and of ``spared`` ones, whose links changed meanwhile, nothing is said."""
    places: dict[tuple[int, int], list[int]] = {}
    for place, (number, index, _) in enumerate(series.keys):
        places.setdefault((number, index), []).append(place)
    found: list[FullQueue] = []
    for key, columns in places.items():
        port = ports.get(key)
        if port is not None and port not in spared:
            found += _of_port(series, columns, port, plan, fabric)
    return found


def _of_port(series: Series, columns: Sequence[int], port: Port, plan: LanePlan, fabric: Fabric) -> Iterator[FullQueue]:
    rate_bps = fabric.link_at[port].rate_bps
    least_run_s = LEAST_RUN_FRAMES * fabric.frame_bytes * 8 / rate_bps
    whole = measured(_readings(series, columns), rate_bps, least_run_s)
    if whole is not None:
        yield FullQueue(str(port), "", *whole, 1.0)
    if plan.queueing.is_lossless or len(columns) == 1:
        return
    lanes = {lane.number: lane for lane in plan.lanes}
    for column in columns:
        lane = lanes[series.keys[column][2]]
        if (alone := measured(_readings(series, [column]), rate_bps * lane.share, least_run_s)) is not None:
            yield FullQueue(str(port), lane.name, *alone, lane.share)


def _readings(series: Series, columns: Sequence[int]) -> Readings:
    number = series.keys[columns[0]][0]
    counters = series.counters[:, list(columns)]
    stalls = series.stalls
    return Readings(
        earliest_s=series.read_at[:, number],
        latest_s=series.read_at[:, number + 1],
        sent_bytes=counters["sent_bytes"].astype(np.int64).sum(axis=1),
        waiting_bytes=counters["backlog_bytes"].astype(np.int64).sum(axis=1),
        stood_still=None if stalls is None else _stood_still(stalls[:, list(columns)]),
    )


def _stood_still(stalls: npt.NDArray[np.void]) -> npt.NDArray[np.bool_]:
    grown = np.diff(stalls["stalled_ns"], axis=0) + np.diff(stalls["stalls"], axis=0)
    anywhere: npt.NDArray[np.bool_] = (grown > 0).any(axis=1)
    return anywhere


def measured(readings: Readings, rate_bps: float, least_run_s: float) -> tuple[float, float] | None:
    """Return for how many seconds a queue was never empty, and what it sent then over what ``rate_bps`` allows; None if
    there is no run of such intervals that lasted ``least_run_s``.

    Where the time between readings is uncertain, the rate is the one within it that is nearest to 1.
    """
    sent = np.diff(readings.sent_bytes)
    never_empty = sent < readings.waiting_bytes[:-1]
    if readings.stood_still is not None:
        never_empty &= ~readings.stood_still
    least_s, most_s, sent_bytes = 0.0, 0.0, 0
    for first, last in _runs(never_empty):
        shortest = float(readings.earliest_s[last] - readings.latest_s[first])
        longest = float(readings.latest_s[last] - readings.earliest_s[first])
        if shortest >= least_run_s and longest - shortest <= _MOST_UNCERTAIN * longest:
            least_s, most_s = least_s + shortest, most_s + longest
            sent_bytes += int(readings.sent_bytes[last] - readings.sent_bytes[first])
    if not most_s:
        return None
    slowest, fastest = (sent_bytes * 8 / rate_bps / seconds for seconds in (most_s, least_s))
    return (least_s + most_s) / 2, min(max(1.0, slowest), fastest)


def _runs(holds: npt.NDArray[np.bool_]) -> Iterator[tuple[int, int]]:
    """Yield the first and last sample of each run of intervals for which something holds."""
    edges = np.diff(np.concatenate([[False], holds, [False]]).astype(np.int8))
    yield from zip(np.flatnonzero(edges == 1).tolist(), np.flatnonzero(edges == -1).tolist(), strict=True)
