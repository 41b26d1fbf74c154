"""Config of the storage service, its clients and their load; every limit is 3FS's or states why not."""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from typing import Annotated

from pydantic import BeforeValidator, Field, model_validator

from fabric.config import RateBps, SizeBytes, Strict, TimeS
from fabric.units import format_size, parse_rate_bps
from traffic.program_group import ProgramsPerProcess

_MOST_READS, _MOST_CHUNKS = 65_536, 1_000_000
Count = Annotated[int, Field(ge=1, le=65_536)]
Size = Annotated[SizeBytes, Field(ge=1)]
Wait = Annotated[TimeS, Field(gt=0)]
Share = Annotated[float, Field(ge=0, le=1)]


def _off_or_count(value: object) -> object:
    # YAML 1.1 reads a bare ``off`` as False.
    if value is False or value == "off":
        return None
    if value is True or (value is not None and not isinstance(value, int)):
        raise ValueError(f"{value!r} is neither 'off' nor a number of senders; write e.g. 4 or off")
    return value


def _off_or_rate(value: object) -> object:
    if value is False or value == "off":
        return None
    return parse_rate_bps(value) if isinstance(value, str) else value


RequestToSend = Annotated[Count | None, BeforeValidator(_off_or_count)]
"""``off`` (None here), or how many reads may send to a client at once."""
OptionalRate = Annotated[Annotated[RateBps, Field(ge=1)] | None, BeforeValidator(_off_or_rate)]
"""``off`` (None here), or a rate."""


class ServiceConfig(Strict):
    """A storage service. 3FS allows 256 transfers a NIC each way; at a 10,000th of its rate that many of 256 KiB would
    take half a minute, so fewer here."""

    max_concurrent_pulls: Count = 8
    """Writes whose data one NIC takes in at once (3FS: ``max_concurrent_rdma_reads``)."""
    max_concurrent_sends: Count = 32
    """Reads whose data one NIC sends at once (3FS: ``max_concurrent_rdma_writes``)."""
    transfer_stall: Wait = 1.0
    """A transfer of which no byte has moved for so long counts no more among those at once, until it ends."""
    apply_timeout: Wait = 10.0
    """How long a service waits for leave to send before it sends anyway (3FS: ``rdma_transmission_req_timeout``)."""
    ssd_read_rate: OptionalRate = None
    """Each disk's rate; off by default: the fabric is what is studied."""
    ssd_latency: Annotated[TimeS, Field(ge=0)] = 0.0

    @property
    def has_disks(self) -> bool:
        """Whether a read from a disk takes any time."""
        return self.ssd_read_rate is not None or self.ssd_latency > 0


class ClientConfig(Strict):
    """A client's limits (3FS: ``StorageClient.h``, the defaults below) and patience."""

    max_requests: Count = 32
    max_requests_per_server: Count = 8
    max_batch_ios: Annotated[int, Field(ge=1, le=1024)] = 128
    max_batch_size: Annotated[SizeBytes, Field(ge=1, le=64 << 20)] = 4 << 20
    call_timeout: Wait = 30.0
    """How long one try waits for its answer, and a connection for an acknowledgement before it is made anew."""
    operation_timeout: Wait = 60.0
    """How long an operation is tried again before it is an error."""


class DataloaderConfig(Strict):
    """Training's reads: random samples of a data set, each of a log-uniform size, ``batch`` of them asked for together
    and ``depth`` such batches at once, without a pause."""

    share: Share = 1.0
    """The fraction of the clients that read."""
    depth: Count = 2
    batch: Count = 4
    sample_min: Size = 16 << 10
    sample_max: Size = 512 << 10
    files: Count = 8
    files_per_client: Count | None = None
    """Of these, how many each client reads, all equally often; None: all. With few, a client needs few links."""
    file_size: Size = 32 << 20

    @model_validator(mode="after")
    def _verify(self) -> DataloaderConfig:
        if self.sample_min > self.sample_max:
            raise ValueError(
                f"sample_min {format_size(self.sample_min)} exceeds sample_max {format_size(self.sample_max)}; lower it"
            )
        if self.sample_max > self.file_size:
            raise ValueError(
                f"sample_max {format_size(self.sample_max)} exceeds file_size {format_size(self.file_size)}; lower it"
            )
        if self.files_per_client is not None and self.files_per_client > self.files:
            raise ValueError(f"files_per_client {self.files_per_client} exceeds files {self.files}; lower it")
        if self.depth * self.batch > _MOST_READS:
            asked = f"{self.depth * self.batch:,} reads of each client at once (depth x batch)"
            raise ValueError(f"{asked} exceed {_MOST_READS:,}; lower depth or batch")
        return self


