"""Config of the storage service, its clients and their load; every limit is 3FS's or states why not."""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from fabric.config import NoneAs, RateBps, SizeBytes, Strict, TimeS, require_none
from fabric.failures.kinds.disk import DiskState, DiskTarget
from fabric.failures.schedule import State
from fabric.units import format_apart, format_size, parse_rate_bps
from traffic.program_group import ProgramsPerProcess
from traffic.storage.client.samples import MOST_SAMPLES, SampleShape
from traffic.storage.fio_config import ChunkIoConfig
from traffic.storage.load_config import EpochsConfig, RestoreConfig
from traffic.storage.managers.config import ClockOffset, ManagersConfig
from traffic.storage.placement import TargetOrder

MOST_READS, _MOST_CHUNKS = 65_536, 1_000_000
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


RequestToSend = Annotated[Count | None, BeforeValidator(_off_or_count), NoneAs("off")]
"""``off`` (None here), or how many reads may send to a client at once."""


def limit_words(request_to_send: int | None) -> str:
    """Return a limit on reads that may send at once, in words."""
    return "no limit" if request_to_send is None else f"{request_to_send} send at once"


OptionalRate = Annotated[Annotated[RateBps, Field(ge=1)] | None, BeforeValidator(_off_or_rate), NoneAs("off")]
"""``off`` (None here), or a rate."""


class ServiceConfig(Strict):
    """A storage service. 3FS allows 256 transfers per NIC each way, in its code and as configured; at a 10,000th of its
    rate that many of 256 KiB would take half a minute, longer than calls wait, so fewer here."""

    max_concurrent_pulls: Count = Field(
        default=8,
        description=(
            "Writes whose data one NIC takes in at once (3FS: `max_concurrent_rdma_reads`, 256). At true rates give "
            "3FS's: of 8 writers, whose own NICs are busy, a NIC may have too little."
        ),
    )
    max_concurrent_sends: Count = Field(
        default=32,
        description=(
            "Reads whose data one NIC sends at once (3FS: `max_concurrent_rdma_writes`, 256; give that at true rates)."
        ),
    )
    transfer_stall: Wait = Field(
        default=1.0,
        description="A transfer that moved no byte for this long no longer counts among those at once.",
    )
    apply_timeout: Wait = Field(
        default=10.0,
        description=(
            "How long a service waits for leave to send before it sends anyway (3FS: `rdma_transmission_req_timeout`)."
        ),
    )
    check_read_chain: bool = Field(
        default=True,
        description=(
            "Whether a read is refused whose client goes by another version of the chain than the service. 3FS has "
            "ceased to since September 2025 (its pull request 341), as a restart delays reads three times."
        ),
    )
    ssd_read_rate: OptionalRate = Field(
        default=None,
        description="Read rate of each disk; `off`: disks do not limit anything, since the fabric is what is studied.",
    )
    ssd_latency: Annotated[TimeS, Field(ge=0)] = Field(default=0.0, description="Time that a disk adds to each read.")
    ssd_write_rate: OptionalRate = Field(
        default=None,
        description=(
            "Write rate of each disk, which queues with its reads; `off`: no limit. A write of a part of a chunk has "
            "the whole chunk read and written, on every replica."
        ),
    )
    ssd_write_latency: Annotated[TimeS, Field(ge=0)] = Field(
        default=0.0, description="Time that a disk adds to each write, on every replica in turn."
    )
    chunk_files: str | None = Field(
        default=None,
        min_length=1,
        description=(
            "An empty folder, in which services keep their chunks in files, so that one that is started again finds "
            "them. Without it, chunks are in memory alone."
        ),
    )

    @property
    def has_disks(self) -> bool:
        """Whether a read from a disk takes any time."""
        return self.ssd_read_rate is not None or self.ssd_latency > 0

    @property
    def has_slow_writes(self) -> bool:
        """Whether a write to a disk takes any time."""
        return self.ssd_write_rate is not None or self.ssd_write_latency > 0


