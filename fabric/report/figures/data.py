"""The numbers that figures show, from a result's tables; no drawing here.

Counters are cumulative and each port may be read at its own moment, so a rate is always a difference of one series
over its own times. A counter that falls was restarted (its queue was replaced) and continues from there.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from fabric.delivered import Growth, delivered
from fabric.model.identity import node_of_port, split_port
from fabric.percentiles import percentiles
from fabric.results import Phase

Floats = npt.NDArray[np.float64]

MAX_TIME_BINS = 300
KINDS = (
    "host → leaf",
    "leaf → spine",
    "spine → leaf",
    "spine → core",
    "core → spine",
    "leaf → inter-zone",
    "inter-zone → leaf",
    "leaf → host",
)
"""The directions of links, in the order in which a packet meets them."""
_SHORT_ROLES = {"compute": "host", "storage": "host", "inter_zone": "inter-zone"}


@dataclass(frozen=True)
class Direction:
    """One direction of a link: from the port that sends to the port that receives."""

    port: str
    peer: str
    rate_bps: float
    tier: str
    kind: str

    @property
    def label(self) -> str:
        """The sending port and the node it sends to."""
        return f"{self.port} → {node_of_port(self.peer)}"


def directions(fabric: Mapping[str, Any]) -> dict[str, Direction]:
    """Return both directions of every link of a ``fabric.json``, by sending port."""
    roles = {node["name"]: _SHORT_ROLES.get(node["role"], node["role"]) for node in fabric["nodes"]}
    found = {}
    for link in fabric["links"]:
        for port, peer in ((link["a"], link["b"]), (link["b"], link["a"])):
            kind = f"{roles[node_of_port(port)]} → {roles[node_of_port(peer)]}"
            found[port] = Direction(port, peer, float(link["rate_bps"]), link["tier"], kind)
    return found


def within(frame: pd.DataFrame, phase: Phase) -> pd.DataFrame:
    """Return the samples taken in a phase."""
    return frame[frame["at_s"].between(phase.started_s, phase.ended_s)]


def increments(values: Floats) -> Floats:
    """Return how much a cumulative counter grew between samples; after a restart, what it counted since."""
    grown = np.diff(values)
    restarted: Floats = np.where(grown < 0, values[1:], grown)
    return restarted


def _series(frame: pd.DataFrame, keys: list[str], value: str) -> dict[tuple[str, ...], tuple[Floats, Floats]]:
    """Return times and values of each series in ``frame``, in order of time."""
    if frame.empty:
        return {}
    ordered = frame.sort_values("at_s", kind="stable")
    groups = ordered.groupby(keys, observed=True, sort=True)
    return {
        tuple(str(part) for part in (key if isinstance(key, tuple) else (key,))): (
            group["at_s"].to_numpy(dtype=float),
            group[value].to_numpy(dtype=float),
        )
        for key, group in groups
    }


def utilisation(ports: pd.DataFrame, links: Mapping[str, Direction], phase: Phase) -> dict[str, float]:
    """Return the mean rate that each port sent while a phase's load played, over its link's rate: 8 x bytes / seconds /
    rate. Of a load too short for two samples it is over the phase."""
    loaded = ports[ports["at_s"].between(*phase.load_s)]
    frame = loaded if loaded["at_s"].nunique() > 1 else within(ports, phase)
    total: dict[str, float] = {}
    for (port, _), (times, sent) in _series(frame, ["port", "lane"], "sent_bytes").items():
        if port in links and len(times) > 1:
            rate_bps = 8 * increments(sent).sum() / (times[-1] - times[0])
            total[port] = total.get(port, 0.0) + float(rate_bps) / links[port].rate_bps
    return total


@dataclass(frozen=True)
class Rates:
    """Rates over time: ``at_s`` is the middle of each interval, in seconds since the phase began."""

    at_s: Floats
    by_name_bps: dict[str, Floats]


def lane_rates(ports: pd.DataFrame, phase: Phase, chosen: Collection[str], least_step_s: float = 0.0) -> Rates:
    """Return what the chosen ports sent together in each lane over a phase; lanes that sent nothing are left out.

    ``least_step_s``: over how long rates are taken at least. Where only a few frames leave between two samples, the
    rate between them says when they were read rather than what the link does, and exceeds the link's.
    """
    frame = within(ports, phase)
    frame = frame[frame["port"].isin(list(chosen))]
    series = _series(frame, ["lane", "port"], "sent_bytes")
    return _rates({key: value for key, value in series.items() if len(value[0]) > 1}, phase, least_step_s)


def service_level_rates(flows: pd.DataFrame, operations: pd.DataFrame, phase: Phase) -> Rates:
    """Return the delivered payload of each service level over a phase, see :mod:`fabric.delivered`."""
    found = delivered(flows, operations, phase)
    return _growth_rates(((flow.service_level, growth) for flow, growth in found), phase)


def job_rates(flows: pd.DataFrame, operations: pd.DataFrame, phase: Phase) -> Rates:
    """Return the delivered payload of each job over a phase."""
    jobs = dict.fromkeys([*present(flows, "job"), *present(operations, "job")])
    found = (
        (job, growth)
        for job in jobs
        for _, growth in delivered(flows[flows["job"] == job], operations[operations["job"] == job], phase)
    )
    return _growth_rates(found, phase)


_UNSAMPLED_STEP_S = 0.25


def _growth_rates(found: Iterable[tuple[str, Growth]], phase: Phase) -> Rates:
    """Sum the rates of counters by name."""
    # Flows that are not sampled start and end all the time, which says nothing of how fine a figure should be.
    evenly_s = np.arange(phase.started_s, phase.ended_s, _UNSAMPLED_STEP_S).astype(np.float64)
    series: dict[tuple[str, ...], tuple[Floats, Floats]] = {}
    for number, (name, growth) in enumerate(found):
        times_s = growth.at_s if growth.is_sampled else evenly_s
        if len(times_s) > 1:
            series[name, str(number)] = (times_s, growth.by(times_s))
    return _rates(series, phase)


def _rates(series: Mapping[tuple[str, ...], tuple[Floats, Floats]], phase: Phase, least_step_s: float = 0.0) -> Rates:
    """Sum the rates of series by the first part of their keys, on a common grid as fine as the finest series, or as the
    least step is long."""
    if not series:
        return Rates(np.empty(0), {})
    first = min(times[0] for times, _ in series.values())
    last = max(times[-1] for times, _ in series.values())
    points = min(max(len(times) for times, _ in series.values()), MAX_TIME_BINS + 1)
    if least_step_s:
        points = max(2, min(points, int((last - first) / least_step_s) + 1))
    grid = np.linspace(first, last, points)
    step_s = float(grid[1] - grid[0])
    sums: dict[str, Floats] = {}
    for (name, *_), (times, values) in series.items():
        counted = np.concatenate([[0.0], np.cumsum(increments(values))])
        rate = 8 * np.diff(np.interp(grid, times, counted)) / step_s
        sums[name] = sums[name] + rate if name in sums else rate
    middle = (grid[1:] + grid[:-1]) / 2 - phase.started_s
    return Rates(middle, {name: rate for name, rate in sums.items() if rate.any()})


def ports_into_hosts(links: Mapping[str, Direction]) -> list[str]:
    """Return the ports of leaves that send to hosts: what they send is what the fabric delivered."""
    return [port for port, direction in links.items() if direction.kind == "leaf → host"]


def busiest_port(ports: pd.DataFrame, links: Mapping[str, Direction], phases: Sequence[Phase]) -> str | None:
    """Return the port with the highest utilisation summed over the phases; the first by name among equals."""
    total: dict[str, float] = {}
    for phase in phases:
        for port, share in utilisation(ports, links, phase).items():
            total[port] = total.get(port, 0.0) + share
    return max(sorted(total), key=lambda port: round(total[port], 3), default=None)


@dataclass(frozen=True)
class QueueMap:
    """The deepest queue seen at each port in each stretch of time.

    ``rows`` are the ports shown, grouped by kind; ``depth_bytes[row, bin]`` lies between ``edges_s[bin]`` and the next,
    NaN where nothing was sampled. ``left_out`` ports had shallower queues than those shown; of them
    ``left_out_queued`` queued at all.
    """

    rows: tuple[Direction, ...]
    edges_s: Floats
    depth_bytes: Floats
    left_out: int
    left_out_queued: int


def queue_map(ports: pd.DataFrame, links: Mapping[str, Direction], limit: int = 40) -> QueueMap | None:
    """Return the queue depths of the ``limit`` ports with the deepest mean queue; None if nothing ever queued."""
    known = ports[ports["port"].isin(list(links))]
    if known.empty:
        return None
    depth = known.groupby(["port", "at_s"], observed=True)["backlog_bytes"].sum().reset_index()
    mean = depth.groupby("port", observed=True)["backlog_bytes"].mean()
    ranked = sorted(mean.items(), key=lambda item: (-float(item[1]), str(item[0])))
    shown = [links[str(port)] for port, depth_bytes in ranked[:limit] if depth_bytes > 0]
    if not shown:
        return None
    shown.sort(key=lambda direction: (kind_order(direction.kind), split_port(direction.port)))
    edges = _time_edges(depth["at_s"].to_numpy(dtype=float), int(depth["port"].value_counts().max()))
    series = _series(depth, ["port"], "backlog_bytes")
    cells = np.vstack([_binned_maximum(*series[direction.port,], edges) for direction in shown])
    rest = ranked[len(shown) :]
    return QueueMap(tuple(shown), edges, cells, len(rest), sum(value > 0 for _, value in rest))


def kind_order(kind: str) -> int:
    """Return the place of a kind of direction in :data:`KINDS`; unknown kinds come last."""
    return KINDS.index(kind) if kind in KINDS else len(KINDS)


def _time_edges(times: Floats, samples_a_port: int) -> Floats:
    bins = max(1, min(samples_a_port, MAX_TIME_BINS))
    first, last = float(times.min()), float(times.max())
    return np.linspace(first, last if last > first else first + 1.0, bins + 1).astype(np.float64)


def _binned_maximum(times: Floats, values: Floats, edges: Floats) -> Floats:
    bins = np.clip(np.searchsorted(edges, times, side="right") - 1, 0, len(edges) - 2)
    cells = np.full(len(edges) - 1, -np.inf)
    np.maximum.at(cells, bins, values)
    cells[np.isneginf(cells)] = np.nan
    return cells


@dataclass(frozen=True)
class Latencies:
    """Operations of a kind that began while a phase's load played: the sorted durations in seconds of those that
    completed, and how many never did."""

    taken_s: Floats
    never: int

    @property
    def fractions(self) -> Floats:
        """Of each duration, what part of all operations had completed by then."""
        return np.arange(1, len(self.taken_s) + 1) / (len(self.taken_s) + self.never)

    @property
    def p99_s(self) -> float | None:
        """The duration that 99 of 100 operations do not exceed; None if more than one of 100 never completed."""
        (found,) = percentiles(self.taken_s, [], np.zeros(self.never), [99])
        return found.value_s if found.is_known else None


def latencies(operations: pd.DataFrame, operation: str, phase: Phase) -> Latencies:
    """Return how long operations of a kind took that began while a phase's load played."""
    frame = operations[(operations["phase"] == phase.name) & operations["started_s"].between(*phase.load_s)]
    done = frame[frame["operation"] == operation]
    duration = (done["ended_s"] - done["started_s"]).dropna().to_numpy(dtype=float)
    return Latencies(np.sort(duration), int((frame["operation"] == f"{operation}_failed").sum()))


def step_times(steps: pd.DataFrame, service_level: str, phase: Phase) -> tuple[Floats, Floats]:
    """Return the duration in seconds and the algbw in byte/s (size a rank over duration) of each finished step."""
    frame = steps[(steps["service_level"] == service_level) & (steps["phase"] == phase.name)]
    duration = (frame["ended_s"] - frame["started_s"]).to_numpy(dtype=float)
    size = frame["size_bytes"].to_numpy(dtype=float)
    finished = duration > 0
    return duration[finished], size[finished] / duration[finished]


def present(frame: pd.DataFrame, column: str, order: Sequence[str] = ()) -> list[str]:
    """Return the values in a column: first those of ``order``, then others by name."""
    found = {str(value) for value in frame[column].dropna().unique()}
    return [name for name in order if name in found] + sorted(found - set(order))
