"""The keys of jobs with a file system."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from pydantic import Field, model_validator

from fabric.config import TimeS, require_none
from fabric.units import format_apart, format_size
from traffic.storage.config import (
    ClientConfig,
    ClusterManagerConfig,
    Count,
    DataloaderConfig,
    PlacementConfig,
    RequestToSend,
    ServiceConfig,
    StorageConfig,
)
from traffic.storage.metadata.config import MetadataConfig
from traffic.storage.metadata.load_config import FioConfig, MdtestConfig


class FileSystemConfig(PlacementConfig):
    """A file system: storage, and metadata servers."""

    metadata: MetadataConfig = Field(
        default=MetadataConfig(), description="Metadata servers, and the store behind them."
    )
    writes_at_once: Count = Field(default=32, description="Chunks that a client writes at once.")
    request_to_send: RequestToSend = Field(
        default=4, description="Reads that may send to one client at once, against incast; `off`: all."
    )
    failure_detection: Annotated[TimeS, Field(ge=0)] = Field(
        default=0.5, description="Time from a service's death to the next chain table, without a cluster manager."
    )
    cluster_manager: ClusterManagerConfig | None = Field(
        default=None, description="The cluster manager as a program; without it, the run sees services die."
    )
    service: ServiceConfig = Field(default=ServiceConfig(), description="Limits of each storage service.")
    client: ClientConfig = Field(default=ClientConfig(), description="Limits and timeouts of each client of storage.")

    @property
    def load(self) -> FioConfig | MdtestConfig | None:
        """What its clients do in steps of fio or mdtest; None: nothing of that."""
        return None

    def storage(self) -> StorageConfig:
        """Return the config of the storage. Nobody loads data but by files."""
        own = {name: getattr(self, name) for name in (*PlacementConfig.model_fields, *_OF_STORAGE)}
        return StorageConfig(**own, dataloader=DataloaderConfig())

    @model_validator(mode="after")
    def _verify(self) -> FileSystemConfig:
        require_none(self._faults())
        return self

    def _faults(self) -> Iterator[str]:
        if self.chunk_size > self.client.max_batch_size:
            chunk, most = format_apart(self.chunk_size, self.client.max_batch_size, format_size)
            why = "a read of a whole chunk must fit in one request"
            yield f"chunk_size {chunk} exceeds client.max_batch_size {most}; {why}"


class FilesConfig(FileSystemConfig):
    """A file system, and a load of files in the words of fio or mdtest, or none."""

    fio: FioConfig | None = Field(default=None, description="Reads and writes of files, in fio's words.")
    mdtest: MdtestConfig | None = Field(
        default=None, description="Files made, looked at, read and removed, in mdtest's words."
    )

    @property
    def has_end(self) -> bool:
        """Whether a phase lasts until its load is over: it does."""
        return True

    @property
    def load(self) -> FioConfig | MdtestConfig | None:
        """What its clients do; None: nothing, but programs may mount it."""
        return self.fio or self.mdtest

    def _faults(self) -> Iterator[str]:
        if self.fio is not None and self.mdtest is not None:
            yield "fio and mdtest: one load is played at a time; give each a job of its own"
        yield from super()._faults()


_OF_STORAGE = ("request_to_send", "failure_detection", "cluster_manager", "service", "client")
