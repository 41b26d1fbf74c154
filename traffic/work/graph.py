"""A graph of work: operations of each rank, and the groups whose ranks call collectives together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from traffic.work.operations import Compute, Operation

ALL_RANKS = "all"
"""The group that every graph has."""


@dataclass(frozen=True)
class WorkGraph:
    """Work of ``len(operations)`` ranks: one step, which a job repeats.

    ``operations[rank][place]``: in the order in which the rank issues them; operations name each other by place.
    ``groups``: ranks by the name of the group, in the order of the places of its collectives.
    """

    name: str
    operations: tuple[tuple[Operation, ...], ...]
    groups: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    @property
    def ranks(self) -> int:
        """How many ranks there are."""
        return len(self.operations)

    def members(self, group: str) -> tuple[int, ...]:
        """Return the ranks of a group. Raises KeyError if there is none of the name."""
        return tuple(range(self.ranks)) if group == ALL_RANKS and group not in self.groups else self.groups[group]

    def all_operations(self) -> Iterator[tuple[int, int, Operation]]:
        """Yield (rank, place, operation)."""
        for rank, operations in enumerate(self.operations):
            for place, operation in enumerate(operations):
                yield rank, place, operation

    def timed(self, flops_per_s: float) -> WorkGraph:
        """Return the same graph with a duration for all computing that has only FLOPs; what has neither has none then,
        too."""
        return replace(
            self, operations=tuple(tuple(_timed(one, flops_per_s) for one in ops) for ops in self.operations)
        )

    def repeated(self, steps: int) -> WorkGraph:
        """Return so many steps in a row: a rank begins one once its own part of the step before has ended, whatever
        others do."""
        return replace(self, operations=tuple(tuple(_in_a_row(ops, steps)) for ops in self.operations))


def _in_a_row(operations: Sequence[Operation], steps: int) -> Iterator[Operation]:
    # Who waits for the start of an operation only may end before it: that one still holds the next step back.
    awaited = {place for one in operations for place in one.after}
    last = tuple(place for place in range(len(operations)) if place not in awaited)
    for step in range(steps):
        first = step * len(operations)
        before = tuple(first - len(operations) + place for place in last) if step else ()
        for one in operations:
            is_first = not one.after and not one.after_start
            after = before if is_first else tuple(first + place for place in one.after)
            yield replace(one, after=after, after_start=tuple(first + place for place in one.after_start))


def _timed(operation: Operation, flops_per_s: float) -> Operation:
    if isinstance(operation, Compute) and operation.duration_s is None and operation.flops:
        return replace(operation, duration_s=operation.flops / flops_per_s)
    return operation


class RankWork:
    """Makes one rank's list: each :meth:`add` returns the place that others wait for."""

    def __init__(self) -> None:
        self.operations: list[Operation] = []

    def add(self, operation: Operation) -> int:
        """Add an operation behind the others and return its place."""
        self.operations.append(operation)
        return len(self.operations) - 1


def graph_of(name: str, works: Sequence[RankWork], groups: Mapping[str, tuple[int, ...]] | None = None) -> WorkGraph:
    """Return the graph of what was made for each rank."""
    return WorkGraph(name, tuple(tuple(work.operations) for work in works), dict(groups or {}))
