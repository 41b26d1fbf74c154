"""Collectives as nccl-tests prints them (``all_reduce_perf``): a table per phase and job, a row per size.

Columns and widths are those of ``src/common.cu`` (NVIDIA/nccl-tests). ``time`` is the mean over the steps of a size,
each from its start until the last rank had its result; algbw = S / time; busbw = algbw x the factor of the collective
(of an allreduce 2 (n - 1) / n). A rank's result is in another buffer than its input, so figures are out of place; those
in place were not measured. Every rank checks every element of every step, and a wrong one ends the run, so ``#wrong``
of steps that have ended is 0.

Collectives that a replay or another graph of work calls are tables as well, each call a step
(:mod:`app.export.called_collectives`).

Bandwidths below 1 GB/s have more digits than in nccl-tests, for links may be scaled down: 0.000277, not 0.00.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from app.export.called_collectives import called_collectives
from app.export.choice import Choice, Exported, contents
from fabric.errors import UsageError
from fabric.results import Result
from fabric.units import format_rate
from traffic.collectives.bandwidth import busbw_factor
from traffic.collectives.collective import Collective
from traffic.collectives.elements import Dtype
from traffic.collectives.listing import COLLECTIVES, collective_named
from traffic.collectives.step_numbers import times_by_size

NOT_MEASURED = "N/A"
_WIDTHS = (10, 12, 8, 6, 6)
"""Of the columns that describe a row, after the sign of a comment."""


def _described(*names: str) -> str:
    return "# " + "  ".join(f"{name:>{width}}" for name, width in zip(names, _WIDTHS, strict=True))


_NAMES = f"  {'time':>7}  {'algbw':>6}  {'busbw':>6} {'#wrong':>6}"
_UNITS = f"  {'(us)':>7}  {'(GB/s)':>6}  {'(GB/s)':>6}  {'':>5}"
_HEADER = (
    _described("", "", "", "", "") + "           out-of-place                       in-place          ",
    _described("size", "count", "type", "redop", "root") + 2 * _NAMES,
    _described("(B)", "(elements)", "", "", "") + 2 * _UNITS,
)


@dataclass(frozen=True)
class SizeRow:
    """A row: the size in bytes, ranks, steps, mean seconds per step, algbw and busbw in bytes/s."""

    size_bytes: int
    ranks: int
    steps: int
    time_s: float
    algbw_Bps: float  # noqa: N815 - its unit
    busbw_Bps: float  # noqa: N815


def nccl_tests(result: Result, choice: Choice = Choice()) -> Exported:  # noqa: B008 - frozen
    """Return the tables of a result's collectives. Raises UsageError if it has none, or none of this choice."""
    called = called_collectives(result)
    steps = pd.concat([one for one in (result.table("steps"), called) if not one.empty] or [called])
    if steps.empty:
        raise UsageError(
            f"{result.directory}: has no collectives, which nccl-tests' tables are about; it has {contents(result)}"
        )
    steps = choice.rows(result, steps)
    if unknown := sorted({str(name) for name in steps["collective"]} - COLLECTIVES.keys()):
        raise UsageError(f"{result.directory}: {', '.join(unknown)}: not listed here (traffic/collectives/listing.py)")
    lines = [*_about(result)]
    if not called.empty:
        lines += [
            "# calls of graphs of work: time is from when the last rank began a call until the last one ended",
            "#",
        ]
    for (phase, job, *_), rows in steps.groupby(["phase", "job", "collective", "ranks"], observed=True, sort=False):
        lines += _table(result, str(phase), str(job), rows)
    return Exported(("\n".join(lines) + "\n").encode())


def rows_of(steps: pd.DataFrame) -> list[SizeRow]:
    """Return a row per size, from rows of ``steps`` of one collective and number of ranks; those without an end are
    left out."""
    ended = steps.dropna(subset=["ended_s"])
    if ended.empty:
        return []
    ranks, counts = int(ended["ranks"].iloc[0]), ended["size_bytes"].value_counts()
    factor = busbw_factor(str(ended["collective"].iloc[0]), ranks)
    return [
        SizeRow(size, ranks, int(counts[size]), time_s, size / time_s, size / time_s * factor)
        for size, time_s in times_by_size(ended).items()
    ]


