"""Users' programs as a kind of job. Nobody knows whom they send to."""

from __future__ import annotations

from fabric.measures import Measure
from fabric.model.lanes import ServiceLevel
from traffic import metrics
from traffic.job_kind import DataOfJob, JobKind, Measures
from traffic.measures import BANDWIDTH, OPERATIONS, JobRows, bandwidth
from traffic.programs.job import ENDED, STOPPED, ProgramConfig, ProgramJob

_ENDED = Measure("<operation>.ended", "processes that ended by themselves")
_STOPPED = Measure("<operation>.stopped", "processes that were stopped at the end of a window")


def _commands(config: ProgramConfig) -> tuple[str, ...]:
    return (config.command,)


def _numbers(rows: JobRows) -> dict[str, float]:
    """Return what the hosts sent while one of the processes ran, how many of these ended by themselves and how many
    were stopped at the end of a window, and how long they took in the median."""
    operations = rows.table("operations")
    processes = operations[operations["operation"].isin([ENDED, STOPPED])]
    done = metrics.completion(processes, ENDED)

    def last_end(until_s: float) -> float:
        """Return when the last process ended of those that began before a time."""
        return float(processes[processes["started_s"] < until_s]["ended_s"].max())

    running = [(began, min(until, last_end(until))) for began, until in rows.windows]
    running = [(began, until) for began, until in running if until > began]
    if done is None or not running:
        return {}
    counts = {_ENDED.of(ENDED): float(done.completed), _STOPPED.of(ENDED): float(done.cut_off)}
    median = done.named(ENDED, ("p50",)) if done.completed else {}
    return {BANDWIDTH.of(ENDED): bandwidth(processes, running), **counts, **median}


PROGRAM = JobKind(
    name="program",
    meaning=(
        "A program of the user's on each of its nodes, started at the start of each window and ended with it, unless "
        "it has ended by itself."
    ),
    config=ProgramConfig,
    level=ServiceLevel.OTHER,
    least_nodes=1,
    make=ProgramJob,
    measures=Measures(_numbers, speeds=(BANDWIDTH.of(ENDED),), declared=(*OPERATIONS, _ENDED, _STOPPED)),
    commands=_commands,
    data=DataOfJob(one_nic="a program binds and connects as it likes, and others' names lead to their first"),
    preload=("traffic.programs.job",),
)
