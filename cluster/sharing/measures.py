"""What a policy makes of a list of jobs, by when each life of a job had its nodes. Pure.

Waits are of whole jobs, all their lives together. Nodes count as used from when a job gets them until it has left.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from cluster.jobs.spans import End, LifeSpan
from cluster.simulation.lives import Job
from fabric.measures import Better, Measure
from fabric.percentiles import nearest_ranks

Floats = npt.NDArray[np.float64]
SIZES = ((1, 1), (2, 4), (5, 16), (17, 128), (129, None))
"""Classes of jobs by their nodes: from, to; None: and more."""
WAIT_MEAN = Measure("<kind>_<part>.wait_mean_s", "time that jobs of this part of the list waited, mean", Better.LESS)
WAIT_P95 = Measure(
    "<kind>_<part>.wait_p95_s",
    "95th percentile of the time that jobs of this part of the list waited",
    Better.LESS,
    is_of_many=True,
)
USED_WAITING = Measure(
    "used_waiting_fraction", "share of the nodes' time that jobs had, of the time in which a job waited", Better.MORE
)
USED_ARRIVING = Measure(
    "used_arriving_fraction", "share of the nodes' time that jobs had, until the last job was submitted", Better.MORE
)
WAITED = Measure("wait_mean_s", "time that jobs waited, mean", Better.LESS)
MEASURES = (
    WAITED,
    Measure("wait_median_s", "time that jobs waited, median", Better.LESS, is_of_many=True),
    Measure("wait_p95_s", "95th percentile of the time that jobs waited", Better.LESS, is_of_many=True),
    Measure("wait_most_s", "longest time that a job waited", Better.LESS),
    Measure("used_fraction", "share of the nodes' time that jobs had, until the last one ended", Better.MORE),
    USED_ARRIVING,
    USED_WAITING,
    Measure("waited_fraction", "share of the time until the last job was submitted in which a job waited"),
    Measure("suspends", "times that a job was suspended"),
    Measure("kills", "times that a job was killed for another", Better.LESS),
    Measure("lost_node_s", "time of nodes whose steps were made in vain", Better.LESS),
    Measure(
        "fairness",
        "index of fairness (Jain's) over users, of the part of their jobs' time in which these had nodes",
        Better.MORE,
    ),
    Measure("makespan_s", "from the first job's submission to the last one's end", Better.LESS),
    WAIT_MEAN,
    WAIT_P95,
)
"""Of a policy, as :meth:`Measures.numbers` has them."""


@dataclass(frozen=True)
class Waits:
    """How long jobs waited, in seconds."""

    jobs: int
    mean_s: float
    median_s: float
    p95_s: float
    most_s: float


@dataclass(frozen=True)
class Use:
    """Which part of all nodes' time jobs had them: until the last had ended, until the last came, and of the time in
    which a job waited (NaN: none ever did). ``waited_fraction``: which part of the time until the last came that
    was."""

    whole: float
    arriving: float
    waiting: float
    waited_fraction: float


@dataclass(frozen=True)
class Measures:
    """What a policy made of a list. ``by_priority`` and ``by_size``: waits of a part of the jobs; ``lost_node_s``:
    nodes times steps that were made in vain, by how the life ended; ``fairness``: Jain's index over users
    (:func:`shares`)."""

    waits: Waits
    by_priority: Mapping[str, Waits]
    by_size: Mapping[str, Waits]
    use: Use
    suspends: int
    kills: int
    lost_node_s: Mapping[End, float]
    fairness: float
    makespan_s: float

    def numbers(self) -> dict[str, float]:
        """Return all of them by name, each with its unit at its end."""
        found = {
            "wait_mean_s": self.waits.mean_s,
            "wait_median_s": self.waits.median_s,
            "wait_p95_s": self.waits.p95_s,
            "wait_most_s": self.waits.most_s,
            "used_fraction": self.use.whole,
            "used_arriving_fraction": self.use.arriving,
            "waited_fraction": self.use.waited_fraction,
            "suspends": float(self.suspends),
            "kills": float(self.kills),
            "lost_node_s": sum(self.lost_node_s.values()),
            "fairness": self.fairness,
            "makespan_s": self.makespan_s,
        }
        if not np.isnan(self.use.waiting):
            found["used_waiting_fraction"] = self.use.waiting
        for kind, parts in (("priority", self.by_priority), ("size", self.by_size)):
            for name, waits in parts.items():
                found[WAIT_MEAN.of(kind, name)] = waits.mean_s
                found[WAIT_P95.of(kind, name)] = waits.p95_s
        return found


def measure(jobs: Sequence[Job], lives: Sequence[LifeSpan], nodes: int) -> Measures:
    """Return what lives on ``nodes`` nodes come to. Raises ValueError without a life."""
    if not lives:
        raise ValueError("lives: no job got nodes")
    waited = dict.fromkeys((job.number for job in jobs), 0.0)
    for life in lives:
        waited[life.job] += life.waited_s
    lost = dict.fromkeys((End.SUSPENDED, End.KILLED, End.LOST), 0.0)
    for life in lives:
        lost[life.end] = lost.get(life.end, 0.0) + len(life.nodes) * life.lost_s
    first_s, last_s = min(job.submitted_s for job in jobs), max(job.submitted_s for job in jobs)
    return Measures(
        waits=_waits(waited.values()),
        by_priority=_parts(sorted(jobs, key=lambda job: -job.priority), waited, lambda job: job.priority.name.lower()),
        by_size=_parts(sorted(jobs, key=lambda job: job.nodes), waited, size_of),
        use=_use(lives, nodes, first_s, last_s),
        suspends=sum(life.end is End.SUSPENDED for life in lives),
        kills=sum(life.end is End.KILLED for life in lives),
        lost_node_s=lost,
        fairness=jain(shares(jobs, lives).values()),
        makespan_s=max(life.left_s for life in lives) - first_s,
    )


def size_of(job: Job) -> str:
    """Return the class of a job by its nodes, such as ``2_to_4``."""
    low, high = next((low, high) for low, high in SIZES if high is None or job.nodes <= high)
    if high is None:
        return f"{low}_and_more"
    return str(low) if low == high else f"{low}_to_{high}"


def _waits(values: Iterable[float]) -> Waits:
    found = np.array(list(values))
    return Waits(
        len(found), float(found.mean()), float(np.median(found)), nearest_ranks(found, 95)[0], float(found.max())
    )


def _parts(jobs: Sequence[Job], waited: Mapping[int, float], key: Callable[[Job], str]) -> dict[str, Waits]:
    parts: dict[str, list[float]] = {}
    for job in jobs:
        parts.setdefault(key(job), []).append(waited[job.number])
    return {name: _waits(values) for name, values in parts.items()}


def counts_over_time(spans: Iterable[tuple[float, float, float]]) -> tuple[Floats, Floats]:
    """Return at which times a sum changes, and what it is from each of them on, of (from, until, how much)."""
    found = np.array([(at_s, much) for begun, ended, each in spans for at_s, much in ((begun, each), (ended, -each))])
    found = found.reshape(-1, 2)
    times, places = np.unique(found[:, 0], return_inverse=True)
    changes = np.bincount(places, weights=found[:, 1], minlength=len(times))
    return times, np.cumsum(changes)


def _use(lives: Sequence[LifeSpan], nodes: int, first_s: float, last_s: float) -> Use:
    ended_s = max(life.left_s for life in lives)
    times_held, held = counts_over_time((life.began_s, life.left_s, float(len(life.nodes))) for life in lives)
    times_waiting, waiting = counts_over_time((life.queued_s, life.began_s, 1.0) for life in lives)
    edges = np.unique(np.concatenate([times_held, times_waiting, [first_s, last_s, ended_s]]))
    edges = edges[(edges >= first_s) & (edges <= ended_s)]
    lengths, begins = np.diff(edges), edges[:-1]
    used = _at(times_held, held, begins) / nodes
    is_waiting = _at(times_waiting, waiting, begins) > 0.5
    arriving = begins < last_s

    def mean(where: npt.NDArray[np.bool_]) -> float:
        length_s = lengths[where].sum()
        return float((used * lengths)[where].sum() / length_s) if length_s > 0 else float("nan")

    came_s = float(lengths[arriving].sum())
    return Use(
        whole=mean(np.ones(len(lengths), dtype=np.bool_)),
        arriving=mean(arriving) if came_s else mean(begins < ended_s),
        waiting=mean(is_waiting),
        waited_fraction=float(lengths[arriving & is_waiting].sum() / came_s) if came_s else float(is_waiting.any()),
    )


def _at(times: Floats, values: Floats, asked: Floats) -> Floats:
    """Return what a sum is at some times."""
    places = np.searchsorted(times, asked, side="right") - 1
    found: Floats = np.where(places >= 0, values[np.maximum(places, 0)], 0.0)
    return found


def shares(jobs: Sequence[Job], lives: Sequence[LifeSpan]) -> dict[str, float]:
    """Return of the time in which a user's jobs waited or had nodes, each weighted by its nodes, the part in which they
    had them. Who waits for nothing has 1."""
    by_number = {job.number: job for job in jobs}
    waited, had = dict[str, float](), dict[str, float]()
    for life in lives:
        job = by_number[life.job]
        waited[job.user] = waited.get(job.user, 0.0) + job.nodes * life.waited_s
        had[job.user] = had.get(job.user, 0.0) + job.nodes * (life.left_s - life.began_s)
    return {user: seconds / (seconds + waited[user]) if seconds else 0.0 for user, seconds in had.items()}


def jain(values: Iterable[float]) -> float:
    """Return Jain's index of fairness: 1 if all are alike, 1/n if one has all."""
    found = np.array(list(values))
    squares = float((found**2).sum())
    return float(found.sum()) ** 2 / (len(found) * squares) if squares else 1.0
