"""Rows of result tables as tests write them: without the job, which is then the service level's, or the collective."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pandas as pd

from fabric.tables import TABLES


def table_of(table: str, rows: Iterable[Sequence[Any]]) -> pd.DataFrame:
    """Return rows of a table, whose values stand in the order of its columns; with or without the columns ``job`` and
    ``collective``, of which the second is then an allreduce."""
    columns, found = list(TABLES[table].columns), [tuple(row) for row in rows]
    for left_out in ((), ("collective",), ("job", "collective")):
        given = [column for column in columns if column not in left_out]
        if not found or len(found[0]) == len(given):
            break
    frame = pd.DataFrame(found, columns=given)
    if "collective" in columns and "collective" not in given:
        frame = frame.assign(collective="allreduce")
    if "job" in columns and "job" not in given:
        frame = frame.assign(job=frame["service_level"])
    return frame[columns]


def columns_of_programs(table: str) -> list[str]:
    """Return the columns of a table that programs fill: the run adds the name of their job."""
    return [column for column in TABLES[table].columns if column != "job"]