class RetryConfig(Strict):
    """Tries in turns, as 3FS's client (its values are the defaults): each turn has a length, twice that of the one
    before. A try has that long for its answer, and the next one begins no sooner; one that was told of a newer chain,
    or of a pending version, waits half of ``first`` at most."""

    first: Wait = Field(default=10.0, description="Length of the first turn.")
    longest: Wait = Field(default=30.0, description="Length of a turn at most.")


class Fence(str, Enum):
    """Whether a service stops to answer that the cluster manager has not heard for half of the time after which it has
    failed. 3FS's design notes say so; its code does not."""

    OFF = "off"
    HALF = "half"


def _off(value: object) -> object:
    return "off" if value is False else value


FenceChoice = Annotated[Fence, Field(strict=False), BeforeValidator(_off)]


class ResyncConfig(Strict):
    """How targets that have come back are brought up to date."""

    every: Wait = Field(default=0.5, description="How often a service looks for targets to bring up to date.")
    pause: Annotated[TimeS, Field(ge=0)] = Field(
        default=30.0, description="How long a chain rests after one attempt until the next."
    )
    batch: Annotated[int, Field(ge=1, le=1024)] = Field(default=16, description="Chunks of a chain sent at once.")
    rate: OptionalRate = Field(
        default=None, description="Rate of one chain's resync; `off`: as fast as it goes, as released."
    )
    level: Literal["hfreduce", "nccl", "storage", "other"] | None = Field(
        default=None,
        description="Service Level of its packets, so that it can have a lane apart. Without it, that of the job.",
    )


class ClusterManagerConfig(Strict):
    """The cluster manager as a program with a NIC. The defaults are 3FS's timers; rates are scaled, these are not."""

    host: str | None = Field(
        default=None, description="The host that it is on. Without it, the last storage node, beside its service."
    )
    heartbeat: Wait = Field(default=10.0, description="Time from one heartbeat of a service to the next.")
    failed_after: Wait = Field(default=60.0, description="How long a service may be silent until it has failed.")
    checked_every: Wait = Field(default=10.0, description="How often the manager looks who has failed.")
    chains_every: Wait = Field(default=1.0, description="How often the manager updates chains.")
    polled_every: Wait = Field(
        default=10.0, description="How often services and clients ask for newer chains. Lower ends stalls sooner."
    )
    fence: FenceChoice = Field(
        default=Fence.OFF,
        description=(
            "Whether a service stops answering that was not heard for half of `failed_after` (`half`), or goes on "
            "(`off`, as released)."
        ),
    )
    restart: Annotated[TimeS, Field(ge=0)] = Field(
        default=10.0, description="How long a service takes to start anew that learns that it had failed."
    )

    resync: ResyncConfig = Field(
        default=ResyncConfig(), description="How targets that come back are brought up to date."
    )
    managers: ManagersConfig | None = Field(
        default=None,
        description="Several managers, and a store for the lease and the chains. Without it, one that keeps them.",
    )
    clocks: dict[str, ClockOffset] = Field(
        default_factory=dict,
        description=(
            "How far the clocks of managers and services are ahead, by host; negative: behind. Heartbeats then say "
            "the time, and one from more than 30 s away is not heard."
        ),
    )

    @model_validator(mode="after")
    def _verify(self) -> ClusterManagerConfig:
        if self.managers is not None and self.host is not None:
            raise ValueError(f"host {self.host} is of one manager; name the hosts of several in managers.hosts")
        if self.failed_after < 2 * self.heartbeat:
            two = f"two heartbeats of {self.heartbeat:g} s"
            raise ValueError(f"failed_after {self.failed_after:g} s is less than {two}: a late one fails all; raise it")
        return self

    @property
    def has_clocks(self) -> bool:
        """Whether heartbeats say the time."""
        return self.managers is not None or bool(self.clocks)


