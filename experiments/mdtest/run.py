"""How many files per second does a metadata service make, look at, read and remove, and what limits it?

mdtest's phases on a file system, by growing numbers of processes, with stores of several latencies. A phase of the run
for each, with a file system of its own; it ends with mdtest.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import pandas as pd
from pydantic import AfterValidator, Field

from fabric.config import Strict, TimeS
from fabric.metrics import metrics_of
from fabric.model.lanes import Queueing, ServiceLevel
from fabric.model.network import Fabric
from fabric.records.summary_table import SummaryTable
from runs.config import QueueingConfig, each_once, storage_faults
from runs.jobs import started
from runs.phase_lengths import PhaseLengths
from runs.session import Session
from traffic.measures import JobRows
from traffic.storage.metadata.job import FilesJob
from traffic.storage.metadata.job_config import FilesConfig
from traffic.storage.metadata.kinds import of_file_steps
from traffic.storage.metadata.load_config import MdtestConfig

JOB = "files"
_LEAST_PHASE_S = 0.01
Latency = Annotated[TimeS, Field(ge=0, le=60)]
Processes = Annotated[int, Field(ge=1, le=1024)]


class StorePoint(Strict):
    """The latencies of a store of keys and values, beside what the fabric takes."""

    name: Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$", max_length=20)] = Field(description="Its name in results.")
    begin_latency: Latency = Field(default=0.0, description="Time to begin a transaction.")
    read_latency: Latency = Field(default=0.0, description="Time of a read.")
    commit_latency: Latency = Field(default=0.0, description="Time of a commit that writes.")


def _named_once(stores: list[StorePoint]) -> list[StorePoint]:
    each_once([store.name for store in stores])
    return stores


def _default_stores() -> list[StorePoint]:
    """FoundationDB's latencies by its own documentation, below 75 % load: their lower and their upper ends."""
    return [
        StorePoint(name="fast", begin_latency=0.0003, read_latency=0.0001, commit_latency=0.0015),
        StorePoint(name="slow", begin_latency=0.001, read_latency=0.001, commit_latency=0.0025),
    ]


class MdtestExperimentConfig(QueueingConfig):
    """A file system under mdtest, by numbers of processes and latencies of the store."""

    queueing: Annotated[Queueing, Field(strict=False)] = Field(
        default=Queueing.LANES, description="Queueing in which all phases play."
    )
    clients: Annotated[int, Field(ge=1, le=10_000)] = Field(default=4, description="Compute nodes that are clients.")
    processes: Annotated[list[Processes], Field(min_length=1, max_length=32), AfterValidator(each_once)] = Field(
        default=[1, 2, 4, 8], description="Processes of mdtest on each client, a phase for each."
    )
    stores: Annotated[list[StorePoint], Field(min_length=1, max_length=16), AfterValidator(_named_once)] = Field(
        default_factory=_default_stores, description="Latencies of the store of keys and values, played in turn."
    )
    files: FilesConfig = Field(
        default_factory=lambda: FilesConfig(mdtest=MdtestConfig()),
        description="The file system and the load, whose `processes` and `metadata.store` latencies are those above.",
    )

    @property
    def phase_lengths(self) -> PhaseLengths:
        """As long as all operations take."""
        return PhaseLengths(until="all operations are done")

    def faults(self, fabric: Fabric) -> Iterator[str]:
        """Yield what does not fit the fabric."""
        yield from super().faults(fabric)
        yield from storage_faults(fabric, "files are on them")
        if self.clients > len(fabric.computes):
            yield f"clients: {self.clients} exceed the {len(fabric.computes)} compute nodes; lower it"
        if self.files.mdtest is None:
            yield "files.mdtest: there is none; write `mdtest: {files: 100}`"

    def point(self, store: StorePoint, processes: int) -> FilesConfig:
        """Return the file system of a phase."""
        assert self.files.mdtest is not None, "faults() verified it"
        latencies = store.model_dump(exclude={"name"})
        metadata = self.files.metadata
        return self.files.model_copy(
            update={
                "mdtest": self.files.mdtest.model_copy(update={"processes": processes}),
                "metadata": metadata.model_copy(update={"store": metadata.store.model_copy(update=latencies)}),
            }
        )


