"""Samples, and traces as tests write them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from traffic.work.formats.files import Sources, paths_named, read_sources
from traffic.work.formats.recognise import read_traces
from traffic.work.formats.trace import Asked, Groups, Trace, TraceFile
from traffic.work.operations import Operation

SAMPLES = Path(__file__).parent / "samples"


def sample(*names: str, ranks: int | None = None, size: int | None = None) -> Trace:
    """Return the one trace of samples."""
    (found,) = read_traces(
        read_sources(paths_named([str(SAMPLES / name) for name in names])), Asked(ranks, size_bytes=size)
    )
    return found


def read(
    *contents: str | bytes, ranks: int | None = None, groups: Groups | None = None, size: int | None = None
) -> Trace:
    """Return the trace of files with these contents, one per rank."""
    files = tuple(
        TraceFile(f"trace.{rank}", content.encode() if isinstance(content, str) else content)
        for rank, content in enumerate(contents)
    )
    (found,) = read_traces([Sources("trace", files)], Asked(ranks, groups or {}, size))
    return found


def operations(trace: Trace, rank: int, kind: type[Operation]) -> list[Any]:
    """Return a rank's operations of a kind."""
    return [one for one in trace.program(rank) if isinstance(one, kind)]


def kinds(trace: Trace, rank: int = 0) -> Mapping[str, int]:
    """Return how many operations of each kind a rank has."""
    from traffic.work.formats.counts import counted

    return {kind: count.operations for kind, count in counted(trace.program(rank)).items()}
