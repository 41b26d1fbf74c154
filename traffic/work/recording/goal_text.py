"""A recorded graph as GOAL text."""

from __future__ import annotations

from collections.abc import Iterator

from traffic.work.graph import WorkGraph
from traffic.work.operations import Compute, Operation, Receive, Send


def goal_lines(graph: WorkGraph) -> Iterator[str]:
    """Yield the lines of a GOAL file: each thread's computing is on a cpu of its own. Raises TypeError for operations
    other than computing, sends and receives."""
    yield f"num_ranks {graph.ranks}"
    for rank, operations in enumerate(graph.operations):
        yield f"rank {rank} {{"
        cpus: dict[str, int] = {}
        for place, one in enumerate(operations):
            yield f"l{place}: {_text(one, cpus)}"
            yield from (f"l{place} requires l{other}" for other in one.after)
            yield from (f"l{place} irequires l{other}" for other in one.after_start)
        yield "}"


def _text(one: Operation, cpus: dict[str, int]) -> str:
    if isinstance(one, Compute):
        return f"calc {round((one.duration_s or 0) * 1e9)} cpu {cpus.setdefault(one.stream, len(cpus))}"
    if isinstance(one, Send):
        return f"send {one.size_bytes}b to {one.peer} tag {one.tag}"
    if isinstance(one, Receive):
        return f"recv {one.size_bytes}b from {one.peer} tag {one.tag}"
    raise TypeError(f"{type(one).__name__}: GOAL has computing, sends and receives")
