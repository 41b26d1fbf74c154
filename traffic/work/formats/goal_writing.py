"""GOAL, the text of LogGOPSim and ATLAHS. Writer.

What GOAL has no word for stands in a comment in front of its operation, so that :mod:`~traffic.work.formats.goal` reads
the same graph back: names, streams, FLOPs, measured times. It has no collectives: lower them first
(:mod:`~traffic.work.formats.lowering`). It has no files either.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from fabric.errors import ConfigError
from traffic.work.formats.goal import ANNOTATION, NANOSECOND_S
from traffic.work.graph import WorkGraph
from traffic.work.operations import Compute, Operation, Receive, Send


def write_goal(graph: WorkGraph) -> str:
    """Return a graph as the text of a GOAL file. Raises ConfigError if it has what GOAL cannot say."""
    return "".join(f"{line}\n" for line in _lines(graph))


def _lines(graph: WorkGraph) -> Iterator[str]:
    yield f"{ANNOTATION} {json.dumps({'graph': graph.name})}"
    yield f"num_ranks {graph.ranks}"
    for rank, operations in enumerate(graph.operations):
        yield f"\nrank {rank} {{"
        cpus = _numbered(operations)
        for place, one in enumerate(operations):
            text, said = _as_goal(graph, rank, place, cpus)
            if said:
                yield f"{ANNOTATION} {json.dumps(said)}"
            yield f"l{place}: {text}"
            yield from (f"l{place} requires l{other}" for other in one.after)
            yield from (f"l{place} irequires l{other}" for other in one.after_start)
        yield "}"


def _numbered(operations: tuple[Operation, ...]) -> Mapping[str, int]:
    """Return the number of the cpu of each stream of computing."""
    streams = dict.fromkeys(one.stream for one in operations if isinstance(one, Compute))
    numbered = {stream: int(stream.removeprefix("cpu ")) for stream in streams if _is_numbered(stream, "cpu ")}
    free = max(numbered.values(), default=-1) + 1
    others = [stream for stream in streams if stream not in numbered]
    return {**numbered, **{stream: free + number for number, stream in enumerate(others)}}


def _is_numbered(stream: str, prefix: str) -> bool:
    number = stream.removeprefix(prefix)
    return stream.startswith(prefix) and number.isascii() and number.isdigit() and str(int(number)) == number


def _as_goal(graph: WorkGraph, rank: int, place: int, cpus: Mapping[str, int]) -> tuple[str, dict[str, Any]]:
    """Return an operation's text, and what a comment says of it."""
    one = graph.operations[rank][place]
    said: dict[str, Any] = {}
    if one.name:
        said["name"] = one.name
    if one.measured_s is not None:
        said["measured_s"] = one.measured_s
    if isinstance(one, Compute):
        nanoseconds = round((one.duration_s or 0.0) / NANOSECOND_S)
        if one.duration_s is None or nanoseconds / round(1 / NANOSECOND_S) != one.duration_s:
            said["duration_s"] = one.duration_s
        if one.flops:
            said["flops"] = one.flops
        text, stream = f"calc {nanoseconds} cpu {cpus[one.stream]}", f"cpu {cpus[one.stream]}"
    elif isinstance(one, Send):
        nic = one.stream if _is_numbered(one.stream, "nic ") else "nic 0"
        text, stream = f"send {one.size_bytes}b to {one.peer} tag {one.tag} {nic}", nic
    elif isinstance(one, Receive):
        text, stream = f"recv {one.size_bytes}b from {one.peer} tag {one.tag}", ""
    else:
        what = f"rank {rank}, operation {place}: {type(one).__name__} {one.name}".rstrip()
        raise ConfigError(graph.name, [f"{what}: GOAL has only calc, send and recv; write Chakra instead"])
    if one.stream != stream:
        said["stream"] = one.stream
    return text, said