class CheckpointConfig(Strict):
    """Training's writes: each writer saves ``size`` bytes every ``period`` (0: without a pause), ``depth`` chunks at
    once, over the last checkpoint but one. FF2 VII-A: every 5 minutes, more than 10 GiB/s a node."""

    share: Share = 0.0
    """The fraction of the clients that write."""
    size: Size = 4 << 20
    period: Annotated[TimeS, Field(ge=0)] = 0.0
    depth: Count = 4


class Connections(str, Enum):
    """When programs connect: each to all services before the first phase, which finds a route that is missing; then to
    those that hold its data, and to others when it first calls them; or to each when it first calls it."""

    AT_START = "at_start"
    TO_ITS_DATA = "to_its_data"
    WHEN_NEEDED = "when_needed"

    def is_made_at_start(self, holds_data: bool) -> bool:
        """Return whether a link is, to a service that holds data of the program or does not."""
        return self is Connections.AT_START or (self is Connections.TO_ITS_DATA and holds_data)


class ProgramsConfig(Strict):
    """How the programs run."""

    connections: Annotated[Connections, Field(strict=False)] = Connections.AT_START
    """1,200 clients of 180 services have 216,000 links of two connections each at the start. When they are needed, the
    first packets of each pair are decided on by ovs-vswitchd (an upcall in every switch) while a phase plays."""
    clients_per_process: ProgramsPerProcess = None
    """How many clients share an interpreter (None: as many as the engine has)."""
    services_per_process: ProgramsPerProcess = None
    """The same of services. One that is to be killed must have an interpreter for itself."""


class StorageConfig(ProgramsConfig):
    """The whole. 3FS's chunks are 512 KB to 64 MB and its files are striped over 200 chains in production."""

    chunk_size: Annotated[SizeBytes, Field(ge=4096, le=64 << 20)] = 256 << 10
    stripe: Count = 16
    replicas: Annotated[int, Field(ge=1, le=8)] = 2
    disks_per_node: Annotated[int, Field(ge=1, le=64)] = 4
    chains_per_target: Annotated[int, Field(ge=1, le=64)] = 6
    request_to_send: RequestToSend = 4
    """How many reads may send to one client at once; 3FS: off as shipped, 64 if on; FF2 (VI-B3) does not say."""
    failure_detection: Annotated[TimeS, Field(ge=0)] = 0.5
    """From a service's death to the next chain table. 3FS: 60 s without a heartbeat, then up to 1 s."""
    service: ServiceConfig = ServiceConfig()
    client: ClientConfig = ClientConfig()
    dataloader: DataloaderConfig = DataloaderConfig()
    checkpoint: CheckpointConfig = CheckpointConfig()

    @model_validator(mode="after")
    def _verify(self) -> StorageConfig:
        faults = list(self._faults())
        if faults:
            raise ValueError("; ".join(faults))
        return self

    def _too_many(self) -> Iterator[str]:
        """Yield what has more chunks than services and clients can have in their memory."""
        read, written = self.dataloader, self.checkpoint
        found = {
            f"dataloader: {read.files} files of {format_size(read.file_size)}": read.files * read.file_size,
            f"checkpoint.size: {format_size(written.size)}": written.size if written.share else 0,
        }
        for what, size in found.items():
            if (chunks := size // self.chunk_size) > _MOST_CHUNKS:
                yield f"{what} are {chunks:,} chunks, more than {_MOST_CHUNKS:,}; lower it or raise chunk_size"

    def _faults(self) -> Iterator[str]:
        if self.chunk_size > self.client.max_batch_size:
            yield (
                f"chunk_size {format_size(self.chunk_size)} exceeds client.max_batch_size"
                f" {format_size(self.client.max_batch_size)}; a read of a whole chunk must fit in one request"
            )
        yield from self._too_many()
        if self.dataloader.share == 0 and self.checkpoint.share == 0:
            yield "dataloader.share and checkpoint.share are both 0, so nobody reads or writes; raise one"
