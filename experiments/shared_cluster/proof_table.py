"""What ranks of users' jobs printed, a row a job: was any step lost, or made twice, and are sums alike?"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from cluster.platform.kinds import PLATFORM, proofs_of
from cluster.platform.proof import JobProof
from fabric.records.cells import count_of
from fabric.records.summary_table import SummaryTable
from runs.job_config import PlacedJob
from traffic.measures import JobRows

_MOST_STEPS = 6
"""Of steps that are named in a cell."""


def proof_tables(placed: Sequence[PlacedJob], rows_of: Callable[[PlacedJob], JobRows]) -> list[SummaryTable]:
    """Return a table for each platform whose users' jobs printed steps. ``rows_of``: rows of a job in the phase."""
    tables = []
    for one in placed:
        if one.config.of_kind is PLATFORM:
            found = proofs_of(rows_of(one))
            if any(proof.steps for proof in found):
                tables.append(_table(one.name, found))
    return tables


def _table(platform: str, found: Sequence[JobProof]) -> SummaryTable:
    return SummaryTable(
        title=f"Steps that ranks of {platform} printed",
        columns=["job", "lives", "steps", "lost", "twice", "again", "sums", "differ", "right", "holds"],
        rows=[
            [
                proof.name,
                count_of(proof.lives),
                count_of(proof.steps),
                *map(_steps, (proof.lost, proof.twice, proof.again)),
                count_of(proof.sums) if proof.sums else "-",
                _steps(tuple(sorted({*proof.apart, *proof.changed}))) if proof.sums else "-",
                (count_of(proof.known - len(proof.wrong)), " of ", count_of(proof.known)) if proof.known else "-",
                "yes" if proof.holds else "NO",
            ]
            for proof in found
        ],
        note="lost: made by nobody; twice: made again though saved; again: behind the last checkpoint, as they must; "
        "differ: sums that differ between ranks of a life, or between lives; right: sums by the training's formula",
    )


def _steps(steps: Sequence[int]) -> str:
    """Return how many steps, and which: the first ones, and ranges of those that follow on each other."""
    if not steps:
        return "0"
    ranges: list[list[int]] = []
    for step in steps:
        if ranges and step == ranges[-1][1] + 1:
            ranges[-1][1] = step
        else:
            ranges.append([step, step])
    shown = ", ".join(f"{a}" if a == b else f"{a}-{b}" for a, b in ranges[:_MOST_STEPS])
    return f"{len(steps)}: {shown}{' ...' if len(ranges) > _MOST_STEPS else ''}"
