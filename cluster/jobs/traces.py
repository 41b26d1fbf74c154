"""Readers of job traces: Acme's (github.com/InternLM/AcmeTrace, trace_seren.csv and trace_kalos.csv) and Helios'
(github.com/S-Lab-System-Group/HeliosData, cluster_log.csv), recognised by the columns of their header.

Jobs without a GPU, and those that never got their GPUs (no start, no duration), are left out and counted.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from cluster.jobs.records import JobRecord, Outcome
from fabric.config import read_text
from fabric.errors import ConfigError

_COMMON = ("job_id", "user", "gpu_num", "state", "submit_time", "duration", "queue")
_OWN = {"Acme": ("type", "gpu_time"), "Helios": ("vc",)}
_OUTCOMES = {
    "COMPLETED": Outcome.COMPLETED,
    "CANCELLED": Outcome.CANCELLED,
    "FAILED": Outcome.FAILED,
    "TIMEOUT": Outcome.FAILED,
    "NODE_FAIL": Outcome.FAILED,
    "OUT_OF_MEMORY": Outcome.FAILED,
    "PREEMPTED": Outcome.CANCELLED,
}
_MOST_FAULTS = 20


@dataclass(frozen=True)
class Trace:
    """The jobs of a file by the time of their submission, and how many of its rows are none, by the reason."""

    format: str
    jobs: tuple[JobRecord, ...]
    left_out: Mapping[str, int] = field(default_factory=dict)


def read_trace(path: Path) -> Trace:
    """Return the jobs of a trace. Raises ConfigError with the line and column of what is wrong."""
    return trace_of(read_text(path, "trace of jobs").splitlines(), str(path))


def trace_of(lines: Iterable[str], source: str) -> Trace:
    """Return the jobs of a trace's lines. Raises ConfigError with the line and column of what is wrong."""
    reader = csv.DictReader(lines)
    try:
        return _trace_in(reader, source)
    except csv.Error as error:  # A quote that nothing ends.
        raise ConfigError(source, [f"line {reader.line_num}: {error}; is the file whole?"]) from error


def _trace_in(reader: csv.DictReader[str], source: str) -> Trace:
    columns = list(reader.fieldnames or ())
    name = _format_of(columns, source)
    faults: list[str] = []
    left_out: dict[str, int] = {}
    found: list[tuple[datetime, JobRecord]] = []
    first: tuple[int, datetime] | None = None
    for number, row in enumerate(reader):
        try:
            _verify_whole(row, columns)
            reason, job = _job(row, number, name)
            if job is not None:
                first = first or (reader.line_num, job[0])
                _verify_comparable(job[0], *first)
        except ValueError as error:
            faults.append(f"line {reader.line_num}: {error}")
            if len(faults) == _MOST_FAULTS:
                break
            continue
        if job is None:
            left_out[reason] = left_out.get(reason, 0) + 1
        else:
            found.append(job)
    if faults:
        raise ConfigError(source, faults)
    if not found:
        raise ConfigError(source, [f"no job with a GPU that ran among {sum(left_out.values())} rows; is it the trace?"])
    return Trace(name, tuple(_from_the_first(found)), left_out)


def _format_of(columns: list[str], source: str) -> str:
    missing = [column for column in _COMMON if column not in columns]
    known = [name for name, own in _OWN.items() if all(column in columns for column in own)]
    if missing or len(known) != 1:
        raise ConfigError(
            source,
            [
                f"the header {','.join(columns) or '(none)'} is neither Acme's nor Helios' (a trace has "
                f"{', '.join(_COMMON)}; Acme's also type and gpu_time, Helios' vc)"
            ],
        )
    return known[0]


def _verify_whole(row: Mapping[str, str | None], columns: Sequence[str]) -> None:
    """Raise ValueError if a row has fewer values than the header, as the last one of a download that broke off."""
    if missing := [column for column in columns if row[column] is None]:
        has = f"has {len(columns) - len(missing)} of {len(columns)} columns"
        raise ValueError(f"{has}, and no {missing[0]}; is the file whole? Fetch it again, or remove the line")


def _verify_comparable(at: datetime, first_line: int, first: datetime) -> None:
    """Raise ValueError if a time has a zone and the first one has none, or the other way round: which is earlier is not
    known then."""
    if (at.tzinfo is None) != (first.tzinfo is None):
        has, other = ("no zone", "one") if at.tzinfo is None else ("a zone", "none")
        raise ValueError(f"submit_time: {at} has {has}, and that of line {first_line} has {other}; write all alike")


def _job(row: Mapping[str, str], number: int, name: str) -> tuple[str, tuple[datetime, JobRecord] | None]:
    """Return the reason why a row is not a job, or when it was submitted and the job. Raises ValueError."""
    gpus = _number(row, "gpu_num")
    if gpus == 0:
        return "without a GPU", None
    if gpus != int(gpus):
        raise ValueError(f"gpu_num: {row['gpu_num']} is not a whole number of GPUs")
    if not row["duration"].strip() or row["duration"].strip().lower() in ("nan", "none"):
        return "never started", None
    state = row["state"].strip().upper()
    if state not in _OUTCOMES:
        raise ValueError(f"state: {row['state']!r} is not one of {', '.join(_OUTCOMES)}")
    job = JobRecord(
        number=number,
        user=row["user"],
        gpus=int(gpus),
        submitted_s=0.0,
        run_s=_number(row, "duration"),
        outcome=_OUTCOMES[state],
        queue_s=_number(row, "queue"),
        group=row["vc"] if name == "Helios" else row["type"],
    )
    return "", (_time(row, "submit_time"), job)


def _number(row: Mapping[str, str], column: str) -> float:
    try:
        value = float(row[column])
    except (TypeError, ValueError):
        raise ValueError(f"{column}: {row[column]!r} is not a number") from None
    if not 0 <= value < float("inf"):
        raise ValueError(f"{column}: {row[column]} is negative or not finite")
    return value


def _time(row: Mapping[str, str], column: str) -> datetime:
    try:
        return datetime.fromisoformat(row[column].strip())
    except (AttributeError, ValueError):
        raise ValueError(f"{column}: {row[column]!r} is not a time such as 2023-03-01 00:18:22+08:00") from None


def _from_the_first(found: list[tuple[datetime, JobRecord]]) -> Iterator[JobRecord]:
    found.sort(key=lambda one: (one[0], one[1].number))
    first = found[0][0]
    for submitted, job in found:
        yield JobRecord(**{**vars(job), "submitted_s": (submitted - first).total_seconds()})
