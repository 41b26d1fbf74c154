"""A run as a trace for Perfetto and ``chrome://tracing``: JSON in the Trace Event Format, beside a profiler's trace of
the same job, if there is one.

Tracks, in this order: the run (phases, cuts, repairs, blackouts); each job, with a track per rank, by its host, and
per stream of a rank that plays a graph of work; users' jobs of a platform, and its nodes with who had them; each node,
with a counter per port and sampled column that has a label (rate, backlog), of a series per lane. All times are
microseconds of the run.

The format: "Trace Event Format", Google, 2016. Types of events that are used: ``X`` complete, ``b`` and ``e`` async,
``C`` counter, ``i`` instant, ``s`` and ``f`` flow, ``M`` metadata.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fabric.delivered import acknowledged
from fabric.errors import UsageError
from fabric.model.identity import node_of_port
from fabric.report.users_jobs import UsersJobs
from fabric.report.view.grid import Grid, labelled_columns
from fabric.report.view.model import View
from fabric.report.view.streams import Played, StreamTrack
from fabric.results import Result
from fabric.stalls.intervals import BLOCKED_SHARE
from fabric.tables import Column

LIMIT_BYTES = 100_000_000
Event = dict[str, Any]
_RUN = 1
"""The process of the run itself; jobs and nodes come after it."""
_PHASES, _CUTS, _REPAIRS, _BLACKOUTS = 1, 2, 3, 4
_RUN_TRACKS = {_PHASES: "phases", _CUTS: "failures", _REPAIRS: "repairs and moves", _BLACKOUTS: "blackouts"}


@dataclass
class _Numbers:
    """The processes and threads of the trace, in the order in which they are first named."""

    processes: dict[str, int] = field(default_factory=dict)
    threads: dict[tuple[int, str], int] = field(default_factory=dict)

    def process(self, name: str) -> int:
        return self.processes.setdefault(name, _RUN + 1 + len(self.processes))

    def thread(self, process: int, name: str) -> int:
        return self.threads.setdefault((process, name), 1 + sum(key[0] == process for key in self.threads))


@dataclass(frozen=True)
class Trace:
    """A trace's events, and what is not in it."""

    events: Sequence[Event]
    notes: tuple[str, ...]

    def encoded(self) -> Iterator[str]:
        """Yield it as JSON, an event per line."""
        yield (
            '{"displayTimeUnit": "ms", "otherData": '
            + json.dumps({"notes": list(self.notes)})
            + ',\n"traceEvents": [\n'
        )
        for number, event in enumerate(self.events):
            if "unit" in event:  # The format has no units; so a counter's name ends with it.
                event = {**event, "name": f"{event['name']}, {event['unit']}"}
                del event["unit"]
            yield (",\n" if number else "") + json.dumps(event, separators=(",", ":"), allow_nan=False)
        yield "\n]}\n"


def write_trace(view: View, path: Path, limit_bytes: int = LIMIT_BYTES) -> list[str]:
    """Write a run as a trace of at most ``limit_bytes``, and return what is not in it. Raises UsageError if even
    counters of a single sample are too much.

    If all does not fit, counters have every n-th sample only; all else stays.
    """
    partial = path.with_name(path.name + ".partial")
    try:
        trace = fitting(view, limit_bytes, lambda trace: _written(trace, partial), str(path))
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
    return list(trace.notes)


def fitting(view: View, limit_bytes: int, size_of: Callable[[Trace], int], name: str) -> Trace:
    """Return the trace of a run with as many samples of its counters as fit into ``limit_bytes``, by its size in bytes
    in some encoding. Raises UsageError, naming it, if even counters of a single sample are too much."""
    every, most = 1, max(len(grid.at_s) for grid in view.grids)
    while True:
        trace = trace_of(view, every)
        size = size_of(trace)
        if size <= limit_bytes:
            return trace
        if every >= most:
            raise UsageError(f"{name}: needs more than {limit_bytes:,} bytes even without counters; play a shorter run")
        every = min(max(every + 1, round(every * size / limit_bytes)), most)


def _written(trace: Trace, path: Path) -> int:
    """Write a trace, and return its size in bytes."""
    size = 0
    with path.open("w") as file:
        for text in trace.encoded():
            size += len(text)
            file.write(text)
    return size