@dataclass(frozen=True)
class Played:
    """What mdtest said of a phase: its numbers by name, and what servers counted."""

    store: str
    processes: int
    numbers: dict[str, float]
    conflicts: int

    @property
    def phase(self) -> str:
        """The name of the phase."""
        return f"{self.store}_{self.processes}"


def run_mdtest(session: Session, config: MdtestExperimentConfig) -> dict[str, Any]:
    """Play a phase for each store and number of processes; return the summary."""
    session.use_queueing(config.queueing)
    found = [_phase(session, config, store, processes) for store in config.stores for processes in config.processes]
    return summarize(config, found)


def _phase(session: Session, config: MdtestExperimentConfig, store: StorePoint, processes: int) -> Played:
    nodes = session.live.fabric.computes[: config.clients]
    job = FilesJob(session.stage, config.point(store, processes), nodes, level=ServiceLevel.STORAGE, name=JOB)
    total = processes * config.clients
    name = f"{store.name}_{total}"
    with started(session, [job]):
        session.run_phase(name, f"{total} processes, store {store.name}", [job], _LEAST_PHASE_S)
        counts = job.counts

    def rows(table: str) -> pd.DataFrame:
        found = session.table(table)
        return found[found["phase"] == name]

    return Played(store.name, total, dict(of_file_steps(JobRows(rows, []))), counts.get("metadata_conflicts", 0))


def summarize(config: MdtestExperimentConfig, found: Sequence[Played]) -> dict[str, Any]:
    """Return the tables, metrics and answer of a run."""
    return {
        "title": "Files per second",
        "answer": " ".join(_sentences(config, found)),
        "metrics": [metric for one in found for metric in metrics_of(one.phase, JOB, one.numbers)],
        "tables": [_table(found)],
        "mdtest": [
            {"store": one.store, "processes": one.processes, "numbers": one.numbers, "conflicts": one.conflicts}
            for one in found
        ],
    }


def steps_of(found: Sequence[Played]) -> list[str]:
    """Return the steps that have a rate, in mdtest's order."""
    order = [f"{kind}_{phase}" for kind in ("directory", "file") for phase in ("create", "stat", "read", "remove")]
    return [step for step in order if any(f"{step}.operations_per_s" in one.numbers for one in found)]


def _sentences(config: MdtestExperimentConfig, found: Sequence[Played]) -> Iterator[str]:
    for store in config.stores:
        of_store = [one for one in found if one.store == store.name]
        first, last = of_store[0], of_store[-1]
        rates = (one.numbers.get("file_create.operations_per_s", 0.0) for one in (first, last))
        few, many = (f"{rate:,.0f}" for rate in rates)
        yield (
            f"Store {store.name}: {few} files made per second by {first.processes} processes, {many} by "
            f"{last.processes}."
        )


def _table(found: Sequence[Played]) -> SummaryTable:
    steps = steps_of(found)
    rows = []
    for one in found:
        rates = [f"{one.numbers.get(f'{step}.operations_per_s', 0.0):,.0f}" for step in steps]
        moved = [one.numbers.get(f"file_{phase}.bandwidth_Bps", 0.0) / 1e6 for phase in ("create", "read")]
        created_ms = one.numbers.get("file_create.p50_s", 0.0) * 1e3
        numbers = [f"{created_ms:.2f}", *(f"{rate:,.0f}" for rate in moved), str(one.conflicts)]
        rows.append([one.store, str(one.processes), *rates, *numbers])
    return SummaryTable(
        title="mdtest, operations per second",
        columns=[
            "store", "processes", *(step.replace("_", " ") for step in steps),
            "one creation, median, ms", "written, MB/s", "read, MB/s", "transactions tried again",
        ],
        rows=rows,
        note="a step counts from when the first process begins it to when the last has ended it, as mdtest does",
    )  # fmt: skip
