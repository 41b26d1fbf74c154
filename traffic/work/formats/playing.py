"""A trace's work as a fabric plays it: with durations, as much longer as the fabric is slower than the real one."""

from __future__ import annotations

from dataclasses import replace

from fabric.errors import ConfigError
from traffic.work.formats.lowering import lowered
from traffic.work.formats.trace import Trace
from traffic.work.graph import WorkGraph
from traffic.work.operations import CollectiveCall, Compute, Operation, Send
from traffic.work.schedules import known_algorithms


def playable(graph: WorkGraph) -> WorkGraph:
    """Return a graph in which collectives that no job can play are the messages that they consist of."""
    return lowered(graph, known_algorithms())


def work_of(trace: Trace, flops_per_s: float | None, time_scale: float) -> WorkGraph:
    """Return the graph of a trace with durations. ``time_scale``: multiplies all computing. Raises ConfigError if
    computing has only FLOPs and no ``flops_per_s``, and if nothing is sent."""
    graph = trace.graph()
    if flops_per_s is not None:
        graph = graph.timed(flops_per_s)
    untimed = total = 0
    sends = False
    for _, _, one in graph.all_operations():
        if isinstance(one, Compute) and one.duration_s is None:
            untimed, total = untimed + 1, total + int(one.flops)
        sends = (
            sends or isinstance(one, Send) or (isinstance(one, CollectiveCall) and len(graph.members(one.group)) > 1)
        )
    if untimed:
        what = f"{untimed:,} operations have {total:.3g} FLOP together and no time"
        raise ConfigError(trace.source, [f"{what}; say how fast a rank computes: --flops 1e14"])
    if not sends:
        none = f"none of its {graph.ranks:,} ranks sends anything, so there is nothing for a fabric to play"
        alone = "has one rank, which sends nothing to others; say --ranks N, if all do the same"
        raise ConfigError(trace.source, [alone if graph.ranks == 1 else none])
    graph = playable(graph)
    if time_scale == 1:
        return graph
    return replace(
        graph, operations=tuple(tuple(_slower(one, time_scale) for one in of_rank) for of_rank in graph.operations)
    )


def nothing_sent(trace: Trace) -> str | None:
    """Return that nothing of a trace is sent, however many ranks play it; None if something is, and of a trace that is
    only computing, all of which a job of kind ``work`` plays."""
    looked_at = range(1 if trace.alike else trace.ranks)
    if any(isinstance(one, Send | CollectiveCall) for rank in looked_at for one in trace.program(rank)):
        return None
    if not any(trace.program(rank) for rank in looked_at):
        return f"no rank does anything that can be played{'; see what is left out' if trace.left_out else ''}"
    if not trace.left_out:
        return None
    ranks = "its rank sends nothing" if trace.ranks == 1 else f"none of its {trace.ranks:,} ranks sends anything"
    return f"{ranks}, so there is nothing for a fabric to play; see what is left out"


def _slower(operation: Operation, time_scale: float) -> Operation:
    if isinstance(operation, Compute):
        return replace(operation, duration_s=(operation.duration_s or 0.0) * time_scale)
    return operation