def trace_of(view: View, every: int = 1) -> Trace:
    """Return the trace of a run, with each ``every``-th sample of its counters."""
    numbers = _Numbers()
    events = [*_run_events(view)]
    for job in _jobs(view):
        events += _job_events(view, job, numbers)
    for track in view.streams:
        events += _stream_events(track, numbers)
    for users in view.users:
        events += _users_events(users, numbers)
        events += _held_events(users, numbers)
    for grid in view.grids:
        events += _counter_events(view, grid.thinned(every), numbers)
        events += _pause_events(view, grid, numbers)
    notes = [f"thinned: counters have 1 of {every} samples"] if every > 1 else []
    return Trace([*_names(numbers), *sorted(events, key=lambda event: float(event["ts"]))], tuple(notes))


def _us(at_s: float) -> float:
    return round(1e6 * at_s, 3)


def _slice(process: int, thread: int, name: str, begin_s: float, end_s: float, **details: Any) -> Event:
    length_us = round(max(0.0, 1e6 * (end_s - begin_s)), 3)
    event = {"ph": "X", "pid": process, "tid": thread, "name": name, "ts": _us(begin_s), "dur": length_us}
    return event | ({"args": details} if details else {})


def _names(numbers: _Numbers) -> Iterator[Event]:
    """Yield the names of tracks, and the order of processes."""
    processes = {"run": _RUN, **numbers.processes}
    threads = {(_RUN, name): number for number, name in _RUN_TRACKS.items()} | numbers.threads
    for name, process in processes.items():
        yield {"ph": "M", "pid": process, "tid": 0, "ts": 0, "name": "process_name", "args": {"name": name}}
        yield {
            "ph": "M",
            "pid": process,
            "tid": 0,
            "ts": 0,
            "name": "process_sort_index",
            "args": {"sort_index": process},
        }
    for (process, name), thread in threads.items():
        yield {"ph": "M", "pid": process, "tid": thread, "ts": 0, "name": "thread_name", "args": {"name": name}}


# The run -------------------------------------------------------------------------------------------------------------


def _run_events(view: View) -> Iterator[Event]:
    tracks = {"phase": _PHASES, "cut": _CUTS, "failure": _CUTS, "blackout": _BLACKOUTS}
    for number, span in enumerate(view.happened.spans):
        if span.kind == "phase":
            yield _slice(_RUN, _PHASES, span.label, span.begin_s, span.end_s, detail=span.detail)
        elif span.kind in tracks:  # They overlap, which slices of one track may not.
            common = {"pid": _RUN, "tid": tracks[span.kind], "cat": span.kind, "id": number, "name": span.label}
            yield {**common, "ph": "b", "ts": _us(span.begin_s), "args": {"detail": span.detail}}
            yield {**common, "ph": "e", "ts": _us(span.end_s)}
        if span.kind in ("cut", "failure"):
            name = f"{span.label}: {span.detail}"
            yield {"ph": "i", "s": "g", "pid": _RUN, "tid": _CUTS, "name": name, "ts": _us(span.begin_s)}
    for instant in view.happened.instants:
        common = {"ph": "i", "s": "p", "pid": _RUN, "tid": _REPAIRS, "ts": _us(instant.at_s)}
        yield {**common, "name": instant.kind, "args": {"detail": instant.label}}


# Jobs ----------------------------------------------------------------------------------------------------------------


def _jobs(view: View) -> list[str]:
    of_flows = (row.job for flows in view.flows for row in flows.rows)
    return list(dict.fromkeys([*of_flows, *view.result.table("operations")["job"].astype(str).unique()]))


def _job_events(view: View, job: str, numbers: _Numbers) -> Iterator[Event]:
    process = numbers.process(f"job {job}")
    table = view.result.table("operations")
    asking = set(table[table["job"] == job]["host"].astype(str))
    ends = {host for flows in view.flows for row in flows.rows if row.job == job for host in _ends(row.flow)}
    hosts = sorted(asking | ends)
    threads = {host: numbers.thread(process, host) for host in hosts}
    steps = _rank_steps(view.result, job, hosts)
    for host, rows in steps.items():
        yield from _step_events(process, threads[host], rows)
    yield from _arrow_events(view, job, process, threads, steps)
    yield from _operation_events(view, job, process, threads)
    yield from _rank_stall_events(view, process, hosts, numbers)
    for span in view.happened.spans:
        if span.kind == "restart" and span.label == job:
            for thread in threads.values():
                yield _slice(process, thread, "restart", span.begin_s, span.end_s, reason=span.detail)


