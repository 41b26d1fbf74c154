"""All kinds of jobs that a config may name: those of ``traffic``, and those of ``cluster``, which is above it.

A new kind stands in the folder of its programs, and in the list of the package that it is in.
"""

from __future__ import annotations

from cluster.checkpoints.kinds import CHECKPOINTING
from cluster.platform.kinds import PLATFORM
from fabric.errors import ResultError
from fabric.tables import TABLES, Table
from traffic.job_kind import JobKind
from traffic.kinds import TRAFFIC_KINDS

KINDS: tuple[JobKind, ...] = (*TRAFFIC_KINDS, PLATFORM, CHECKPOINTING)
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
