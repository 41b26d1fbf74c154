"""An experiment's tables over several runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import cast

import pytest

from app.sweeps.merging import has_numbers, merged_cell, merged_tables
from fabric.records.cells import Bound, Cell, quantity
from fabric.records.summary_table import SummaryTable, cell_words


def q(form: str, *values: float | None) -> list[Cell]:
    return [quantity(value, form) for value in values]


def least(form: str, *values: float) -> list[Cell]:
    """Those below zero are the least that is known."""
    return [replace(quantity(abs(value), form), bound=Bound.AT_LEAST if value < 0 else Bound.NONE) for value in values]


def pairs(first: list[Cell], words: str, second: list[Cell]) -> list[Cell]:
    return [cast(Cell, (a, words, b)) for a, b in zip(first, second, strict=True)]


CELLS: dict[str, tuple[Sequence[Cell], str]] = {
    "the same": (q(".2f x", 1, 1, 1), "1.00 x"),
    "with a unit": (q(".1f MB/s", 5e5, 7e5, 6e5), "0.6 MB/s [0.5, 0.7]"),
    "in several units": (q("time", 0.9, 1.2, 1.3), "1.2 s [0.9, 1.3]"),
    "percent": (q(".0%", 0.97, 0.98, 0.96), "97% [96%, 98%]"),
    "the same as far as is shown": (q(".0%", 0.971, 0.972, 0.973), "97%"),
    "two numbers": (
        pairs(q(".0f MB/s", 5e6, 5e6, 5e6), ", p99 ", q("time", 0.02, 0.01, 1.0)),
        "5 MB/s, p99 20 ms [10, 1000]",
    ),
    "negative": (q("+.1%", -0.015, 0.005, -0.005), "-0.5% [-1.5%, +0.5%]"),
    "thousands": (q(",.0f", 1000, 3000, 2000), "2,000 [1,000, 3,000]"),
    "at least, of a minority": (least("time", 8, -10, 9), "9 s [8, 10]"),
    "at least, of most": (least("time", 8, -10, -11.5), "> 10 s [8, 11.5]"),
    "at least, in the middle": (least("time", 8, -10.1, 16.5), "> 10.1 s [8, 16.5]"),
    "at least, in all": (least(".1f x", -3.1, -3.3, -3.2), "> 3.2 x [3.1, 3.3]"),
    "words": (["z0l00:6", "z0l01:6", "z0l00:6"], "z0l00:6 or z0l01:6"),
    "a number or words": (["never", *q("time", 1, 1)], "never or 1 s"),
    "different units": ([*q(".0f MB/s", 5e6), *q("time", 1, 1)], "5 MB/s or 1 s"),
    "a number that a run lacks": (q("time", 1.2e-3, None, 1.3e-3, 1.4e-3), "1.3 ms [1.2, 1.4]"),
    "nothing in any": (q("time", None, None), "-"),
    "a count with its unit": (q(".0f steps", 3, 5, 4), "4 steps [3, 5]"),
    "a part of others": (pairs(q(".0f", 3, 2, 3), " of ", q(".0f", 4, 4, 4)), "3 [2, 3] of 4"),
    "one number in some, two in others": (
        [*q("time", 1), *pairs(q("time", 1), ", ", q("time", 2))], "1 s or 1 s, 2 s"
    ),
    "dates": (["2026-11-28", "2026-11-29"], "2026-11-28 or 2026-11-29"),
}  # fmt: skip


@pytest.mark.parametrize(("cells", "merged"), CELLS.values(), ids=list(CELLS))
def test_a_cell_is_a_median_with_its_interval(cells: Sequence[Cell], merged: str) -> None:
    assert cell_words(merged_cell(cells)) == merged


def test_at_most_is_known_if_the_median_stays_however_small_it_is() -> None:
    cells = [replace(one, bound=Bound.AT_MOST) for one in (quantity(1.0, "time"), quantity(3.0, "time"))]
    assert cell_words(merged_cell([cells[0], quantity(2.0, "time"), quantity(3.0, "time")])) == "2 s [1, 3]"
    assert cell_words(merged_cell([quantity(1.0, "time"), quantity(2.0, "time"), cells[1]])) == "< 2 s [1, 3]"


TYPED: dict[str, tuple[list[Cell], Cell]] = {
    "a number, missing in a run": ([3, None, 3], 3),
    "a fraction": ([0.25, 0.25], 0.25),
    "a boolean, missing in a run": ([None, True, True], True),
    "one and true are not the same": ([1, True], "1 or True"),
    "booleans that differ": ([True, False, True], "True or False"),
    "numbers that differ, one missing": ([1, None, 3, 2], "2 [1, 3]"),
    "small numbers": ([1e-5, 3e-5, 2e-5], "2e-05 [1e-05, 3e-05]"),
    "the same, whole or not": ([1, 1.0], 1.0),
    "missing in all": ([None, None], None),
}


@pytest.mark.parametrize(("cells", "merged"), TYPED.values(), ids=list(TYPED))
def test_a_cell_keeps_its_type(cells: list[Cell], merged: Cell) -> None:
    found = cell_words(merged_cell(cells))
    assert found == merged
    assert type(found) is type(merged)


def test_a_table_says_that_some_runs_lack_a_cell() -> None:
    runs = [{"tables": [table(["alone", cell])]} for cell in (True, None)]
    (merged,) = merged_tables(runs)
    assert merged.words == [["alone", True]]
    assert merged.note_words == "as fio's; a cell that some runs lack is of those that have it"


@pytest.mark.parametrize("behind", [["port", "z0l00"], []], ids=["behind a text", "in the first column"])
@pytest.mark.parametrize("missing", ["-", None], ids=["a dash", "nothing"])
def test_a_row_that_lacks_a_number_in_one_run_stays_one_row(behind: list[str], missing: Cell) -> None:
    cells = [*q("time", 1.2e-3, 1.3e-3), missing, *q("time", 1.4e-3, 1.5e-3, 1.6e-3)]
    columns = ["phase", *behind[:1], "took", "read"]
    rows = [["lanes", *behind[1:], cell, "5 MB/s"] for cell in cells]
    runs = [{"tables": [SummaryTable("T", columns, [row]).as_json()]} for row in rows]
    (merged,) = merged_tables(runs)
    assert merged.words == [["lanes", *behind[1:], "1.4 ms [1.2, 1.6]", "5 MB/s"]]
    assert merged.note_words == "a cell that some runs lack is of those that have it"


def test_a_dash_among_texts_is_a_part_of_a_rows_name() -> None:
    rows: list[list[Cell]] = [["alone", "-", s(1)], ["alone", "z0l00", s(3)]]
    runs = [{"tables": [table(*order)]} for order in (rows, rows[::-1])]
    assert merged_tables(runs)[0].rows == rows


def noted(*note: str) -> dict[str, object]:
    return {"tables": [SummaryTable("Storage", ["phase", "read"], [["alone", 1]], note).as_json()]}


def test_only_what_notes_of_all_runs_say_stays() -> None:
    runs = [noted("by DSCP; with lanes", f"port {port}", "as fio's") for port in ("a", "b")]
    assert merged_tables(runs)[0].notes == ("by DSCP; with lanes", "as fio's")
    assert merged_tables([runs[0], noted()])[0].notes == ()
    assert merged_tables([noted("by DSCP; port a"), noted("by DSCP; port b")])[0].notes == ()


def test_a_note_of_before_parts_were_kept_is_one() -> None:
    before = {"tables": [{**table(["alone", 1]), "note": "by DSCP; as fio's"}]}
    assert merged_tables([before, before])[0].notes == ("by DSCP; as fio's",)


def test_a_number_is_no_part_of_a_rows_name() -> None:
    runs = [{"tables": [table(["alone", value])]} for value in (1, 3, 2)]
    assert merged_tables(runs)[0].words == [["alone", "2 [1, 3]"]]


def table(*rows: Sequence[Cell]) -> dict[str, object]:
    columns = ["phase", "port", "read"] if rows and len(rows[0]) > 2 else ["phase", "read"]
    return SummaryTable("Storage", columns, rows, "as fio's").as_json()


def s(value: float) -> Cell:
    return quantity(value, ".0f s")


def test_tables_are_merged_cell_by_cell() -> None:
    runs = [{"tables": [table(["alone", s(value)])]} for value in (1, 3, 2)]
    (merged,) = merged_tables(runs)
    assert (merged.words, merged.notes) == ([["alone", "2 s [1, 3]"]], ("as fio's",))


def test_rows_are_the_same_by_their_names_wherever_they_stand() -> None:
    alone = ["alone", "z0l00:6", s(1)]
    runs = [
        {"tables": [table(alone, ["", "z0l01:6", s(2)])]},
        {"tables": [table(["alone", "z0l01:6", s(4)], ["", "z0l00:6", s(3)])]},
        {"tables": [table(["alone", "z0l00:6", s(5)])]},
    ]
    (merged,) = merged_tables(runs)
    assert merged.words == [["alone", "z0l00:6", "3 s [1, 5]"], ["(2 of 3 runs)", "z0l01:6", "3 s [2, 4]"]]


def test_texts_that_rows_do_not_need_to_be_told_apart_are_no_part_of_their_names() -> None:
    runs = [{"tables": [table(["alone", f"rank {rank} of z0h001", s(rank)])]} for rank in (3, 5)]
    assert merged_tables(runs)[0].words == [["alone", "rank 3 of z0h001 or rank 5 of z0h001", "4 s [3, 5]"]]


def test_rows_of_one_name_are_the_same_by_their_order() -> None:
    runs = [{"tables": [table(["alone", s(1)], ["alone", s(value)])]} for value in (2, 4)]
    assert merged_tables(runs)[0].words == [["alone", "1 s"], ["alone", "3 s [2, 4]"]]


def test_a_table_of_other_columns_stands_by_itself() -> None:
    other: dict[str, object] = {"title": "Storage", "columns": ["phase"], "rows": [["alone"]], "numbers": [[None]]}
    runs = [{"tables": [table(["alone", s(1)])]}, {"tables": [other]}]
    assert [one.words for one in merged_tables(runs)] == [[["alone (1 of 2 runs)", "1 s"]], [["alone (1 of 2 runs)"]]]


def test_tables_of_before_have_no_numbers_to_merge() -> None:
    old = {"title": "Storage", "columns": ["phase", "read"], "rows": [["alone", "1 s"]]}
    assert has_numbers({"tables": [table(["alone", s(1)])]})
    assert not has_numbers({"tables": [table(["alone", s(1)]), old]})