def _ends(flow: Any) -> tuple[str, str]:
    return flow.host, flow.peer


def _rank_steps(result: Result, job: str, hosts: Sequence[str]) -> dict[str, pd.DataFrame]:
    """Return the steps of each rank by its host, in order, with ``all_ended_s``, when the last rank had its result.

    Results from before ranks had rows of their own have those of the whole collective for each.
    """
    steps, ranks = (table[table["job"] == job] for table in (result.table("steps"), result.table("rank_steps")))
    steps = steps.dropna(subset=["ended_s"]).assign(all_ended_s=steps["ended_s"])
    steps = steps.sort_values("started_s", kind="stable")
    if ranks.empty:
        return dict.fromkeys(hosts, steps) if len(steps) else {}
    key = ["phase", "step"]
    joined = ranks.merge(steps[[*key, "ranks", "size_bytes", "all_ended_s"]], on=key)
    joined = joined.sort_values("started_s", kind="stable")
    return {str(host): rows for host, rows in joined.groupby("host", observed=True)}


def _step_events(process: int, thread: int, steps: pd.DataFrame) -> Iterator[Event]:
    """Yield a rank's steps, after each the time in which it waits for other ranks to end theirs, and between two steps
    the time in which it computes."""
    rows = steps.to_dict("records")
    for row in rows:
        phase = str(row["phase"])
        details = {"ranks": int(row["ranks"]), "size_bytes": int(row["size_bytes"]), "phase": phase}
        yield _slice(process, thread, f"step {row['step']}", row["started_s"], row["ended_s"], **details)
        if row["all_ended_s"] > row["ended_s"]:
            yield _slice(process, thread, "wait for other ranks", row["ended_s"], row["all_ended_s"], phase=phase)
    for one, following in pairwise(rows):
        if following["phase"] == one["phase"] and following["started_s"] > one["all_ended_s"]:
            yield _slice(process, thread, "compute", one["all_ended_s"], following["started_s"])


def _arrow_events(
    view: View, job: str, process: int, threads: Mapping[str, int], steps: Mapping[str, pd.DataFrame]
) -> Iterator[Event]:
    """Yield an arrow, from the sender's step to the receiver's, for each flow that delivered data in a step."""
    flows, number = view.result.table("flows"), 0
    for phase, of_phase in flows[flows["job"] == job].groupby("phase", observed=True):
        times = {host: _times(rows, str(phase)) for host, rows in steps.items()}
        for flow, growth in acknowledged(of_phase):
            if flow.host not in times or flow.peer not in times:
                continue
            sender, receiver = times[flow.host], times[flow.peer]
            common_steps = np.intersect1d(sender[:, 0], receiver[:, 0])
            sender, receiver = (one[np.isin(one[:, 0], common_steps)] for one in (sender, receiver))
            carried = growth.by(receiver[:, 2]) - growth.by(sender[:, 1])
            for place in np.flatnonzero(carried > 0).tolist():
                number += 1
                common = {"cat": "flow", "pid": process, "id": f"{job}-{number}", "name": f"{flow.host} to {flow.peer}"}
                size = {"args": {"bytes": int(carried[place])}}
                # Within both slices: an arrow is bound to the slice that encloses its end.
                began_s, ended_s = _within(sender[place], 0.01), _within(receiver[place], 0.99)
                yield {**common, **size, "ph": "s", "tid": threads[flow.host], "ts": _us(began_s)}
                yield {**common, "ph": "f", "bp": "e", "tid": threads[flow.peer], "ts": _us(ended_s)}


def _times(steps: pd.DataFrame, phase: str) -> np.ndarray[Any, Any]:
    """Return number, start and end of a rank's steps in a phase, by number: an array of ``(steps, 3)``."""
    rows = steps[steps["phase"] == phase].sort_values("step")
    return rows[["step", "started_s", "ended_s"]].to_numpy(dtype=float)


def _within(step: np.ndarray[Any, Any], fraction: float) -> float:
    """Return the time at which a fraction of a step has passed."""
    return float(step[1] + fraction * (step[2] - step[1]))


