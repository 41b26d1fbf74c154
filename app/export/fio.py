"""Reads and writes of storage as ``fio --output-format=json`` tells of them (fio 3.33): a job per phase and job.

- ``runtime``: the time for which the load played (ms). ``io_bytes``, ``bw`` and ``iops`` are of that time: of an
  operation that reaches over its end the part counts that lies inside (:mod:`traffic.metrics`), as in the metrics.
- ``total_ios``, ``clat_ns``, ``lat_ns``: operations that began in that time and completed, however late. Percentiles
  are of nearest rank. Nothing lies between asking and submitting, so both latencies are the same, and ``slat_ns`` has
  no samples (N is 0).
- Operations given up after their retries are in ``total_err``; ``error`` and ``first_error`` are then 5 (EIO), for
  results do not keep the reason. The part ``fabric`` of a job counts them by direction.
- What was not measured is null (CPU, queue depths), or has no samples (``bw_samples``).
"""

from __future__ import annotations

import errno
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from app.export.choice import Choice, Exported, contents, kinds_of
from fabric.errors import UsageError
from fabric.percentiles import nearest_ranks
from fabric.results import Phase, Result
from traffic import metrics
from traffic.measures import windows_of

PERCENTILES = (1, 5, 10, 20, 30, 40, 50, 60, 70, 80, 90, 95, 99, 99.5, 99.9, 99.95, 99.99)
"""Those that fio prints unless told otherwise."""
_NO_STORAGE = ("flow", "stream", "program")
"""Kinds of operations that are not reads or writes. Reads may have the names that their experiment gives them."""
_NOT_MEASURED = (
    "usr_cpu", "sys_cpu", "ctx", "majf", "minf", "iodepth_level", "iodepth_submit", "iodepth_complete",
)  # fmt: skip
_BOUNDS = (2, 4, 10, 20, 50, 100, 250, 500, 750, 1000)
_NO_SAMPLES = {"min": 0, "max": 0, "mean": 0.0, "stddev": 0.0, "N": 0}
Values = npt.NDArray[np.float64]
Windows = list[tuple[float, float]]


@dataclass(frozen=True)
class _Direction:
    """What fio says of a direction: its numbers, latencies in ns, and how many were given up or cut off."""

    section: Mapping[str, Any]
    latencies_ns: Values
    failed: int
    cut_off: int


def fio(result: Result, choice: Choice = Choice()) -> Exported:  # noqa: B008 - frozen
    """Return the JSON of a result's reads and writes. Raises UsageError if it has none, or none of this choice."""
    operations = result.table("operations")
    operations = operations.assign(kind=kinds_of(operations))
    operations = operations[~operations["kind"].isin(_NO_STORAGE)]
    if operations.empty:
        raise UsageError(
            f"{result.directory}: has no reads or writes of storage, which fio's JSON is about; it has "
            f"{contents(result)}"
        )
    phases = {phase.name: phase for phase in result.phases}
    jobs, notes = [], []
    grouped = choice.rows(result, operations).groupby(["phase", "job"], observed=True, sort=False)
    for number, ((phase, job), rows) in enumerate(grouped):
        windows = _windows(result, phases[str(phase)], str(job))
        one = _job(f"{phase}.{job}", number, rows, windows)
        one["fabric"] |= {"phase": str(phase), "job": str(job)}
        jobs.append(one)
        if one.get("total_err"):
            notes.append(f"{one['jobname']}: {one['total_err']} operations were given up after their retries")
    whole = {**_head(result), "jobs": jobs, "disk_util": []}
    return Exported((json.dumps(whole, indent=2, allow_nan=False) + "\n").encode(), tuple(notes))


def _head(result: Result) -> dict[str, Any]:
    version = result.manifest.get("versions", {}).get("project", "")
    head: dict[str, Any] = {"fio version": f"ai-fabric-emulator-{version}"}
    if started_at := result.manifest.get("started_at"):
        date = datetime.fromisoformat(str(started_at))
        seconds = date.timestamp()
        head |= {"timestamp": int(seconds), "timestamp_ms": int(1000 * seconds), "time": date.strftime("%c")}
    return head


def _windows(result: Result, phase: Phase, job: str) -> Windows:
    """Return from when to when a job's load played in a phase: its windows, as far as all of the load played; those of
    a job that comes and goes are its own."""
    from_s, until_s = phase.load_s
    jobs = result.table("jobs")
    rows = jobs[(jobs["phase"] == phase.name) & (jobs["job"] == job)]
    own = windows_of(rows)
    clipped = [(max(from_s, begin), min(until_s, end)) for begin, end in own]
    return [one for one in clipped if one[0] < one[1]] or own or [(from_s, until_s)]


