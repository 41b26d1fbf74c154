"""A short graph over the same connections, which ranks play before a step is measured: TCP opens its windows in it."""

from __future__ import annotations

from dataclasses import replace

from traffic.collectives.elements import Dtype
from traffic.work.graph import RankWork, WorkGraph, graph_of
from traffic.work.operations import CollectiveCall, Receive, Send

MESSAGE_BYTES = 2**20
COLLECTIVE_BYTES = 4 * 2**20
"""At 200 Gbit/s, a connection's windows are open after a few hundred KiB."""


def warm_up_of(graph: WorkGraph, *, by_tag: bool = False) -> WorkGraph:
    """Return one message from each rank to each that it sends any, or one of each tag, and one call of each kind of
    each group, all short and at once."""
    works = [RankWork() for _ in range(graph.ranks)]
    longest: dict[tuple[int, int, int], int] = {}
    calls: dict[tuple[object, ...], CollectiveCall] = {}
    for rank, _, one in graph.all_operations():
        if isinstance(one, Send):
            key = (rank, one.peer, one.tag if by_tag else 0)
            longest[key] = max(one.size_bytes, longest.get(key, 0))
        elif isinstance(one, CollectiveCall) and rank == graph.members(one.group)[0]:
            calls.setdefault((one.group, one.collective, one.root, one.algorithm, one.dtype), one)
    for (source, target, tag), size_bytes in longest.items():
        length = min(size_bytes, MESSAGE_BYTES)
        works[source].add(Send(peer=target, size_bytes=length, tag=tag))
        works[target].add(Receive(peer=source, size_bytes=length, tag=tag))
    for call in calls.values():
        element_bytes = Dtype(call.dtype).size_bytes
        length = min(call.size_bytes, COLLECTIVE_BYTES // element_bytes * element_bytes)
        for member in graph.members(call.group):
            works[member].add(replace(call, size_bytes=length, after=(), after_start=(), stream="", sent_bytes=()))
    return graph_of(f"{graph.name}, to warm up", works, graph.groups)
