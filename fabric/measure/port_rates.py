"""Rates under load: a port whose queues were never empty must have sent at its link's rate, and a lane at its share.

Samples show a queue's counter and backlog only at their moments, and a queue that has something at both
ends of an interval may have been empty in between. Two kinds of intervals count as full:

- One in which a queue sent *less than waited in it at the start*: it is first in, first out, so it never was empty.
  That holds whatever the rate really is, so that slow ports cannot hide.
- One at both ends of which more waits than the link sends in *half* of it. To be idle for x in between, a queue must
  have been given nothing for half of the interval and x, and then that much again all at once; and a sample anywhere
  in that time would have found less. So each such moment is seen with a probability of 1/2 and more, and ends the run.

Consecutive full intervals are joined, since one alone proves little: frames come in pieces, and a busy
sampler reads late. Runs of 250 frames' time and more count, and a port is judged by all its runs of a phase together,
if they make 1,000 frames' time. To be 2 % below its rate for being idle, and not for being slow, a port must then have
had several idle moments of which none was seen. The time between two readings counts as the least (for "too slow")
or the most (for "too fast") that it can have been. One pause is a stall, and judged as such.

A lane that waited all the time must have got its share of the link while the port as a whole may be in order: this
finds a tree of classes that favours one lane. Bandwidth beyond its share is borrowed, which is not a fault.

Lossless ports that were stalled for lack of room at the other end rightly send nothing: such intervals do not count,
and their lanes' shares are weights among those that may send, which samples do not show. Their lanes are not judged.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fabric.measure.sampling import Series
from fabric.model.lanes import LanePlan
from fabric.model.network import Fabric, Port

LEAST_RUN_FRAMES, LEAST_FRAMES = 250, 1000
"""How long a run, and all runs of a queue, must last at least: so many of the largest frames, at the link's rate."""
_FULL = 0.5
"""The part of an interval for which what waits at both its ends must keep the link busy."""
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
    rate_bps = fabric.link_plugged_into(port).rate_bps
    frame_s = fabric.frame_bytes * 8 / rate_bps
    whole = measured(_readings(series, columns), rate_bps, frame_s)
    if whole is not None:
        yield FullQueue(str(port), "", *whole, 1.0)
    if plan.queueing.is_of_vl or len(columns) == 1:
        return
    lanes = {lane.number: lane for lane in plan.lanes}
    for column in columns:
        lane = lanes[series.keys[column][2]]
        if (alone := measured(_readings(series, [column]), rate_bps, frame_s)) is not None:
            seconds, rate = alone
            yield FullQueue(str(port), lane.name, seconds, rate / lane.share, lane.share)


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


def measured(readings: Readings, rate_bps: float, frame_s: float) -> tuple[float, float] | None:
    """Return for how many seconds a queue was full, and what it sent then over what its link's rate allows; None if it
    was not for long enough. ``frame_s``: how long the largest frame takes.

    Where the time between readings is uncertain, the rate is the one within it that is nearest to 1.
    """
    least_s, most_s, sent_bytes = 0.0, 0.0, 0
    if not readings.waiting_bytes.any():
        return None  # As most are: this is asked of every queue of a fabric.
    for first, last in _runs(_full(readings, rate_bps / 8)):
        shortest = float(readings.earliest_s[last] - readings.latest_s[first])
        longest = float(readings.latest_s[last] - readings.earliest_s[first])
        if shortest >= LEAST_RUN_FRAMES * frame_s and longest - shortest <= _MOST_UNCERTAIN * longest:
            least_s, most_s = least_s + shortest, most_s + longest
            sent_bytes += int(readings.sent_bytes[last] - readings.sent_bytes[first])
    if least_s < LEAST_FRAMES * frame_s:
        return None
    slowest, fastest = (sent_bytes * 8 / rate_bps / seconds for seconds in (most_s, least_s))
    return (least_s + most_s) / 2, min(max(1.0, slowest), fastest)


def _full(readings: Readings, rate_Bps: float) -> npt.NDArray[np.bool_]:  # noqa: N803 - bytes, not bits
    """Return which intervals count as full."""
    sent = np.diff(readings.sent_bytes)
    waiting = np.minimum(readings.waiting_bytes[:-1], readings.waiting_bytes[1:])
    lasts = waiting >= _FULL * rate_Bps * (readings.latest_s[1:] - readings.earliest_s[:-1])
    full: npt.NDArray[np.bool_] = lasts | (sent < readings.waiting_bytes[:-1])
    return full if readings.stood_still is None else full & ~readings.stood_still


def _runs(holds: npt.NDArray[np.bool_]) -> Iterator[tuple[int, int]]:
    """Yield the first and last sample of each run of intervals for which something holds."""
    edges = np.diff(np.concatenate([[False], holds, [False]]).astype(np.int8))
    yield from zip(np.flatnonzero(edges == 1).tolist(), np.flatnonzero(edges == -1).tolist(), strict=True)