class ClientConfig(Strict):
    """A client's limits (3FS: ``StorageClient.h``, the defaults below) and patience."""

    max_requests: Count = Field(
        default=32,
        description=(
            "Requests of a kind (reads, updates) that a client has open at once, to all services together. An update "
            "is open until the last replica has it."
        ),
    )
    max_requests_per_server: Count = Field(
        default=8, description="Requests of a kind that a client has open at once, to one service."
    )
    max_batch_ios: Annotated[int, Field(ge=1, le=1024)] = Field(
        default=128, description="Reads that one request may combine."
    )
    max_batch_size: Annotated[SizeBytes, Field(ge=1, le=64 << 20)] = Field(
        default=4 << 20, description="Bytes that one request may ask for; at least a chunk."
    )
    call_timeout: Wait = Field(
        default=30.0,
        description=(
            "How long one try waits for its answer, and a connection for an acknowledgement before it is made "
            "anew. Lower it to fail over sooner."
        ),
    )
    operation_timeout: Wait = Field(
        default=60.0, description="How long an operation is tried again before it counts as failed."
    )
    retry: RetryConfig | None = Field(
        default=None,
        description="Tries in turns, as 3FS's client; without it, tries follow each other after pauses of up to 0.5 s.",
    )


class DataloaderConfig(Strict):
    """Training's reads: random samples of a data set, each of a log-uniform size, or, with ``epochs``, each of them
    once in an epoch."""

    share: Share = Field(default=1.0, description="Fraction of the clients that read.")
    depth: Count = Field(
        default=2,
        description="Batches that a reader keeps asked for at once. Higher loads the fabric more, and lengthens reads.",
    )
    batch: Count = Field(default=4, description="Samples asked for together.")
    pause: Annotated[TimeS, Field(ge=0)] = Field(
        default=0.0, description="Time from a batch's end to the next one's begin: computing. 0: without a pause."
    )
    sample_min: Size = Field(default=16 << 10, description="Smallest sample.")
    sample_max: Size = Field(default=512 << 10, description="Largest sample.")
    files: Count = Field(default=8, description="Files in the data set.")
    files_per_client: Count | None = Field(
        default=None,
        description=(
            "How many of these each client reads, all equally often. With few, a client needs few connections; "
            "without it, all."
        ),
    )
    file_size: Size = Field(
        default=32 << 20, description="Size of each file. Larger data sets take longer to write before the run."
    )
    epochs: EpochsConfig | None = Field(
        default=None,
        description=(
            "Reads of a training: each sample once in an epoch, with computing between batches. Without it, random "
            "samples, `depth` batches at once."
        ),
    )

    @model_validator(mode="after")
    def _verify_epochs(self) -> DataloaderConfig:
        if self.epochs is None:
            return self
        instead = {"depth": "give epochs.prefetch", "pause": "give epochs.compute", "files_per_client": "all are read"}
        for name, words in instead.items():
            if getattr(self, name) != type(self).model_fields[name].default:
                raise ValueError(f"{name} is for reads without epochs; leave it out: {words}")
        if (asked := (self.epochs.prefetch + 1) * self.batch) > MOST_READS:
            raise ValueError(
                f"{asked:,} reads of each client at once ((epochs.prefetch + 1) x batch) exceed {MOST_READS:,}; lower "
                "prefetch or batch"
            )
        shape = SampleShape(self.files, self.file_size, self.sample_min, self.sample_max)
        if shape.expected > MOST_SAMPLES:
            raise ValueError(
                f"files of {format_size(self.file_size)} have some {shape.expected:,.0f} samples together, more than "
                f"{MOST_SAMPLES:,}; raise sample_min, or lower files or file_size"
            )
        return self

    @model_validator(mode="after")
    def _verify(self) -> DataloaderConfig:
        if self.sample_min > self.sample_max:
            least, most = format_apart(self.sample_min, self.sample_max, format_size)
            raise ValueError(f"sample_min {least} exceeds sample_max {most}; lower it")
        if self.sample_max > self.file_size:
            most, size = format_apart(self.sample_max, self.file_size, format_size)
            raise ValueError(f"sample_max {most} exceeds file_size {size}; lower it")
        if self.files_per_client is not None and self.files_per_client > self.files:
            raise ValueError(f"files_per_client {self.files_per_client} exceeds files {self.files}; lower it")
        if self.depth * self.batch > MOST_READS:
            asked = f"{self.depth * self.batch:,} reads of each client at once (depth x batch)"
            raise ValueError(f"{asked} exceed {MOST_READS:,}; lower depth or batch")
        return self


