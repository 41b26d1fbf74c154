"""The config of ``mdtest``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from pydantic import AfterValidator, Field

from fabric.config import Strict, TimeS
from fabric.model.lanes import Queueing
from fabric.model.network import Fabric
from runs.config import QueueingConfig, each_once, storage_faults
from runs.phase_lengths import PhaseLengths
from traffic.storage.metadata.job_config import FilesConfig
from traffic.storage.metadata.load_config import MdtestConfig

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
            yield "files.mdtest: is missing; write `mdtest: {files: 100}`"

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
