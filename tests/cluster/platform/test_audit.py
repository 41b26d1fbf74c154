"""The audit finds what must not be, and nothing where all is well."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.cluster.platform.audit import audit, printed_steps
from tests.cluster.platform.test_account import row

DAY = [
    row(0, "submitted", 1, 1, why="low"),
    row(1, "asked", 1, 1, "a b"),
    row(1, "started", 1, 1, "a b"),
    row(9, "saved", 1, 1, why="step 4, complete 3.2 s before"),
    row(9, "submitted", 2, 2, why="high"),
    row(9, "suspend", 1, 1, why="high comes first"),
    row(10, "saved", 1, 1, why="step 6"),
    row(10, "left", 1, 1, why="code 75, step 6"),
    row(11, "asked", 2, 2, "b"),
    row(12, "requeued", 2, 2, why="b: no answer within 5 s"),
    row(13, "asked", 2, 2, "a"),
    row(13, "started", 2, 2, "a"),
    row(14, "finished", 2, 2, why="code 0, step None"),
    row(15, "asked", 1, 3, "a b"),
    row(15, "started", 1, 3, "a b"),
    row(20, "finished", 1, 3, why="code 0, step 6"),
]
STEPS = {1: [1, 2, 3, 4, 5, 6], 2: [1, 2], 3: [7, 8]}


def without(*places: int) -> list[dict[str, Any]]:
    return [event for place, event in enumerate(DAY) if place not in places]


def test_a_sound_day_has_no_fault() -> None:
    assert audit(DAY, STEPS) == []
    ended = [row(0, "submitted", 1, 1, why="x"), row(1, "cancel", 1, 1), row(1, "left", 1, 1)]
    assert audit(ended) == []


def test_what_must_not_be_is_named() -> None:
    for events, steps, words in (
        (without(15), STEPS, "job 1 (low): has not ended; its last event is started"),
        (without(7), STEPS, "a: life 2 got it at 113.000 s, and life 1 has it"),
        (without(10), STEPS, "life 2: started on a, which were not asked"),
        (DAY, {**STEPS, 3: [8, 9]}, "life 3: began with step 8, and only 6 were made"),
        (DAY, {**STEPS, 3: [5, 6, 7, 8]}, "life 3: began with step 5, and step 6 was saved"),
        (DAY, {**STEPS, 1: [1, 2, 2, 3, 4, 5, 6]}, "life 1: its steps are not in order, each once"),
        (without(5, 6, 7, 13, 14, 15), STEPS, "job 1 (low): has not ended; its last event is started"),
    ):
        assert any(words in fault for fault in audit(events, steps)), (words, audit(events, steps))


def test_steps_are_read_from_the_logs_of_rank_0(tmp_path: Path) -> None:
    for node, name, text in (("a", "1-0", "1\n2\n"), ("b", "1-1", "7\n"), ("b", "3-0", "3\nTraceback\n4\n")):
        (tmp_path / node / name).mkdir(parents=True)
        (tmp_path / node / name / "log").write_text(text)
    assert printed_steps(tmp_path) == {1: [1, 2], 3: [3, 4]}
