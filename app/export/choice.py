"""Which phases and jobs of a result are exported, and what it has where a format does not fit."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import pandas as pd

from fabric.errors import UsageError
from fabric.results import Result
from fabric.suggestions import nearest
from traffic.metrics import kind_of


@dataclass(frozen=True)
class Exported:
    """A file of another tool, and what a user should know of it that the file cannot say."""

    data: bytes
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Choice:
    """Of which phase and of which job; None: of all."""

    phase: str | None = None
    job: str | None = None

    def rows(self, result: Result, table: pd.DataFrame) -> pd.DataFrame:
        """Return the rows that are of the phase and the job. Raises UsageError, with the nearest names or all of them,
        if the result has no such phase, or the table no such job or nothing of both."""
        phases, jobs = [phase.name for phase in result.phases], _names(table["job"])
        if self.phase is not None and self.phase not in phases:
            raise UsageError(f"--phase {self.phase}: {result.directory} has no such phase; {_hint(self.phase, phases)}")
        if self.job is not None and self.job not in jobs:
            raise UsageError(f"--job {self.job}: has no place in this format; {_hint(self.job, jobs)}")
        for column, wanted in (("phase", self.phase), ("job", self.job)):
            table = table if wanted is None else table[table[column] == wanted]
        if table.empty:
            raise UsageError(f"--phase {self.phase} --job {self.job}: nothing is of both; omit one of the two")
        return table


def _hint(name: str, known: list[str]) -> str:
    near = nearest(name, known)
    return f"did you mean {near}?" if near else f"it has {', '.join(known)}"


def _names(column: Iterable[object]) -> list[str]:
    return list(dict.fromkeys(str(name) for name in column))


def kinds_of(operations: pd.DataFrame) -> pd.Series[str]:
    """Return the kind of each row of ``operations``, without what became of it: ``read`` for ``read_failed``."""
    return operations["operation"].astype(str).map(kind_of)


def contents(result: Result) -> str:
    """Return what a result has of jobs, for an error: ``hfreduce (collective), storage (read, write)``."""
    steps, operations = result.table("steps"), result.table("operations")
    found: dict[str, list[str]] = {job: ["collective"] for job in _names(steps["job"])}
    kinds = operations.assign(kind=kinds_of(operations))[["job", "kind"]].drop_duplicates()
    for job, kind in kinds.itertuples(index=False):
        found.setdefault(str(job), []).append(str(kind))
    jobs = ", ".join(f"{job} ({', '.join(sorted(what))})" for job, what in found.items())
    return jobs or "neither collectives nor operations"
