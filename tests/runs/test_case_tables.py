"""Tables of cases: what a row says that the one above it has said."""

from __future__ import annotations

import math

from runs.case_tables import Column, case_table, spread


def test_what_the_row_above_says_is_said_once_as_far_as_all_before_it_is_the_same() -> None:
    rows = [("shared", "static", 1), ("shared", "static", 1), ("shared", "ecmp", 1), ("lanes", "ecmp", 1)]
    columns = [Column(name, lambda row, place=place: row[place], is_once=place < 2) for place, name in enumerate("abc")]
    assert case_table("t", rows, columns).words == [
        ["shared", "static", "1"],
        ["", "", "1"],
        ["", "ecmp", "1"],
        ["lanes", "ecmp", "1"],
    ]


def test_the_spread_of_repeats_is_said_where_they_read_differently() -> None:
    table = case_table("t", [[1e6, 3e6, 2e6], [1e6, 1.0001e6], [math.nan]], [
        Column("rate", lambda values: spread(values, ",.0f in Mbit/s"))
    ])  # fmt: skip
    assert table.words == [["2 (1-3)"], ["1"], ["-"]]