def _job(name: str, number: int, rows: pd.DataFrame, windows: Windows) -> dict[str, Any]:
    """Return a job of the JSON."""
    runtime_ms = round(1000 * sum(end - begin for begin, end in windows))
    is_write = rows["kind"] == "write"
    read, write = (_direction(part, windows) for part in (rows[~is_write], rows[is_write]))
    pattern = "rw" if len(read.latencies_ns) and len(write.latencies_ns) else "write" if is_write.all() else "read"
    failed = read.failed + write.failed
    job: dict[str, Any] = {
        "jobname": name,
        "groupid": number,
        "error": errno.EIO if failed else 0,
        "eta": 0,
        "elapsed": -(-runtime_ms // 1000),
        "job options": {"name": name, "rw": pattern, "runtime": f"{runtime_ms}ms"},
        "read": read.section,
        "write": write.section,
        "trim": _section(np.zeros(0), 0.0, 0.0, 0.0),
        "sync": {"total_ios": 0, "lat_ns": _NO_SAMPLES},
        "job_runtime": runtime_ms,
        **dict.fromkeys(_NOT_MEASURED),
        **_buckets(np.concatenate([read.latencies_ns, write.latencies_ns])),
        "latency_depth": None,
        "latency_target": 0,
        "latency_percentile": 100.0,
        "latency_window": 0,
    }
    if failed:  # As fio has them, where it goes on after errors.
        job |= {"total_err": failed, "first_error": errno.EIO}
    counts = {one: {"failed": part.failed, "cut_off": part.cut_off} for one, part in (("read", read), ("write", write))}
    return {**job, "fabric": counts}


def _direction(rows: pd.DataFrame, windows: Windows) -> _Direction:
    """Return what fio says of the reads or the writes of a job."""
    completed = rows[rows["operation"].astype(str) == rows["kind"]].dropna(subset=["ended_s"])
    begun = pd.Series(False, index=completed.index)
    moved_bytes = moved = 0.0
    for begin, end in windows:
        begun |= completed["started_s"].between(begin, end)
        moved_bytes += (end - begin) * metrics.operation_bandwidth(completed, begin, end)
        moved += (end - begin) * metrics.operation_bandwidth(completed.assign(size_bytes=1), begin, end)
    counted = completed[begun]
    latencies_ns = np.sort(1e9 * (counted["ended_s"] - counted["started_s"]).to_numpy(np.float64))
    runtime_s = sum(end - begin for begin, end in windows) if len(completed) else 0.0
    names, kinds = rows["operation"].astype(str), rows["kind"].astype(str)
    failed, cut_off = (
        sum(int((names == kinds + f"_{end}").sum()) for end in ends) for ends in (metrics.NEVER, metrics.CUT_OFF)
    )
    return _Direction(_section(latencies_ns, moved_bytes, moved, runtime_s), latencies_ns, failed, cut_off)


def _section(latencies_ns: Values, moved_bytes: float, moved: float, runtime_s: float) -> dict[str, Any]:
    """Return a direction's part of a job: sorted latencies, and what was moved in its runtime, in bytes and in whole
    operations."""
    rate = moved_bytes / runtime_s if runtime_s else 0.0
    samples = ("min", "max", "mean", "dev", "samples")
    latency = _latency(latencies_ns)
    clat = latency | ({"percentile": _percentiles(latencies_ns)} if len(latencies_ns) else {})
    return {
        "io_bytes": round(moved_bytes),
        "io_kbytes": round(moved_bytes) >> 10,
        "bw_bytes": round(rate),
        "bw": round(rate) >> 10,
        "iops": moved / runtime_s if runtime_s else 0.0,
        "runtime": round(1000 * runtime_s),
        "total_ios": len(latencies_ns),
        "short_ios": 0,
        "drop_ios": 0,
        "slat_ns": _NO_SAMPLES,
        "clat_ns": clat,
        "lat_ns": latency,
        **{f"bw_{name}": 0 for name in samples},
        "bw_agg": 0.0,
        **{f"iops_{name}": 0 for name in ("min", "max", "mean", "stddev", "samples")},
    }


def _latency(values_ns: Values) -> dict[str, Any]:
    if not len(values_ns):
        return dict(_NO_SAMPLES)
    deviation = float(values_ns.std(ddof=1)) if len(values_ns) > 1 else 0.0
    ends = {"min": round(float(values_ns[0])), "max": round(float(values_ns[-1]))}
    return {**ends, "mean": float(values_ns.mean()), "stddev": deviation, "N": len(values_ns)}


def _percentiles(values_ns: Values) -> dict[str, int]:
    """Return the percentiles of sorted latencies by fio's names of them, of nearest rank."""
    found = nearest_ranks(values_ns, *PERCENTILES)
    return {f"{one:.6f}": round(value) for one, value in zip(PERCENTILES, found, strict=True)}


def _buckets(values_ns: Values) -> dict[str, dict[str, float]]:
    """Return what share of operations, in percent, took less than each of fio's bounds, but not less than the last."""
    found: dict[str, dict[str, float]] = {}
    for unit, scale_ns, bounds in (("ns", 1, _BOUNDS), ("us", 1_000, _BOUNDS), ("ms", 1_000_000, (*_BOUNDS, 2000))):
        edges = [0.0 if unit == "ns" else scale_ns, *(float(scale_ns * bound) for bound in bounds)]
        names = [*map(str, bounds)]
        if unit == "ms":
            edges, names = [*edges, math.inf], [*names, ">=2000"]
        counts = [((values_ns >= low) & (values_ns < high)).sum() for low, high in pairwise(edges)]
        shares = (100.0 * float(count) / max(1, len(values_ns)) for count in counts)
        found[f"latency_{unit}"] = dict(zip(names, shares, strict=True))
    return found
