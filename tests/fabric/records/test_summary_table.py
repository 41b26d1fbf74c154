from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pandas as pd
import pytest

from fabric.errors import ResultError
from fabric.records.summary_table import SummaryTable


def test_its_json_has_what_it_says_and_a_note_only_if_it_has_one() -> None:
    table = SummaryTable("Network", ["phase", "dropped"], [("alone", 3), ["together", None]])
    said: dict[str, Any] = {
        "title": "Network",
        "columns": ["phase", "dropped"],
        "rows": [["alone", 3], ["together", None]],
    }
    assert table.as_json() == said
    noted = SummaryTable(**said, note="by DSCP").as_json()
    assert (list(noted), noted["note"]) == (["title", "columns", "rows", "note"], "by DSCP")
    assert SummaryTable.of(json.loads(json.dumps(noted))).as_json() == noted
    assert SummaryTable.of(table) is table


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"rows": [["a", "b"], ["c"]]}, r"row 2 has 1 cells, and there are 2 columns \(x, y\); give it one per column"),
        ({"rows": [["a", "b", "c"]]}, "row 1 has 3 cells"),
        ({"columns": ["x", 3]}, "its column 2 is 3, which is no text"),
        ({"title": None}, "its title is None, which is no text"),
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
    row = [column.sum(), np.float32(0.5), column[column > 5].mean(), math.inf, None, "text", True, np.array([1, 2])]
    table = SummaryTable("T", [str(place) for place in range(len(row))], [row]).as_json()
    assert json.loads(json.dumps(table, allow_nan=False))["rows"] == [
        [3, 0.5, None, "inf", None, "text", True, [1, 2]]
    ]


def test_a_cell_that_json_has_no_form_for_is_named() -> None:
    told = r"table 'T': row 1, when: is a Timestamp, which JSON has no form for; give it as text or a number"
    with pytest.raises(ResultError, match=told):
        SummaryTable("T", ["when"], [[pd.Timestamp(0)]]).as_json()
