"""Every column of every result table has a unit and a meaning, and nothing else is described."""

from __future__ import annotations

import pytest

from fabric.results import TABLES
from fabric.table_columns import COLUMNS, COMMON, NO_UNIT, ROWS, UNITS, columns_of

SUFFIXES = {"_s": "s", "_ns": "ns", "_bytes": "bytes", "_packets": "packets", "_bps": "bit/s", "_fraction": "fraction"}


def test_every_table_is_described() -> None:
    assert set(ROWS) == set(COLUMNS) == set(TABLES)


@pytest.mark.parametrize("table", TABLES)
def test_every_column_is_described(table: str) -> None:
    columns = list(columns_of(table))
    assert [(column.name, column.dtype) for column in columns] == list(TABLES[table].items())
    assert all(column.meaning and column.unit in UNITS for column in columns)


@pytest.mark.parametrize("table", TABLES)
def test_only_columns_are_described(table: str) -> None:
    assert set(COLUMNS[table]) <= set(TABLES[table])


def test_common_columns_are_in_a_table() -> None:
    assert all(any(name in columns for columns in TABLES.values()) for name in COMMON)


@pytest.mark.parametrize("table", TABLES)
def test_units_are_those_of_names(table: str) -> None:
    for column in columns_of(table):
        suffix = f"_{column.name.rpartition('_')[2]}"
        assert column.unit == SUFFIXES.get(suffix, column.unit), column.name


@pytest.mark.parametrize("table", TABLES)
def test_names_have_no_unit(table: str) -> None:
    assert all(column.unit == NO_UNIT for column in columns_of(table) if column.dtype in ("category", "bool"))