def _operation_events(view: View, job: str, process: int, threads: Mapping[str, int]) -> Iterator[Event]:
    """Yield reads, writes and single flows: many at once per host, so they are async events."""
    table = view.result.table("operations")
    rows = table[table["job"] == job].dropna(subset=["ended_s"])
    for number, row in enumerate(rows.to_dict("records")):
        host = str(row["host"])
        common = {"cat": job, "id": f"{job}-{number}", "pid": process, "tid": threads[host]}
        common["name"] = f"{host} {row['operation']}"
        details = {"peer": str(row["peer"]), "bytes": int(row["size_bytes"]), "retries": int(row["retries"])}
        yield {**common, "ph": "b", "ts": _us(row["started_s"]), "args": details}
        yield {**common, "ph": "e", "ts": _us(row["ended_s"])}


# Streams of ranks -----------------------------------------------------------------------------------------------------


def _stream_events(track: StreamTrack, numbers: _Numbers) -> Iterator[Event]:
    """Yield the operations of a stream, one after the other, and of none, as async events: they overlap."""
    process = numbers.process(f"job {track.job}")
    thread = numbers.thread(process, f"{track.name} on {track.host}")
    for number, one in enumerate(track.played):
        details = {"kind": one.kind, "partner": one.partner, "bytes": one.size_bytes}
        details["waited_us"] = _waited_us(one)
        if track.stream:
            yield _slice(process, thread, one.label, one.started_s, one.ended_s, **details)
            continue
        name = f"{track.job}-{track.rank}-{number}"
        common = {"cat": one.kind, "id": name, "pid": process, "tid": thread, "name": one.label}
        yield {**common, "ph": "b", "ts": _us(one.started_s), "args": details}
        yield {**common, "ph": "e", "ts": _us(one.ended_s)}


def _waited_us(one: Played) -> float:
    """Return how long an operation waited for its stream."""
    return _us(max(0.0, one.started_s - one.ready_s))


# Users' jobs of a platform --------------------------------------------------------------------------------------------


def _users_events(users: UsersJobs, numbers: _Numbers) -> Iterator[Event]:
    """Yield a track for each job, with its waits and its lives, in which the time from the notice to the end is a slice
    of its own; and a track of all events."""
    process = numbers.process(f"users' jobs of {users.platform}")
    for job in users.jobs:
        words = ", ".join(filter(None, (job.user, job.priority)))
        thread = numbers.thread(process, f"{job.name} ({words})" if words else job.name)
        for from_s, until_s in job.waits:
            yield _slice(process, thread, "waits", from_s, until_s)
        for place, life in enumerate(job.lives, 1):
            details = {"nodes": " ".join(life.nodes), "began": life.why, "end": life.end, "ended": life.end_why}
            details |= {} if life.step is None else {"step": str(life.step)}
            yield _slice(process, thread, f"life {place}", life.started_s, life.ended_s, **details)
            if life.told_s is not None:
                yield _slice(process, thread, f"told: {life.end}", life.told_s, life.ended_s, reason=life.end_why)
    thread = numbers.thread(process, "events")
    for row in users.events:
        name = f"{row['event']} {users.name_of(row['number']) if row['number'] else row['nodes']}"
        common = {"ph": "i", "s": "t", "pid": process, "tid": thread, "ts": _us(row["at_s"])}
        yield {**common, "name": name, "args": {"nodes": str(row["nodes"]), "reason": str(row["why"])}}


def _held_events(users: UsersJobs, numbers: _Numbers) -> Iterator[Event]:
    """Yield a track for each node of a platform, with the jobs that had it, and one for when it was out."""
    process = numbers.process(f"nodes of {users.platform}")
    reasons = {(one.node, one.from_s): one.why for one in users.out}
    for held in users.held():
        thread = numbers.thread(process, held.node if held.job else f"{held.node} out")
        details = {"end": held.end} if held.job else {"reason": reasons[held.node, held.from_s]}
        yield _slice(process, thread, held.job or "out", held.from_s, held.until_s, **details)


# Ports ---------------------------------------------------------------------------------------------------------------


