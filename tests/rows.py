"""Rows of result tables as tests write them: the columns that a test names; all others are 0, empty or unknown, so that
a new column changes none of them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pandas as pd

from fabric.tables import TABLES

_BLANK: dict[str, Any] = {"float64": math.nan, "int64": 0, "Int64": 0, "category": "", "bool": False}
_IN_ORDER = {
    "ports": "at_s port lane sent_bytes sent_packets drops_packets backlog_bytes marked_packets",
    "stalls": "at_s port lane stalls stalled_ns buffered_bytes most_buffered_bytes",
    "waits": "at_s port lane input_port input_lane waiting_bytes",
    "flows": "at_s phase job service_level host peer rtt_s retransmissions bytes_acked",
    "jobs": "phase job service_level started_s halted_s ended_s failed",
    "steps": "phase job service_level collective step ranks size_bytes started_s ended_s",
    "rank_steps": "phase job service_level step host started_s ended_s",
    "operations": "phase job service_level operation host peer size_bytes started_s ended_s retries",
    "restarts": "phase job service_level step failed_s resumed_s reason",
    "cores": "at_s core busy_fraction niced_fraction switch_fraction",
}
"""The columns of rows whose values are not named."""


def table_of(table: str, rows: Iterable[Sequence[Any]], columns: str = "") -> pd.DataFrame:
    """Return rows of a table, whose values are those of ``columns``, by default of all, in the order that tests know;
    then ``job`` and ``collective`` may be left out, and are the service level's and an allreduce."""
    found = [tuple(row) for row in rows]
    names = (columns or _IN_ORDER.get(table, " ".join(TABLES[table].columns))).split()
    short = [[name for name in names if name not in left_out] for left_out in ({"collective"}, {"job", "collective"})]
    given = next((one for one in (names, *short) if not found or len(found[0]) == len(one)), names)
    frame = pd.DataFrame(found, columns=given)
    if "job" in names and "job" not in given:
        frame = frame.assign(job=frame["service_level"])
    return whole(table, frame.assign(collective="allreduce") if "collective" not in given else frame)


def whole(table: str, values: pd.DataFrame | Mapping[str, Any]) -> pd.DataFrame:
    """Return rows, or the columns of some, with all columns of their table."""
    frame, dtypes = pd.DataFrame(values), TABLES[table].dtypes
    blank = {name: _BLANK[kind] for name, kind in dtypes.items() if name not in frame}
    return frame.assign(**blank)[list(dtypes)]


def columns_of_programs(table: str) -> list[str]:
    """Return the columns of a table that programs fill: the run adds the name of their job."""
    return [column for column in TABLES[table].columns if column != "job"]
