"""How many files per second does a metadata service make, look at, read and remove, and what limits it?

mdtest's phases on a file system, by growing numbers of processes, with stores of several latencies. A phase of the run
for each, with a file system of its own; it ends with mdtest.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from experiments.mdtest.config import MdtestExperimentConfig, StorePoint
from fabric.metrics import Metric, metrics_of
from fabric.model.lanes import ServiceLevel
from fabric.records.figure_forms import Lines, Looks, Number
from fabric.records.summary_table import SummaryTable
from runs.case_tables import Column, case_table
from runs.cases import Case, axis
from runs.jobs import started
from runs.session import Session
from runs.study import Found, Played, Study, over_repeats
from traffic.measures import JobRows
from traffic.storage.metadata.job import FilesJob
from traffic.storage.metadata.kinds import of_file_steps

JOB = "files"
_LEAST_PHASE_S = 0.01
_STEPS = [f"{kind}_{phase}" for kind in ("directory", "file") for phase in ("create", "stat", "read", "remove")]
"""In mdtest's order."""
_MADE = f"{JOB}.file_create.operations_per_s"


@dataclass(frozen=True)
class Mdtest(Case, name="{store}_{processes}", title="{processes} processes, store {store}"):
    """A store, and how many processes all clients have together."""

    store: StorePoint = axis("stores", name=lambda store: store.name, words=lambda store: store.name)
    processes: int = axis(lambda config: [count * config.clients for count in config.processes])


def _play(session: Session, config: MdtestExperimentConfig, case: Mdtest) -> dict[str, float]:
    session.use_queueing(config.queueing)
    nodes = session.live.fabric.computes[: config.clients]
    files = config.point(case.store, case.processes // config.clients)
    job = FilesJob(session.stage, files, nodes, level=ServiceLevel.STORAGE, name=JOB)
    with started(session, [job]):
        session.run_phase(case.name, case.title, [job], _LEAST_PHASE_S)
        return {"conflicts": job.counts.get("metadata_conflicts", 0)}


def _measure(played: Played[Mdtest, MdtestExperimentConfig]) -> list[Metric]:
    return metrics_of(played.case.name, JOB, of_file_steps(JobRows(played.rows, [])))


def _answer(found: Found[Mdtest, MdtestExperimentConfig]) -> str:
    told = []
    for store in over_repeats(found.outcomes, "{store}"):
        first, last = store.outcomes[0], store.outcomes[-1]
        few, many = (f"{one.values.get(_MADE, 0.0):,.0f}" for one in (first, last))
        told.append(
            f"Store {first.case.store.name}: {few} files made per second by {first.case.processes} processes, {many} "
            f"by {last.case.processes}."
        )
    return " ".join(told)


def _tables(found: Found[Mdtest, MdtestExperimentConfig]) -> Iterator[SummaryTable]:
    rates = {step: f"{JOB}.{step}.operations_per_s" for step in _STEPS}
    played = [step for step, rate in rates.items() if any(rate in one.values for one in found.outcomes)]
    yield case_table(
        "mdtest, operations per second",
        found.outcomes,
        (
            Column("store", "store"),
            Column("processes", "processes"),
            *(Column(step.replace("_", " "), rates[step]) for step in played),
            Column("one creation, median, ms", f"{JOB}.file_create.p50_s", ".2f in ms"),
            Column("written, MB/s", f"{JOB}.file_create.bandwidth_Bps", ",.0f in MB/s"),
            Column("read, MB/s", f"{JOB}.file_read.bandwidth_Bps", ",.0f in MB/s"),
            Column("transactions tried again", "conflicts"),
        ),
        "a step counts from when the first process begins it to when the last has ended it, as mdtest does",
    )


STUDY = Study(
    title="Files per second",
    cases=Mdtest.grid,
    play=_play,
    measure=_measure,
    answer=_answer,
    tables=_tables,
    figures=(
        Lines(
            "files_per_second",
            "Files made, looked at, read and removed per second, by the number of processes and the store's latencies.",
            "Files per second by number of processes",
            numbers=(
                Number(f"{JOB}.file_create.operations_per_s", "made"),
                Number(f"{JOB}.file_stat.operations_per_s", "looked at"),
                Number(f"{JOB}.file_read.operations_per_s", "read"),
                Number(f"{JOB}.file_remove.operations_per_s", "removed"),
            ),
            x="{processes}",
            line="store {store}",
            dash="{store}",
            labels=("number of processes", "rate of operations (files per s)"),
            looks=Looks(10.4, 3.6, log2_x=True, log_y=True),
        ),
    ),
)
