"""What is in a trace, counted: operations of each kind on each rank, bytes, computing, groups."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from traffic.work.formats.names import WAIT
from traffic.work.formats.trace import Program, Trace
from traffic.work.operations import CollectiveCall, Compute, FileRead, FileWrite, Operation, Receive, Send

COMPUTE = "compute"
_NAMES: dict[type[Operation], str] = {
    Compute: COMPUTE,
    Send: "send",
    Receive: "receive",
    FileRead: "read",
    FileWrite: "write",
}


@dataclass
class KindCount:
    """Of a kind on a rank: how many operations, their bytes, and of computing the time and FLOPs. ``measured_s``: what
    they took where they were captured."""

    operations: int = 0
    size_bytes: int = 0
    duration_s: float = 0.0
    flops: float = 0.0
    measured_s: float = 0.0


def kind_of(operation: Operation) -> str:
    """Return what an operation is called in counts: a collective by its name."""
    if isinstance(operation, CollectiveCall):
        return operation.collective
    if isinstance(operation, Compute) and operation.name == WAIT and not operation.duration_s and not operation.flops:
        return WAIT
    return _NAMES[type(operation)]


def counted(program: Program) -> dict[str, KindCount]:
    """Return what a rank does, by kind."""
    found: dict[str, KindCount] = defaultdict(KindCount)
    for one in program:
        count = found[kind_of(one)]
        count.operations += 1
        count.size_bytes += getattr(one, "size_bytes", 0)
        count.measured_s += one.measured_s or 0.0
        if isinstance(one, Compute):
            count.duration_s += one.duration_s or 0.0
            count.flops += one.flops if one.duration_s is None else 0.0
    return dict(found)


def ranks_counted(trace: Trace) -> list[dict[str, KindCount]]:
    """Return what each rank does, by kind; of ranks that do the same, one."""
    return [counted(trace.program(rank)) for rank in range(1 if trace.alike else trace.ranks)]


def as_json(trace: Trace) -> dict[str, Any]:
    """Return the counts of a trace as plain values."""
    per_rank = ranks_counted(trace)
    return {
        "source": trace.source,
        "format": trace.what,
        "ranks": trace.ranks,
        "alike": trace.alike,
        "per_rank": [{kind: vars(count) for kind, count in one.items()} for one in per_rank],
        "groups": {name: list(ranks) for name, ranks in trace.groups.items()},
        "left_out": dict(trace.left_out),
        "notes": list(trace.notes),
    }


def kinds(per_rank: Iterable[dict[str, KindCount]]) -> list[str]:
    """Return all kinds that ranks have: computing and messages first, then collectives, by name."""
    found = {kind for one in per_rank for kind in one}
    first = [name for name in (*_NAMES.values(), WAIT) if name in found]
    return [*first, *sorted(found - set(first))]