class CheckpointConfig(Strict):
    """Training's writes: each writer saves a checkpoint over the last but one. FF2 VII-A: every 5 minutes, more than
    10 GiB/s per node."""

    share: Share = Field(default=0.0, description="Fraction of the clients that write; 0: none.")
    size: Size = Field(default=4 << 20, description="Bytes that each writer saves per checkpoint.")
    period: Annotated[TimeS, Field(ge=0)] = Field(
        default=0.0, description="Time from one checkpoint to the next; 0: without a pause."
    )
    depth: Count = Field(default=4, description="Chunks that a writer has in flight at once.")


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
    """How the programs run.

    1,200 clients of 180 services have 216,000 links of two connections each at the start. When they are needed, the
    first packets of each pair are decided on by ovs-vswitchd (an upcall in every switch) while a phase plays.
    """

    connections: Annotated[Connections, Field(strict=False)] = Field(
        default=Connections.AT_START,
        description=(
            "When clients connect: to all services at the start, to those that hold their data, or at the first "
            "call. Fewer connections bring large fabrics up sooner."
        ),
    )
    clients_per_process: ProgramsPerProcess = Field(
        default=None, description="Clients that share an interpreter. Without it, as many as the engine prefers."
    )
    services_per_process: ProgramsPerProcess = Field(
        default=None, description="Services that share an interpreter. One that is to be killed must have its own."
    )


class PlacementConfig(ProgramsConfig):
    """Where chunks are. 3FS's chunks are 512 KB to 64 MB and its files are striped over 200 chains in production."""

    chunk_size: Annotated[SizeBytes, Field(ge=4096, le=64 << 20)] = Field(
        default=256 << 10, description="Size of a chunk, the unit of placement and replication."
    )
    stripe: Count = Field(
        default=16, description="Chains over which a file is striped. More spread a read over more storage nodes."
    )
    replicas: Annotated[int, Field(ge=1, le=8)] = Field(
        default=2, description="Copies of every chunk, written along a chain of services."
    )
    disks_per_node: Annotated[int, Field(ge=1, le=64)] = Field(
        default=4, description="Disks (targets) per storage node."
    )
    chains_per_target: Annotated[int, Field(ge=1, le=64)] = Field(
        default=6,
        description="Chains that each disk is part of. More spread the load of a failed node over more others.",
    )
    target_order: Annotated[TargetOrder, Field(strict=False)] = Field(
        default=TargetOrder.EVEN_HEADS,
        description=(
            "How the targets of each chain are ordered, head first: heads spread evenly; `by_node`, as 3FS's generator "
            "lists them; `shuffled`, by the seed; `even_senders`, so that peers of a node that returns send evenly."
        ),
    )


