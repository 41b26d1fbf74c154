"""All kinds of jobs that a config may name. A new one stands in the folder of its programs, and here."""

from __future__ import annotations

from fabric.errors import ResultError
from fabric.tables import TABLES, Table
from traffic.collectives.kinds import HFREDUCE, NCCL
from traffic.flows.kinds import BACKGROUND
from traffic.job_kind import JobKind
from traffic.programs.kinds import PROGRAM
from traffic.sorting.kinds import SORT
from traffic.storage.kinds import STORAGE
from traffic.storage.kv_cache.kinds import KV_CACHE
from traffic.storage.metadata.kinds import FILES
from traffic.work.kinds import TRAINING, WORK

KINDS: tuple[JobKind, ...] = (
    HFREDUCE, NCCL, STORAGE, FILES, KV_CACHE, BACKGROUND, PROGRAM, WORK, TRAINING, SORT,
)  # fmt: skip
"""In the order in which references list them."""


def tables_of_jobs() -> dict[str, Table]:
    """Return the tables that only jobs of some kind write, by name. Raises ResultError if one has the name of another,
    or of one that all results have."""
    found: dict[str, Table] = {}
    for kind in KINDS:
        if taken := sorted(kind.tables.keys() & {*TABLES, *found}):
            raise ResultError(f"jobs of kind {kind.name}: there is another table {', '.join(taken)}; rename theirs")
        found |= kind.tables
    return found