def _about(result: Result) -> Iterator[str]:
    manifest, fabric = result.manifest, result.fabric
    rates = [format_rate(float(fabric[key])) for key in ("nic_rate_bps", "reference_nic_rate_bps")]
    yield (
        f"# fabric export nccl-tests: run {result.name}, experiment {manifest.get('experiment')}, "
        f"engine {manifest.get('engine')}, seed {manifest.get('seed')}, verdict {result.verdict['status']}"
    )
    if rates[0] != rates[1]:
        yield f"# NICs of {rates[0]} stand for {rates[1]}; figures are those of the emulated NICs"
    yield "#"


def _table(result: Result, phase: str, job: str, steps: pd.DataFrame) -> Iterator[str]:
    """Yield the lines of one table, as nccl-tests prints them from its parameters to its average."""
    rows, ranks = rows_of(steps), int(steps["ranks"].iloc[0])
    collective = collective_named(str(steps["collective"].iloc[0]))
    yield f"# phase {phase}, job {job}: {collective.name} over {ranks} ranks"
    if open_steps := int(steps["ended_s"].isna().sum()):
        yield f"# {open_steps} steps did not end, and are in no row"
    if not rows:
        yield "#"
        return
    sizes, counts = [row.size_bytes for row in rows], sorted({row.steps for row in rows})
    iters = str(counts[0]) if len(counts) == 1 else NOT_MEASURED
    if len(counts) > 1:
        yield "# iters by size: " + ", ".join(f"{row.size_bytes}: {row.steps}" for row in rows)
    yield (
        f"# nThread {NOT_MEASURED} nGpus {NOT_MEASURED} minBytes {min(sizes)} maxBytes {max(sizes)} "
        f"step: {NOT_MEASURED}(bytes) warmup iters: {NOT_MEASURED} iters: {iters} agg iters: 1 validation: 1 graph: 0"
    )
    yield "#"
    yield from _HEADER
    dtype = _dtype(result.config, job)
    yield from (_line(row, collective, dtype) for row in rows)
    yield "# Out of bounds values : 0 OK"
    yield f"# Avg bus bandwidth    : {sum(row.busbw_Bps for row in rows) / len(rows) / 1e9:g} "
    yield "#"
    yield ""


def _line(row: SizeRow, collective: Collective, dtype: Dtype | None) -> str:
    count = NOT_MEASURED if dtype is None else str(collective.count(row.ranks, row.size_bytes // dtype.size_bytes))
    operation, root = "sum" if collective.reduces else "none", -1 if collective.root is None else collective.root
    kind = NOT_MEASURED if dtype is None else dtype.nccl_name
    what = f"{row.size_bytes:>12}  {count:>12}  {kind:>8}  {operation:>6}  {root:>6}"
    out_of_place = _figures(_time(row.time_s), _bandwidth(row.algbw_Bps), _bandwidth(row.busbw_Bps), "0")
    return what + out_of_place + _figures(*(NOT_MEASURED,) * 4)


def _figures(time: str, algbw: str, busbw: str, wrong: str) -> str:
    return f"  {time:>7}  {algbw:>6}  {busbw:>6}  {wrong:>5}"


def _time(time_s: float) -> str:
    """Return a time in microseconds with the digits that nccl-tests gives it."""
    time_us = 1e6 * time_s
    return f"{time_us:.{0 if time_us >= 10_000 else 1 if time_us >= 100 else 2}f}"


def _bandwidth(rate_Bps: float) -> str:  # noqa: N803 - its unit
    """Return GB/s with two decimals, or with three digits that count if it is less than 1."""
    rate = rate_Bps / 1e9
    return f"{rate:.{2 if rate >= 1 or rate <= 0 else 2 - math.floor(math.log10(rate))}f}"


def _dtype(config: Mapping[str, Any], job: str) -> Dtype | None:
    """Return the type of a job's elements by its run's config; None if that does not say."""
    listed = config.get("jobs")
    jobs: Sequence[Any] = listed if isinstance(listed, list) else ()
    named = [one for one in jobs if isinstance(one, Mapping) and one.get("name") == job]
    for place in (config.get(job), *named, *(part for one in named for part in one.values()), config):
        if isinstance(place, Mapping) and place.get("dtype") in {dtype.value for dtype in Dtype}:
            return Dtype(place["dtype"])
    return None
