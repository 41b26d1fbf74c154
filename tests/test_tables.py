"""Every column of every result table, those of single experiments included, has a unit and a meaning."""

from __future__ import annotations

import pytest

from fabric.tables import COMMON, NO_UNIT, TABLES, UNITS, Table
from runs.registry import EXPERIMENTS

SUFFIXES = {"_s": "s", "_ns": "ns", "_bytes": "bytes", "_packets": "packets", "_bps": "bit/s", "_fraction": "fraction"}
OWN = {name: table for one in EXPERIMENTS.values() for name, table in one.load_tables().items()}
ALL = {**TABLES, **OWN}


def test_experiments_bring_tables_of_their_own_and_no_name_is_of_two_tables() -> None:
    assert set(EXPERIMENTS["link_flap"].load_tables()) == {"cuts", "cut_flows"}
    names = [*TABLES, *(name for one in EXPERIMENTS.values() for name in one.load_tables())]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("table", ALL.values(), ids=list(ALL))
def test_every_table_and_column_is_described(table: Table) -> None:
    assert table.row.startswith("One row per ")
    assert table.columns
    assert all(column.meaning and column.unit in UNITS for column in table.columns.values())


def test_common_columns_are_in_a_table() -> None:
    assert all(any(table.columns.get(name) is column for table in ALL.values()) for name, column in COMMON.items())


@pytest.mark.parametrize("table", ALL.values(), ids=list(ALL))
def test_units_are_those_of_names(table: Table) -> None:
    for name, column in table.columns.items():
        suffix = f"_{name.rpartition('_')[2]}"
        assert column.unit == SUFFIXES.get(suffix, column.unit), name


@pytest.mark.parametrize("table", ALL.values(), ids=list(ALL))
def test_names_have_no_unit(table: Table) -> None:
    assert all(column.unit == NO_UNIT for column in table.columns.values() if column.dtype in ("category", "bool"))
