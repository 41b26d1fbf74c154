"""Rows of result tables as tests write them: without the job, which is then the service level's."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pandas as pd

from fabric.tables import TABLES


def table_of(table: str, rows: Iterable[Sequence[Any]]) -> pd.DataFrame:
    """Return rows of a table, whose values stand in the order of its columns; with or without the column ``job``."""
    columns, found = list(TABLES[table].columns), [tuple(row) for row in rows]
    if "job" not in columns or (found and len(found[0]) == len(columns)):
        return pd.DataFrame(found, columns=columns)
    frame = pd.DataFrame(found, columns=[column for column in columns if column != "job"])
    return frame.assign(job=frame["service_level"])[columns]


def columns_of_programs(table: str) -> list[str]:
    """Return the columns of a table that programs fill: the run adds the name of their job."""
    return [column for column in TABLES[table].columns if column != "job"]
