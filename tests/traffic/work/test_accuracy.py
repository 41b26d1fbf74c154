"""Steps to an accuracy, as users say them."""

from __future__ import annotations

from pathlib import Path

import pytest

from traffic.work.accuracy import steps_to_accuracy

SETTING = {"batch": 256.0, "tokens": 0.0, "ranks": 8.0, "staleness": 4.0}


def test_a_number_and_an_expression_are_functions_of_what_a_step_has() -> None:
    assert steps_to_accuracy(12_000)(SETTING) == 12_000
    assert steps_to_accuracy("3e4 / sqrt(batch) * (1 + staleness / 8)")(SETTING) == 30_000 / 16 * 1.5
    assert steps_to_accuracy("max(2 ** 3, -ranks + ceil(7.2))")(SETTING) == 8
    assert steps_to_accuracy("batch * staleness").uses == {"batch", "staleness"}
    assert steps_to_accuracy("12e3").uses == frozenset()


@pytest.mark.parametrize(
    ("said", "fault"),
    [
        ("batch +", "'batch +' is not an expression; write one of batch, tokens, ranks, staleness and numbers"),
        ("epochs * 2", "epochs: steps do not depend on that; use batch, tokens"),
        ("__import__('os')", "is not allowed in an expression; use numbers, batch"),
        ("batch.real", "'batch.real': is not allowed in an expression"),
        ("True", "'True': is not allowed"),
        ("1" + "+1" * 600, "has 1201 characters, and 1000 are the most; write a table into a file"),
        ("nowhere.csv", "nowhere.csv: cannot be read"),
    ],
)
def test_what_is_no_function_is_refused(said: str, fault: str) -> None:
    with pytest.raises(ValueError, match=r"(?s).+") as refused:
        steps_to_accuracy(said)
    assert fault in str(refused.value)


@pytest.mark.parametrize(
    ("said", "fault"),
    [
        ("4 - staleness", "4 - staleness: gives 0 steps at staleness 4; give more than 0"),
        ("1 / (staleness - 4)", "cannot be computed (float division by zero)"),
        ("9 ** 9 ** 9", "cannot be computed"),
        ("log(0 - batch)", "math domain error"),
    ],
)
def test_steps_that_are_no_positive_number_are_named(said: str, fault: str) -> None:
    with pytest.raises(ValueError, match=r"(?s).+") as refused:
        steps_to_accuracy(said)(SETTING)
    assert fault in str(refused.value)


def test_a_table_is_read_between_its_lines(tmp_path: Path) -> None:
    path = tmp_path / "steps.csv"
    path.write_text("staleness, steps\n0,1000\n8,1400\n\n16,3000\n")
    steps = steps_to_accuracy(str(path))
    assert [steps({**SETTING, "staleness": at}) for at in (0, 4, 8, 12, 16)] == [1000, 1200, 1400, 2200, 3000]
    with pytest.raises(ValueError, match="staleness is 17, and the table has 0 to 16; add a line"):
        steps({**SETTING, "staleness": 17})
    for text, fault in (
        ("epochs,steps\n1,2\n", "begins with 'epochs,steps'; begin with one of batch"),
        ("", "begins with ''"),
        ("batch,steps\n1,x\n", "a line is not two numbers"),
        ("batch,steps\n1,2,3\n", "a line is not two numbers"),
        ("batch,steps\n2,5\n1,4\n", "batch of the lines must grow from line to line"),
        ("batch,steps\n", "must grow"),
    ):
        path.write_text(text)
        with pytest.raises(ValueError, match=fault):
            steps_to_accuracy(str(path))
