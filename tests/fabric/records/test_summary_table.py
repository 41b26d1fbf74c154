from __future__ import annotations

import json
import math
from typing import Any, cast

import numpy as np
import pandas as pd
import pytest

from fabric.errors import ResultError
from fabric.estimates import Estimate
from fabric.records.cells import Cell, estimated, measured, quantity, ratio
from fabric.records.summary_table import SummaryTable


def test_its_json_has_what_it_says_and_a_note_only_if_it_has_one() -> None:
    table = SummaryTable("Network", ["phase", "dropped"], [("alone", 3), ["together", None]])
    said: dict[str, Any] = {
        "title": "Network",
        "columns": ["phase", "dropped"],
        "rows": [["alone", 3], ["together", None]],
    }
    numbers = [[None, {"value": 3.0, "unit": "1", "form": ""}], [None, None]]
    assert table.as_json() == {**said, "numbers": numbers}
    noted = SummaryTable(**said, note="by DSCP").as_json()
    assert (list(noted), noted["note"]) == (["title", "columns", "rows", "note", "numbers"], "by DSCP")
    assert SummaryTable.of(json.loads(json.dumps(noted))).as_json() == noted
    assert SummaryTable.of(table) is table


CELLS = {
    "a time": (quantity(0.0015, "time"), "1.5 ms"),
    "nothing": (quantity(None, "time"), "-"),
    "a share": (quantity(0.123, ".1%"), "12.3%"),
    "a change that rounds to nothing": (quantity(-0.0001, "+.1%"), "0.0%"),
    "times": (quantity(1.5, ".2f x"), "1.50 x"),
    "a count": (quantity(1234, ",.0f chunks"), "1,234 chunks"),
    "in its column's unit": (quantity(3 * 2**29, ".2f in GiB/s"), "1.50"),
    "with its unit": (quantity(2.5e9, ".2f GB/s"), "2.50 GB/s"),
    "without a form": (quantity(1234567), "1,234,567"),
    "by its measure": (measured({"read.p99_s": 0.02}, "read.p99_s"), "20 ms"),
    "at least": (measured({"read.p99_at_least_s": 0.02}, "read.p99_s"), "> 20 ms"),
    "of a measure that nothing measured": (measured({}, "read.p99_s"), "-"),
    "a count of nothing": (measured({}, "read.failed", otherwise=0), "0"),
    "an estimate": (estimated(Estimate(0.97, 0.96, 0.98, 6), ".1%"), "97.0% [96.0%, 98.0%]"),
    "an estimate without a span": (estimated(Estimate(0.97, 0.97, 0.97, 6), ".1%"), "97.0%"),
    "an interval in the median's unit": (estimated(Estimate(1.2, 0.9, 13.0, 6), "time"), "1.2 s [0.9, 13]"),
    "several": ((quantity(3, ".0f"), " of ", quantity(4, ".0f")), "3 of 4"),
    "infinite": (quantity(math.inf, ".1f"), "inf"),
}


@pytest.mark.parametrize(("cell", "words"), CELLS.values(), ids=list(CELLS))
def test_a_number_is_written_by_its_form_and_read_again(cell: Cell, words: str) -> None:
    table = SummaryTable("T", ["x"], [[cell]])
    written = json.loads(json.dumps(table.as_json(), allow_nan=False))
    assert written["rows"] == [[words]]
    (read,) = SummaryTable.of(written).rows[0]
    assert str(read) == str(cell), "NaN is not equal to itself"


def test_a_number_says_its_unit_and_measure() -> None:
    at_least = measured({"read.p99_at_least_s": 0.02}, "read.p99_s")
    assert at_least.as_json() == {"value": 0.02, "unit": "s", "form": "time", "measure": "read.p99_s", "bound": ">"}
    assert measured({"drops_packets": 3}, "drops_packets").as_json()["unit"] == "packets"
    assert quantity(1.0, ".2f in GiB/s").unit == "B/s"


RATIOS = {
    "of two known": ({"p99_s": 3.0}, {"p99_s": 2.0}, "1.50 x"),
    "of at least": ({"p99_at_least_s": 3.0}, {"p99_s": 2.0}, "> 1.50 x"),
    "over at least": ({"p99_s": 3.0}, {"p99_at_least_s": 2.0}, "< 1.50 x"),
    "of two that nobody knows": ({"p99_at_least_s": 3.0}, {"p99_at_least_s": 2.0}, "-"),
    "over nothing": ({"p99_s": 3.0}, {}, "-"),
}


@pytest.mark.parametrize(("found", "base", "words"), RATIOS.values(), ids=list(RATIOS))
def test_a_ratio_is_known_as_far_as_both_numbers_are(
    found: dict[str, float], base: dict[str, float], words: str
) -> None:
    assert ratio(found, base, "p99_s").words == words


def test_a_table_of_before_has_words_alone() -> None:
    old = {"title": "T", "columns": ["x"], "rows": [["1.5 ms"]]}
    assert SummaryTable.of(old).as_json() == {**old, "numbers": [[None]]}


@pytest.mark.parametrize("form", ["fast", ".2", "%d", ".2f  x"])
def test_an_unknown_form_is_refused(form: str) -> None:
    with pytest.raises(ValueError, match="of a number; use time, rate"):
        quantity(1.0, form)


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"rows": [["a", "b"], ["c"]]}, r"row 2 has 1 cells, and there are 2 columns \(x, y\); give it one per column"),
        ({"rows": [["a", "b", "c"]]}, "row 1 has 3 cells"),
        ({"columns": ["x", 3]}, "its column 2 is 3, which is not text"),
        ({"title": None}, "its title is None, which is not text"),
        ({"caption": "c"}, "has 'caption'; a table has title, columns, rows, note"),
    ],
)
def test_a_table_that_cannot_be_shown_is_refused_and_named(changed: dict[str, Any], words: str) -> None:
    values = {"title": "T", "columns": ["x", "y"], "rows": []}
    with pytest.raises(ResultError, match=rf"table ('T'|None): {words}"):
        SummaryTable.of({**values, **changed}).as_json()


def test_an_experiments_own_table_without_rows_is_refused() -> None:
    with pytest.raises(ResultError, match="table 'T': has no columns; give it title, columns, rows"):
        SummaryTable.of({"title": "T", "rows": []})


def test_cells_are_numbers_of_any_library_and_nothing_is_none() -> None:
    column = pd.Series([1, 2])
    row: list[Any] = [
        column.sum(),
        np.float32(0.5),
        column[column > 5].mean(),
        math.inf,
        None,
        "text",
        True,
        np.array([1, 2]),
    ]
    table = SummaryTable("T", [str(place) for place in range(len(row))], [row]).as_json()
    assert json.loads(json.dumps(table, allow_nan=False))["rows"] == [[3, 0.5, None, "inf", None, "text", True, [1, 2]]]


def test_a_cell_that_json_has_no_form_for_is_named() -> None:
    told = r"table 'T': row 1, when: is a Timestamp, which JSON has no form for; give it as text or a number"
    with pytest.raises(ResultError, match=told):
        SummaryTable("T", ["when"], [[cast(Any, pd.Timestamp(0))]]).as_json()
