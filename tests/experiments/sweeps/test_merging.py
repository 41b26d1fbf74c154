"""An experiment's tables over several runs."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from experiments.sweeps.merging import Cell, merged_cell, merged_tables

CELLS = {
    "the same": (["1.00 x"] * 3, "1.00 x"),
    "with a unit": (["0.5 MB/s", "0.7 MB/s", "0.6 MB/s"], "0.6 MB/s [0.5, 0.7]"),
    "in several units": (["900 ms", "1.2 s", "1.3 s"], "1.2 s [0.9, 1.3]"),
    "percent": (["97%", "98%", "96%"], "97 [96, 98]%"),
    "with words before": (["p99 20 ms", "p99 10 ms", "p99 30 ms"], "p99 20 ms [10, 30]"),
    "two numbers": (["5 MB/s, p99 20 ms", "5 MB/s, p99 10 ms", "5 MB/s, p99 1 s"], "5 MB/s, p99 20 ms [10, 1,000]"),
    "negative": (["-1.5%", "+0.5%", "-0.5%"], "-0.5 [-1.5, 0.5]%"),
    "thousands": (["1,000", "3,000", "2,000"], "2,000 [1,000, 3,000]"),
    "at least, of a minority": (["8 s", "> 10 s", "9 s"], "9 s [8, 10]"),
    "at least, of most": (["8 s", "> 10 s", "> 11.5 s"], "> 10.0 s [8.0, 11.5]"),
    "at least, in the middle": (["8.0 s", "> 10.1 s", "16.5 s"], "> 10.1 s [8.0, 16.5]"),
    "at least, in all": (["> 3.1 x", "> 3.3 x", "> 3.2 x"], "> 3.2 [3.1, 3.3] x"),
    "at least, beside words": (["> 3 x", "unknown", "2 x"], "> 3 x or unknown or 2 x"),
    "words": (["z0l00:6", "z0l01:6", "z0l00:6"], "z0l00:6 or z0l01:6"),
    "a number or none": (["never", "1 s", "1 s"], "never or 1 s"),
    "with exponents": (["1.2e-05", "3.4e-04", "9e-06"], "1.2e-05 [9e-06, 0.00034]"),
    "exponents and units": (["1.5e-05 s", "1.6e-05 s", "1.7e-05 s"], "1.6e-05 s [1.5e-05, 1.7e-05]"),
    "an exponent in one": (["1.2e-05", "0.00034", "0.002"], "0.00034 [1.2e-05, 0.002]"),
    "large exponents": (["1e+06", "2e+06", "3e+06"], "2e+06 [1e+06, 3e+06]"),
    "the same with an exponent": (["1e-05, 2", "1e-05, 4", "1e-05, 3"], "1e-05, 3 [2, 4]"),
    "hours and minutes": (["2 h 05 min", "1 h 55 min", "1 h 50 min"], "1 h 55 min [1 h 50 min, 2 h 05 min]"),
    "minutes and seconds": (["1 min 50 s", "2 min 10 s", "2 min 20 s"], "2 min 10 s [1 min 50 s, 2 min 20 s]"),
    "minutes in one": (["55 min", "1 h 05 min", "1 h 10 min"], "1 h 05 min [0 h 55 min, 1 h 10 min]"),
    "different kinds": (["5 MB/s", "1 s", "1 s"], "5 MB/s or 1 s"),
    "a number that a run lacks": (["1.2 ms", "-", "1.3 ms", "1.4 ms"], "1.3 ms [1.2, 1.4]"),
    "nothing in any": (["-", "-"], "-"),
    "a count with its unit": (["3 steps", "5 steps", "4 steps"], "4 [3, 5] steps"),
    "a number and its span": (["984 (980-990)", "986 (982-991)"], "985 [984, 986] (981 [980, 982]-990 [990, 991])"),
    "numbers in words": (["rank 3 of z0h001", "rank 5 of z0h001"], "rank 3 of z0h001 or rank 5 of z0h001"),
    "a part of others": (["3 of 4", "2 of 4", "3 of 4"], "3 of 4 or 2 of 4"),
    "dates": (["2026-11-28", "2026-11-29"], "2026-11-28 or 2026-11-29"),
    "times of day": (["2026-11-28 10:00:01", "2026-11-28 10:00:02"], "2026-11-28 10:00:01 or 2026-11-28 10:00:02"),
    "a measure beside a name": (["z0h001: 3 ms", "z0h001: 5 ms"], "z0h001: 4 ms [3, 5]"),
    "a measure beside a count that differs": (["2 of 4 (3 ms)", "3 of 4 (3 ms)"], "2 of 4 (3 ms) or 3 of 4 (3 ms)"),
}


@pytest.mark.parametrize(("texts", "merged"), CELLS.values(), ids=list(CELLS))
def test_a_cell_is_a_median_with_its_interval(texts: list[str], merged: str) -> None:
    assert merged_cell(texts) == merged


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
    "a text, missing in a run": (["1 s", None, "3 s", "2 s"], "2 s [1, 3]"),
}


@pytest.mark.parametrize(("cells", "merged"), TYPED.values(), ids=list(TYPED))
def test_a_cell_keeps_its_type(cells: list[Cell], merged: Cell) -> None:
    found = merged_cell(cells)
    assert found == merged
    assert type(found) is type(merged)


def test_a_table_says_that_some_runs_lack_a_cell() -> None:
    runs = [{"tables": [table(["alone", cell])]} for cell in (True, None)]
    (merged,) = merged_tables(runs)
    assert merged["rows"] == [["alone", True]]
    assert merged["note"] == "as fio's; a cell that some runs lack is of those that have it"


@pytest.mark.parametrize("behind", [["port", "z0l00"], []], ids=["behind a text", "in the first column"])
@pytest.mark.parametrize("missing", ["-", None], ids=["a dash", "nothing"])
def test_a_row_that_lacks_a_number_in_one_run_stays_one_row(behind: list[str], missing: Cell) -> None:
    cells = ["1.2 ms", "1.3 ms", missing, "1.4 ms", "1.5 ms", "1.6 ms"]
    columns = ["phase", *behind[:1], "took", "read"]
    rows = [["lanes", *behind[1:], cell, "5 MB/s"] for cell in cells]
    runs = [{"tables": [{"title": "T", "columns": columns, "rows": [row]}]} for row in rows]
    (merged,) = merged_tables(runs)
    assert merged["rows"] == [["lanes", *behind[1:], "1.4 ms [1.2, 1.6]", "5 MB/s"]]
    assert merged["note"] == "a cell that some runs lack is of those that have it"


def test_a_dash_among_texts_is_a_part_of_a_rows_name() -> None:
    rows = [["alone", "-", "1 s"], ["alone", "z0l00", "3 s"]]
    runs = [{"tables": [table(*order)]} for order in (rows, rows[::-1])]
    assert merged_tables(runs)[0]["rows"] == rows


def test_only_what_notes_of_all_runs_say_stays() -> None:
    runs = [{"tables": [{**table(["alone", 1]), "note": f"by DSCP; port {port}; as fio's"}]} for port in ("a", "b")]
    assert merged_tables(runs)[0]["note"] == "by DSCP; as fio's"
    assert "note" not in merged_tables([runs[0], {"tables": [{**table(["alone", 1]), "note": ""}]}])[0]


def test_a_number_is_no_part_of_a_rows_name() -> None:
    runs = [{"tables": [table(["alone", value])]} for value in (1, 3, 2)]
    assert merged_tables(runs)[0]["rows"] == [["alone", "2 [1, 3]"]]


def table(*rows: Sequence[Cell]) -> dict[str, object]:
    return {
        "title": "Storage",
        "columns": ["phase", "port", "read"] if rows and len(rows[0]) > 2 else ["phase", "read"],
        "rows": [list(row) for row in rows],
        "note": "as fio's",
    }


def test_tables_are_merged_cell_by_cell() -> None:
    runs = [{"tables": [table(["alone", f"{value} s"])]} for value in (1, 3, 2)]
    assert merged_tables(runs) == [{**table(["alone", "2 s [1, 3]"])}]


def test_rows_are_the_same_by_their_names_wherever_they_stand() -> None:
    alone = ["alone", "z0l00:6", "1 s"]
    runs = [
        {"tables": [table(alone, ["", "z0l01:6", "2 s"])]},
        {"tables": [table(["alone", "z0l01:6", "4 s"], ["", "z0l00:6", "3 s"])]},
        {"tables": [table(["alone", "z0l00:6", "5 s"])]},
    ]
    (merged,) = merged_tables(runs)
    assert merged["rows"] == [["alone", "z0l00:6", "3 s [1, 5]"], ["(2 of 3 runs)", "z0l01:6", "3 s [2, 4]"]]


def test_rows_of_one_name_are_the_same_by_their_order() -> None:
    runs = [{"tables": [table(["alone", "1 s"], ["alone", f"{value} s"])]} for value in (2, 4)]
    assert merged_tables(runs)[0]["rows"] == [["alone", "1 s"], ["alone", "3 s [2, 4]"]]


def test_a_table_of_other_columns_stands_by_itself() -> None:
    other: dict[str, object] = {"title": "Storage", "columns": ["phase"], "rows": [["alone"]]}
    runs = [{"tables": [table(["alone", "1 s"])]}, {"tables": [other]}]
    assert [one["rows"] for one in merged_tables(runs)] == [[["alone (1 of 2 runs)", "1 s"]], [["alone (1 of 2 runs)"]]]
