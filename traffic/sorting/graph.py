"""The graph of a sort: what each node reads, computes, exchanges and writes. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from traffic.work.graph import ALL_RANKS, RankWork, WorkGraph, graph_of
from traffic.work.operations import CollectiveCall, Compute, FileRead, FileWrite

READ, PARTITION, PART, FETCH, SORT, OUTPUT, EXCHANGE, MEET = (
    "read", "partition", "part", "fetch", "sort", "output", "exchange", "meet",
)  # fmt: skip
"""What an operation is, as its name begins."""


class Exchange(str, Enum):
    """How partitions come from the nodes that made them to those that sort them: through files of the storage, as
    smallpond has it, or from node to node."""

    STORAGE = "storage"
    NODES = "nodes"


@dataclass(frozen=True)
class SortShape:
    """How much is sorted: each of ``ranks`` nodes has ``tasks`` tasks in the first phase, each of which adds
    ``part_bytes`` to each of all partitions, of which each node sorts ``partitions``.

    ``at_once``: reads and writes of files that a node has under way at once; ``partition_s`` and ``sort_s``: the time
    of computing of a task, and of a partition.
    """

    ranks: int
    tasks: int
    partitions: int
    part_bytes: int
    exchange: Exchange = Exchange.STORAGE
    at_once: int = 8
    partition_s: float = 0.0
    sort_s: float = 0.0

    @property
    def task_bytes(self) -> int:
        """What a task reads."""
        return self.ranks * self.partitions * self.part_bytes

    @property
    def node_bytes(self) -> int:
        """What of the data is a node's."""
        return self.tasks * self.task_bytes

    @property
    def partition_bytes(self) -> int:
        """What a partition has."""
        return self.ranks * self.tasks * self.part_bytes

    @property
    def passes(self) -> int:
        """How often all data is read from storage, and as often written to it."""
        return 2 if self.exchange is Exchange.STORAGE else 1


def sort_graph(shape: SortShape) -> WorkGraph:
    """Return the graph of a sort."""
    works = [RankWork() for _ in range(shape.ranks)]
    for rank, work in enumerate(works):
        taken_apart = _first_phase(shape, rank, work)
        _second_phase(shape, rank, work, taken_apart)
    return graph_of("sort", works)


def _first_phase(shape: SortShape, rank: int, work: RankWork) -> tuple[int, ...]:
    """Write how a node takes its input apart; return the places of what has ended once all nodes' partitions are
    there."""
    ends: list[int] = []
    for task in range(shape.tasks):
        offset = task * shape.task_bytes
        read = work.add(
            FileRead(
                path=f"/input/{rank}",
                offset_bytes=offset,
                size_bytes=shape.task_bytes,
                stream="read",
                name=f"{READ} {task}",
            )
        )
        computed = work.add(
            Compute(duration_s=shape.partition_s, after=(read,), stream="compute", name=f"{PARTITION} {task}")
        )
        if shape.exchange is Exchange.NODES:
            ends.append(
                work.add(
                    CollectiveCall(
                        collective="all_to_all",
                        size_bytes=shape.task_bytes,
                        group=ALL_RANKS,
                        after=(computed,),
                        name=f"{EXCHANGE} {task}",
                    )
                )
            )
        else:
            ends += _written_parts(shape, rank, work, task, computed)
    if shape.exchange is Exchange.NODES:
        return tuple(ends)
    met = CollectiveCall(collective="barrier", size_bytes=0, group=ALL_RANKS, after=tuple(ends), name=MEET)
    return (work.add(met),)


def _written_parts(shape: SortShape, rank: int, work: RankWork, task: int, computed: int) -> list[int]:
    """Write that a task adds its part to each partition, those of the next node first: else all nodes would write to
    one node's at a time."""
    found = []
    for place in range(shape.ranks * shape.partitions):
        partition = (rank * shape.partitions + place) % (shape.ranks * shape.partitions)
        found.append(
            work.add(
                FileWrite(
                    path=f"/parts/{rank}/{partition}",
                    offset_bytes=task * shape.part_bytes,
                    size_bytes=shape.part_bytes,
                    after=(computed,),
                    stream=f"write {place % shape.at_once}",
                    name=f"{PART} {task}.{partition}",
                )
            )
        )
    return found


def _second_phase(shape: SortShape, rank: int, work: RankWork, taken_apart: tuple[int, ...]) -> None:
    """Write how a node sorts its partitions."""
    for number in range(shape.partitions):
        partition = rank * shape.partitions + number
        there = taken_apart
        if shape.exchange is Exchange.STORAGE:
            there = tuple(
                work.add(
                    FileRead(
                        path=f"/parts/{(rank + place) % shape.ranks}/{partition}",
                        offset_bytes=0,
                        size_bytes=shape.tasks * shape.part_bytes,
                        after=taken_apart,
                        stream=f"fetch {place % shape.at_once}",
                        name=f"{FETCH} {number}.{place}",
                    )
                )
                for place in range(shape.ranks)
            )
        is_sorted = work.add(Compute(duration_s=shape.sort_s, after=there, stream="compute", name=f"{SORT} {number}"))
        work.add(
            FileWrite(
                path=f"/output/{rank}/{number}",
                offset_bytes=0,
                size_bytes=shape.partition_bytes,
                after=(is_sorted,),
                stream=f"write {number % shape.at_once}",
                name=f"{OUTPUT} {number}",
            )
        )
