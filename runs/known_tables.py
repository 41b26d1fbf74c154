"""Which tables a run may write: those of every result, those of kinds of jobs, and those of its experiment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fabric.errors import ResultError
from fabric.tables import TABLES, Table
from runs.kinds import tables_of_jobs
from traffic.job import Records

Rows = Sequence[Mapping[str, Any]]


def own_tables(of_experiment: Mapping[str, Table]) -> dict[str, Table]:
    """Return the tables of kinds of jobs and those of an experiment, by name. Raises ResultError if two have one
    name."""
    of_jobs = tables_of_jobs()
    if taken := sorted(of_jobs.keys() & of_experiment.keys()):
        raise ResultError(f"table {', '.join(taken)}: a kind of job has one of this name; rename the experiment's")
    return {**of_jobs, **of_experiment}


def of_job(records: Records, job: str) -> Records:
    """Return the rows of a job with its name, where their tables have a column for it. Raises ResultError for rows of a
    table that nobody has declared."""
    known = {**TABLES, **tables_of_jobs()}
    for name, rows in records.items():
        if name not in known:
            raise ResultError(
                f"job {job}: has rows of a table {name}, which is not declared; give it to the tables of its kind"
            )
        if "job" in known[name].columns:
            for row in rows:
                row["job"] = job
    return records


def verify_rows(name: str, table: Table, rows: Rows) -> None:
    """Raise ResultError if a row does not have the columns of its table, and only these."""
    for row in rows:
        if row.keys() != table.columns.keys():
            missing, unknown = table.columns.keys() - row.keys(), row.keys() - table.columns.keys()
            wrong = [f"lacks {', '.join(sorted(missing))}"] * bool(missing)
            wrong += [f"has {', '.join(sorted(unknown))}, which is not declared"] * bool(unknown)
            raise ResultError(f"table {name}: a row {' and '.join(wrong)}; correct the row or the table")
