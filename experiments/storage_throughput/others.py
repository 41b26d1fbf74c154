"""What do other jobs keep of their speed beside the reads of all compute nodes?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from experiments.storage_throughput.cases import AnyFound, AnyPlayed, Reads
from experiments.storage_throughput.config import StorageThroughputConfig
from fabric.measures import Better, Measure
from fabric.metrics import Metric
from runs.case_tables import CaseTable
from runs.job_config import JobConfig
from runs.study import Question
from traffic.measures import speed_cell

KEPT = Measure("kept_fraction", "speed of another job beside reads, over its speed without them", Better.MORE)


def _speed(job: JobConfig, alone: Mapping[str, float]) -> str:
    """Return the name of what a job is measured by: what is known of it without reads."""
    speeds = job.of_kind.measures.speeds
    return next((one for one in speeds if one in alone), speeds[0])


def _measure(played: AnyPlayed) -> Iterator[Metric]:
    """Yield by what other jobs were measured, and beside reads what they kept of that."""
    case = played.case
    for job in played.config.beside if case.is_beside else ():
        alone, mine = (played.numbers_of(job, phase) for phase in (case.alone(), case.name))
        name = _speed(job, alone)
        if name in mine:
            yield Metric(case.name, job.name, name, mine[name])
            if alone.get(name) and isinstance(case, Reads):
                yield Metric(case.name, job.name, KEPT.name, mine[name] / alone[name])


def _rows(found: AnyFound) -> Iterator[Mapping[str, Any]]:
    for one in found.outcomes:
        for job in found.config.beside if isinstance(one.case, Reads) and one.case.is_beside else ():
            mine, alone = (row.of(job.name) for row in (one.values, one.alone()))
            name = _speed(job, alone)
            speeds = {"without": speed_cell(name, alone[name]), "with": speed_cell(name, mine[name])}
            yield {"variant": one.case.title, "job": job.name, **speeds, "kept": mine[KEPT.name]}


OTHERS = Question[Any, StorageThroughputConfig](
    measure=_measure,
    measures=(KEPT,),
    tables=(
        CaseTable(
            "Other jobs beside the reads",
            "variant {variant}, job {job}, without reads {without}, beside them {with}, kept {kept|.0%}",
            "algbw (median step) of collectives; of graphs what all ranks send in a step over its time",
            rows=_rows,
        ),
    ),
)
