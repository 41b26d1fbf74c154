from __future__ import annotations

import functools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from .linearizability import INITIAL, MAYBE, Operation, violations


def write(value: int, start: float, end: float = MAYBE) -> Operation:
    return Operation("chunk 0", True, value, start, end)


def read(value: int, start: float, end: float) -> Operation:
    return Operation("chunk 0", False, value, start, end)


@pytest.mark.parametrize(
    "history",
    [
        [write(1, 0, 1), read(1, 2, 3)],
        [write(1, 0, 5), read(INITIAL, 1, 2), read(1, 3, 4)],
        [write(1, 0, 3), write(2, 1, 4), read(2, 5, 6)],
        [write(1, 0, 3), write(2, 1, 4), read(1, 5, 6)],
        [write(1, 0), read(INITIAL, 5, 6), read(1, 7, 8), read(1, 9, 10)],
        [write(1, 0), write(2, 5, 6), read(2, 7, 8)],
    ],
)
def test_histories_that_an_order_explains(history: list[Operation]) -> None:
    assert violations(history) == []


@pytest.mark.parametrize(
    ("history", "fault"),
    [
        ([write(1, 0, 1), read(INITIAL, 2, 3)], "chunk 0: 0x0 was there"),
        ([write(1, 0, 5), read(1, 1, 2), read(INITIAL, 3, 4)], "still after 3.000000 s"),
        (
            [write(1, 0, 1), write(2, 2, 3), read(1, 4, 5)],
            "0x1 was there by 1.000000 s and still after 4.000000 s; 0x2",
        ),
        ([write(1, 5, 6), read(1, 1, 2)], "read by 2.000000 s, before its write began"),
        ([read(9, 1, 2)], "0x9 was read at 2.000000 s and never written"),
        # A write applied twice: seen, overwritten, seen again.
        ([write(1, 0, 9), write(2, 2, 3), read(1, 1, 1.5), read(2, 4, 5), read(1, 6, 7)], "0x1 was there"),
        ([write(1, 0), read(1, 1, 2), read(INITIAL, 3, 4)], "0x0 was there"),
    ],
)
def test_histories_that_no_order_explains(history: list[Operation], fault: str) -> None:
    found = violations(history)
    assert found
    assert fault in found[0]


def test_registers_are_apart() -> None:
    other = Operation("chunk 1", False, INITIAL, 2, 3)
    assert violations([write(1, 0, 1), other]) == []


def _explained(history: list[Operation]) -> bool:
    """The same by trying every order: pick any operation that none of the others precedes (Wing and Gong)."""
    full = frozenset(range(len(history)))

    @functools.cache
    def can_go_on(left: frozenset[int], value: int) -> bool:
        if all(history[one].ended_s == MAYBE for one in left):
            return True
        for one in left:
            if any(history[other].ended_s < history[one].started_s for other in left):
                continue
            operation = history[one]
            if operation.is_write and can_go_on(left - {one}, operation.value):
                return True
            if not operation.is_write and operation.value == value and can_go_on(left - {one}, value):
                return True
        return False

    return can_go_on(full, INITIAL)


@st.composite
def histories(draw: st.DrawFn) -> list[Operation]:
    values = range(1, draw(st.integers(1, 4)) + 1)
    found = []
    for value in values:
        start = draw(st.integers(0, 12))
        end = MAYBE if draw(st.integers(0, 4)) == 0 else start + draw(st.integers(0, 6))
        found.append(write(value, start, end))
    for _ in range(draw(st.integers(0, 5))):
        start = draw(st.integers(0, 14))
        found.append(read(draw(st.integers(0, max(values))), start, start + draw(st.integers(0, 6))))
    return found


@settings(max_examples=200)
@given(histories())
def test_the_quick_answer_is_that_of_trying_every_order(history: list[Operation]) -> None:
    assert (violations(history) == []) == _explained(history)
