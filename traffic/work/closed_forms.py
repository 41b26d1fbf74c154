"""What a graph's operations send, in bytes, and how long that takes at least on given links: closed forms."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from traffic.collectives.listing import collective_named
from traffic.work.graph import WorkGraph
from traffic.work.operation_names import word_of
from traffic.work.operations import CollectiveCall, Operation, Send

Flow = tuple[int, int, float]
"""From place, to place, bytes."""
BARRIER = "barrier"
ALL_TO_ALL_V = "all_to_all_v"


def kind_of(operation: Operation) -> str:
    """Return what an operation is for: the first word of its name, such as ``gradients`` or ``pipeline``."""
    return word_of(operation.name)


@lru_cache(maxsize=1024)
def _flows_of(collective: str, algorithm: str | None, ranks: int) -> tuple[Flow, ...]:
    return tuple(collective_named(collective).algorithm(algorithm).flows(ranks))


def collective_flows(calls: Sequence[CollectiveCall]) -> tuple[Flow, ...]:
    """Return what goes between places of a group. ``calls``: that of each place; all are one collective."""
    if not calls or calls[0].collective == BARRIER:
        return ()
    first = calls[0]
    if first.collective == ALL_TO_ALL_V:
        return tuple(
            (source, target, float(size))
            for source, call in enumerate(calls)
            for target, size in enumerate(call.sent_bytes)
            if source != target
        )
    flows = _flows_of(first.collective, first.algorithm, len(calls))
    return tuple((source, target, share * first.size_bytes) for source, target, share in flows)


def sent_bytes(graph: WorkGraph) -> dict[str, list[float]]:
    """Return what each rank sends to others, by kind. What goes from a rank to itself does not count."""
    found: dict[str, list[float]] = defaultdict(lambda: [0.0] * graph.ranks)
    calls: dict[tuple[str, int], dict[int, CollectiveCall]] = defaultdict(dict)
    for rank, operations in enumerate(graph.operations):
        number: dict[str, int] = defaultdict(int)
        for operation in operations:
            if isinstance(operation, Send):
                found[kind_of(operation)][rank] += operation.size_bytes
            elif isinstance(operation, CollectiveCall):
                calls[operation.group, number[operation.group]][rank] = operation
                number[operation.group] += 1
    for (group, _), of_rank in calls.items():
        members = graph.members(group)
        kind = kind_of(of_rank[members[0]])
        for source, _, size in collective_flows([of_rank[rank] for rank in members]):
            found[kind][members[source]] += size
    return dict(found)


def counted(graph: WorkGraph, rank: int) -> dict[tuple[str, str], tuple[int, int]]:
    """Return (how many, bytes by nccl-tests' convention) of a rank's communications by (kind, what it is)."""
    found: dict[tuple[str, str], tuple[int, int]] = {}
    for operation in graph.operations[rank]:
        if isinstance(operation, Send | CollectiveCall):
            what = operation.collective if isinstance(operation, CollectiveCall) else "send"
            count, size = found.get((kind_of(operation), what), (0, 0))
            found[kind_of(operation), what] = (count + 1, size + operation.size_bytes)
    return found


@dataclass(frozen=True)
class Links:
    """What carries data, in bytes per second each way: between GPUs of a node each GPU's ``gpu_bytes_per_s``, between
    nodes each node's ``node_bytes_per_s``, which its GPUs share. Nothing else limits, and there is no latency."""

    gpus_per_node: int
    gpu_bytes_per_s: float
    node_bytes_per_s: float

    def time_s(self, flows: Sequence[Flow], ranks: Sequence[int]) -> float:
        """Return how long flows between places of ``ranks`` take at least: the busiest link's time."""
        loads: dict[tuple[str, int, bool], float] = defaultdict(float)
        for source, target, size in flows:
            ends = ranks[source], ranks[target]
            nodes = tuple(rank // self.gpus_per_node for rank in ends)
            what, places = ("gpu", ends) if nodes[0] == nodes[1] else ("node", nodes)
            loads[what, places[0], True] += size
            loads[what, places[1], False] += size
        speeds = {"gpu": self.gpu_bytes_per_s, "node": self.node_bytes_per_s}
        return max((load / speeds[what] for (what, _, _), load in loads.items()), default=0.0)

    def __call__(self, operations: Sequence[Operation], ranks: Sequence[int]) -> float:
        """Return the duration of a communication that has the links to itself, for
        :func:`traffic.work.list_schedule.list_schedule`. Files take no time."""
        if isinstance(operations[0], Send):
            return self.time_s([(0, 1, float(operations[0].size_bytes))], ranks)
        return self.time_s(collective_flows([one for one in operations if isinstance(one, CollectiveCall)]), ranks)
