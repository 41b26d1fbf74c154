"""Collectives that graphs of work call, as rows of ``steps``: one per call of a group (pure).

Ranks of a graph come to a call when they are ready for it, unlike those of nccl-tests. So a call starts here once its
last rank has started it, and ends once its last rank has its result.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from fabric.results import Result
from traffic.collectives.listing import COLLECTIVES

OPERATIONS = "work_operations"
_CALL = ["phase", "job", "step", "partner", "call"]


def called_collectives(result: Result) -> pd.DataFrame:
    """Return the calls of a result's recorded operations, with the columns of ``steps`` that tables need; none of jobs
    that did not record all ranks, nor of groups of one rank."""
    steps = result.table("steps")
    if OPERATIONS not in result.tables:
        return steps.iloc[:0]
    rows = result.table(OPERATIONS)
    rows = rows[rows["kind"].isin(list(COLLECTIVES)) & ~rows["job"].isin(_with_some_ranks(result.config))]
    if rows.empty:
        return steps.iloc[:0]
    rows = rows.sort_values(["rank", "step", "operation"], kind="stable")
    rows = rows.assign(**{name: rows[name].astype(str) for name in ("phase", "job", "partner", "kind")})
    rows["call"] = rows.groupby(["phase", "job", "step", "rank", "partner"]).cumcount()
    calls = rows.groupby(_CALL, sort=False).agg(
        collective=("kind", "first"),
        ranks=("rank", "nunique"),
        size_bytes=("size_bytes", "first"),
        started_s=("started_s", "max"),
        ended_s=("ended_s", "max"),
    )
    return calls[calls["ranks"] > 1].reset_index()


def _with_some_ranks(config: Mapping[str, Any]) -> list[str]:
    """Return the names of jobs that recorded the operations of some ranks only."""
    listed = config.get("jobs")
    jobs: Sequence[Any] = listed if isinstance(listed, list) else ()
    return [str(one.get("name")) for one in jobs if isinstance(one, Mapping) and one.get("recorded_ranks") is not None]
