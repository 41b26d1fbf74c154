"""How many files per second does a metadata service make, look at, read and remove, and what limits it?

mdtest's phases on a file system, by growing numbers of processes, with stores of several latencies. A phase of the run
for each, with a file system of its own; it ends with mdtest.
"""

from __future__ import annotations

from dataclasses import dataclass

from experiments.mdtest.config import MdtestExperimentConfig, StorePoint
from fabric.metrics import Metric, metric_path, metrics_of
from fabric.model.lanes import ServiceLevel
from fabric.records.figure_forms import Lines, Looks, Number
from runs.case_tables import Answer, CaseTable, Column
from runs.cases import Case, axis
from runs.jobs import started
from runs.session import Session
from runs.study import Found, Played, Study
from traffic.measures import JobRows
from traffic.storage.metadata.job import FilesJob
from traffic.storage.metadata.kinds import ITEMS_PER_S, of_file_steps
from traffic.storage.metadata.loads import DIRECTORY_STEPS, FILE_STEPS

JOB = "files"
_LEAST_PHASE_S = 0.01
_STEPS = [*DIRECTORY_STEPS, *FILE_STEPS]
"""In mdtest's order."""


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


def _rate(step: str) -> str:
    return metric_path(JOB, ITEMS_PER_S.of(step))


def _columns(found: Found[Mdtest, MdtestExperimentConfig]) -> list[Column | str]:
    rates = {step: _rate(step) for step in _STEPS}
    played = [step for step, rate in rates.items() if any(rate in one.values for one in found.outcomes)]
    return [
        "store {store}, processes {processes}",
        *(Column(step.replace("_", " "), rates[step]) for step in played),
        "one creation, median, ms {files.file_create.p50_s|.2f in ms}, "
        "written, MB/s {files.file_create.bandwidth_Bps|,.0f in MB/s}, "
        "read, MB/s {files.file_read.bandwidth_Bps|,.0f in MB/s}, transactions tried again {conflicts}",
    ]


STUDY = Study[Mdtest, MdtestExperimentConfig](
    title="Files per second",
    cases=Mdtest.grid,
    play=_play,
    measure=_measure,
    answer=Answer(
        "Files made per second: {}.",
        each="{files.file_create.operations_per_s|,.0f or 0} by {processes} processes",
        by="store {store}",
        ends=lambda one: one.case.processes,
    ),
    tables=(
        CaseTable(
            "mdtest, operations per second",
            _columns,
            "a step counts from when the first process begins it to when the last has ended it, as mdtest does",
        ),
    ),
    figures=(
        Lines(
            "files_per_second",
            "Files made, looked at, read and removed per second, by the number of processes and the store's latencies.",
            "Files per second by number of processes",
            numbers=(
                Number(_rate("file_create"), "made"),
                Number(_rate("file_stat"), "looked at"),
                Number(_rate("file_read"), "read"),
                Number(_rate("file_remove"), "removed"),
            ),
            x="{processes}",
            line="store {store}",
            dash="{store}",
            labels=("number of processes", "rate of operations (files per s)"),
            looks=Looks(10.4, 3.6, log2_x=True, log_y=True),
        ),
    ),
)