def _counter_events(view: View, grid: Grid, numbers: _Numbers) -> Iterator[Event]:
    """Yield what was sampled of a port's lanes, whenever one changes: rate and backlog, all else where there is any."""
    if not len(grid.at_s):
        return
    shown = {name: column for name, column in labelled_columns().items() if name in grid.columns}
    values = {name: _shown(grid, name, column) for name, column in shown.items()}
    for port in np.unique(grid.ports).tolist():
        keys = np.flatnonzero(grid.ports == port)
        name = view.wires.ports[port]
        process, lanes = numbers.process(node_of_port(name)), [view.lanes[lane] for lane in grid.lanes[keys]]
        for column, described in shown.items():
            of_port = values[column][:, keys]
            if column in _ALWAYS or of_port.any():
                common = {"ph": "C", "pid": process, "tid": 0, "name": f"{name} {described.label}"}
                yield from _changes({**common, "unit": described.shown[1]}, grid.at_s, lanes, of_port)


_ALWAYS = ("sent_bytes", "backlog_bytes")


def _shown(grid: Grid, name: str, column: Column) -> np.ndarray[Any, Any]:
    """Return what is shown of a column at each sample: of a counter its growth per second in the interval that begins
    then, and 0 at the last."""
    values = grid.columns[name]
    if not column.grows:
        return values
    factor, unit = column.shown
    grown = np.diff(values, axis=0)
    rates = factor * np.where(grown < 0, values[1:], grown) / np.diff(grid.at_s)[:, None]
    return np.append(np.round(rates, 4 if unit == "fraction" else 0), np.zeros((1, len(grid.ports))), axis=0)


def _changes(
    common: Event, at_s: np.ndarray[Any, Any], lanes: Sequence[str], values: np.ndarray[Any, Any]
) -> Iterator[Event]:
    changed = np.ones(len(values), bool)
    changed[1:] = (values[1:] != values[:-1]).any(axis=1)
    for place in np.flatnonzero(changed).tolist():
        found = values[place].tolist()
        whole = [int(value) if value == int(value) else value for value in found]
        yield {**common, "ts": _us(at_s[place]), "args": dict(zip(lanes, whole, strict=True))}


@dataclass(frozen=True)
class _Stall:
    """A stretch of intervals in which a lane was stalled for more than BLOCKED_SHARE of each; ``fraction``: of all."""

    port: str
    lane: str
    begin_s: float
    end_s: float
    fraction: float


def _stalls(view: View, grid: Grid) -> Iterator[_Stall]:
    if "stalled_ns" not in grid.columns or len(grid.at_s) < 2:
        return
    share = np.diff(grid.columns["stalled_ns"], axis=0) / 1e9 / np.diff(grid.at_s)[:, None]
    blocked = np.zeros((len(grid.at_s) + 1, len(grid.ports)), np.int8)
    blocked[1:-1] = share > BLOCKED_SHARE
    edges = np.diff(blocked, axis=0)
    for key in np.flatnonzero(edges.any(axis=0)).tolist():
        begins, ends = (np.flatnonzero(edges[:, key] == sign).tolist() for sign in (1, -1))
        for begin, end in zip(begins, ends, strict=True):
            names = view.wires.ports[grid.ports[key]], view.lanes[grid.lanes[key]]
            fraction = round(min(float(share[begin:end, key].mean()), 1.0), 4)
            yield _Stall(*names, float(grid.at_s[begin]), float(grid.at_s[end]), fraction)


def _pause_events(view: View, grid: Grid, numbers: _Numbers) -> Iterator[Event]:
    """Yield a slice for each stall of a lane, and an instant where it begins."""
    for stall in _stalls(view, grid):
        process = numbers.process(node_of_port(stall.port))
        thread = numbers.thread(process, f"{stall.port} {stall.lane}")
        yield _slice(process, thread, "stalled", stall.begin_s, stall.end_s, fraction=stall.fraction)
        name = f"{stall.lane} paused"
        yield {"ph": "i", "s": "t", "pid": process, "tid": thread, "name": name, "ts": _us(stall.begin_s)}


def _rank_stall_events(view: View, process: int, hosts: Sequence[str], numbers: _Numbers) -> Iterator[Event]:
    """Yield when the NICs of a job's ranks were stalled, in a track below each rank's."""
    for grid in view.grids:
        for stall in _stalls(view, grid):
            if node_of_port(stall.port) in hosts:
                thread = numbers.thread(process, f"{stall.port} {stall.lane} stalled")
                name = f"{stall.lane} stalled"
                yield _slice(process, thread, name, stall.begin_s, stall.end_s, fraction=stall.fraction)