class StorageConfig(PlacementConfig):
    """The whole."""

    request_to_send: RequestToSend = Field(
        default=4,
        description=(
            "Reads that may send to one client at once, against incast; `off`: all. 3FS: off as shipped, 64 if "
            "on; FF2 (VI-B3) does not say."
        ),
    )
    failure_detection: Annotated[TimeS, Field(ge=0)] = Field(
        default=0.5,
        description=(
            "Time from a service's death to the next chain table. 3FS: 60 s without a heartbeat, then up to 1 s."
        ),
    )
    cluster_manager: ClusterManagerConfig | None = Field(
        default=None,
        description=(
            "The cluster manager as a program that hears heartbeats and is asked for chains, over the fabric. Without "
            "it, the run sees services die and tells all, and nobody comes back."
        ),
    )
    service: ServiceConfig = Field(default=ServiceConfig(), description="Limits of each storage service.")
    client: ClientConfig = Field(default=ClientConfig(), description="Limits and timeouts of each client.")
    dataloader: DataloaderConfig = Field(default=DataloaderConfig(), description="The reads of training.")
    checkpoint: CheckpointConfig = Field(default=CheckpointConfig(), description="The writes of training.")
    chunk_io: ChunkIoConfig | None = Field(
        default=None,
        description=(
            "Reads and writes in fio's words, by all clients. With it, nobody loads data unless `dataloader` is given."
        ),
    )
    restore: RestoreConfig = Field(
        default=RestoreConfig(), description="A restore of a checkpoint by many clients at once, in each phase."
    )

    @property
    def has_end(self) -> bool:
        """Whether all that clients do in a phase has an end: it then lasts until that."""
        read, written = self.dataloader, self.checkpoint
        reads_end = not read.share or (read.epochs is not None and read.epochs.count is not None)
        return reads_end and not written.share and self.chunk_io is None

    @model_validator(mode="before")
    @classmethod
    def _no_other_load(cls, given: Any) -> Any:
        """Let nobody load data beside ``chunk_io`` that was not asked to."""
        if isinstance(given, dict) and given.get("chunk_io") is not None and "dataloader" not in given:
            return {**given, "dataloader": {"share": 0.0}}
        return given

    @model_validator(mode="after")
    def _verify(self) -> StorageConfig:
        require_none(self._faults())
        return self

    @property
    def tells_of_disks(self) -> bool:
        """Whether results have a table of what disks did: if they take time, or are written in parts."""
        return self.service.has_disks or self.service.has_slow_writes or self.chunk_io is not None

    def disk_fault(self, target: DiskTarget, state: State) -> str:
        """Return why a disk of a storage node cannot fail so; nothing if it can."""
        if target.number is not None and target.number >= self.disks_per_node:
            return f"disk: {target.host} has disks 0 to {self.disks_per_node - 1}; choose one of them"
        takes_time = self.service.has_disks or self.service.has_slow_writes
        if isinstance(state, DiskState) and state.factor != 1 and not takes_time:
            return (
                f"factor {state.factor:g}: reads of a disk take no time here, and no factor changes that; give "
                "latency, or set service.ssd_read_rate or service.ssd_latency of the storage job"
            )
        return ""

    def restart_fault(self, host: str, last: str) -> str:
        """Return why the service on a host cannot be killed and started again; nothing if it can. ``last``: the last
        storage node, which has the cluster manager if no other is named."""
        if self.cluster_manager is None:
            return "nobody would let its service back; set cluster_manager of the storage job"
        if (self.cluster_manager.host or last) == host:
            return f"the cluster manager is on {host}, too, and is not started again; set cluster_manager.host"
        return ""

    def _too_many(self) -> Iterator[str]:
        """Yield what has more chunks than services and clients can have in their memory."""
        read, written, restored = self.dataloader, self.checkpoint, self.restore
        found = {
            f"dataloader: {read.files} files of {format_size(read.file_size)}": read.files * read.file_size,
            f"checkpoint.size: {format_size(written.size)}": written.size if written.share else 0,
            f"restore.size: {format_size(restored.size)}": restored.size if restored.share else 0,
        }
        if self.chunk_io is not None:
            files, size = self.chunk_io.numjobs, self.chunk_io.size
            found[f"chunk_io: {files} files of {format_size(size)} per client"] = files * size
        for what, size in found.items():
            if (chunks := size // self.chunk_size) > _MOST_CHUNKS:
                yield f"{what} are {chunks:,} chunks, more than {_MOST_CHUNKS:,}; lower it or raise chunk_size"

    def _faults(self) -> Iterator[str]:
        if self.chunk_size > self.client.max_batch_size:
            chunk, most = format_apart(self.chunk_size, self.client.max_batch_size, format_size)
            why = "a read of a whole chunk must fit in one request"
            yield f"chunk_size {chunk} exceeds client.max_batch_size {most}; {why}"
        yield from self._too_many()
        if self.dataloader.share == self.checkpoint.share == self.restore.share == 0 and self.chunk_io is None:
            yield "dataloader.share, checkpoint.share and restore.share are 0, so nobody reads or writes; raise one"
