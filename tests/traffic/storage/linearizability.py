"""Are reads and writes of registers linearizable? A chunk is a register; every write has a value of its own. Pure.

With unique values the answer is quick (Gibbons and Korach, "Testing Shared Memories", SIAM Journal on Computing 26(4),
1997): a value's write and the reads that saw it must lie side by side in any order of the operations that explains what
was seen. So of two values one comes first, altogether. There is no such order if and only if, for some two values, an
operation of each ended before one of the other began, or if a value was read before it was written.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass

INITIAL = 0
"""The value of a register before its first write."""
MAYBE = math.inf
"""The end of a write that nobody answered: it may take effect at any time from its start, or never."""


@dataclass(frozen=True)
class Operation:
    """A read that saw ``value`` or a write of it, between two times of one clock."""

    register: Hashable
    is_write: bool
    value: int
    started_s: float
    ended_s: float


@dataclass(frozen=True)
class _Value:
    """When the first operation of a value ended, and when the last began."""

    value: int
    first_end_s: float
    last_start_s: float

    def must_precede(self, other: _Value) -> bool:
        return self.first_end_s < other.last_start_s


def violations(operations: Iterable[Operation]) -> list[str]:
    """Return a line for each register and pair of values that no order explains; none if all is linearizable."""
    by_register: defaultdict[Hashable, list[Operation]] = defaultdict(list)
    for operation in operations:
        by_register[operation.register].append(operation)
    return [f"{register}: {fault}" for register, of_it in by_register.items() for fault in _faults(of_it)]


def _faults(operations: list[Operation]) -> Iterator[str]:
    writes = {one.value: one for one in operations if one.is_write}
    assert len(writes) == sum(one.is_write for one in operations), "every write has a value of its own"
    writes[INITIAL] = Operation("", True, INITIAL, -math.inf, -math.inf)
    reads: defaultdict[int, list[Operation]] = defaultdict(list)
    for one in operations:
        if not one.is_write:
            reads[one.value].append(one)
    for value, seen in reads.items():
        if value not in writes:
            yield f"{value:#x} was read at {seen[0].ended_s:.6f} s and never written"
        elif (first := min(one.ended_s for one in seen)) < writes[value].started_s:
            yield f"{value:#x} was read by {first:.6f} s, before its write began at {writes[value].started_s:.6f} s"
    yield from _contradictions([_value(write, reads[value]) for value, write in writes.items()])


def _value(write: Operation, reads: list[Operation]) -> _Value:
    all_ = [write, *reads]
    return _Value(write.value, min(one.ended_s for one in all_), max(one.started_s for one in all_))


def _contradictions(values: list[_Value]) -> Iterator[str]:
    # A write that nobody answered and nobody saw has no end: it precedes nothing and contradicts nothing.
    values.sort(key=lambda value: value.first_end_s)
    for place, one in enumerate(values):
        for other in values[place + 1 :]:
            if not other.must_precede(one):
                break  # Nor must those that end later.
            if one.must_precede(other):
                yield (
                    f"{one.value:#x} was there by {one.first_end_s:.6f} s and still after {one.last_start_s:.6f} s; "
                    f"{other.value:#x} by {other.first_end_s:.6f} s and still after {other.last_start_s:.6f} s"
                )
