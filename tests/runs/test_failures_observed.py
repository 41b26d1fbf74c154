"""What the table ``failures`` says of random failures is what an observer at each target sees, to one sampling period;
in time that jumps, with programs, disks and links that are models. ``tests/virtual/test_failures_observed.py`` looks at
real ones."""

from __future__ import annotations

import random

import pytest

from fabric.failures.config import schedule_failures
from runs.phase_rows import carried_out_checks
from tests.runs.failing_world import FABRIC, PHASE_S, PROMPT_S, differences, draw_lines, played


def verify(seed: int) -> int:
    """Play a schedule; return of how many changes it told."""
    lines = draw_lines(random.Random(seed))
    rows, world = played(lines)
    if rows.empty:
        return 0
    config = [line.model_dump(exclude_defaults=True, by_alias=True) for line in lines]
    words = f"seed {seed}: {config}\n{rows.to_string()}"
    assert differences(rows, world) == [], words
    done = rows[rows["missed"] == ""]
    assert (done["done_s"] >= done["due_s"]).all(), words
    (check,) = carried_out_checks(schedule_failures(lines, FABRIC, 1), rows, PHASE_S)
    late = {number for number, line in enumerate(lines) if line.at >= PHASE_S}
    never = {int(cause) for causes in rows[rows["missed"] != ""]["causes"] for cause in causes.split(", ")}
    assert check.value <= len(late | never), f"{check.text}\n{words}"
    hit = {line.target[1].partition("/")[0] for line in lines if line.target[0] in ("process", "silent")}
    for row in done.to_dict("records"):  # Who does not answer delays no other.
        is_prompt = row["kind"] in ("link", "gpu") or (row["kind"] == "disk" and row["target"].split("/")[0] not in hit)
        assert not is_prompt or row["done_s"] - row["due_s"] < PROMPT_S, f"{row}\n{words}"
    return len(rows)


@pytest.mark.parametrize("ten", range(3))
def test_what_is_said_is_what_was_seen(ten: int) -> None:
    assert sum(verify(10 * ten + number) for number in range(10)) > 0


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_what_is_said_of_three_hundred_schedules_is_what_was_seen() -> None:
    changes = sum(verify(1000 + seed) for seed in range(300))
    print(f"300 schedules, {changes} changes: each as it was seen")
