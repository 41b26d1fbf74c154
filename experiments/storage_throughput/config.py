"""The config of ``storage_throughput``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from pydantic import AfterValidator, Field

from fabric.model.lanes import Queueing
from fabric.model.network import Fabric
from runs.config import Choices, CountedPhases, each_once, storage_faults
from runs.job_config import AnyJobConfig, job_faults
from traffic.storage.config import RequestToSend, StorageConfig

READS = "storage"
"""The name of the job that reads."""


class StorageThroughputConfig(CountedPhases):
    """All compute nodes read from all storage nodes in each of ``queueings`` with each limit of ``request_to_send``."""

    request_to_send: Annotated[list[RequestToSend], Field(min_length=1), AfterValidator(each_once)] = Field(
        default_factory=lambda: [None, 8],
        description="Limits on the reads that may send to a client at once; `off`: all.",
    )
    queueings: Choices[Queueing] = Field(
        default_factory=lambda: [Queueing.LOSSLESS_LANES], description="Queueings to compare."
    )
    storage: StorageConfig = Field(
        default_factory=StorageConfig, description="The storage service and its clients' reads."
    )
    beside: list[AnyJobConfig] = Field(
        default_factory=list,
        max_length=100,
        description=(
            "Jobs on the compute nodes that read: each variant then plays a second time with them, and they play once "
            "without reads. Such as the training that 3FS's own measurement had behind it."
        ),
    )

    def faults(self, fabric: Fabric) -> Iterator[str]:
        """Yield what does not fit the fabric."""
        yield from super().faults(fabric)
        yield from storage_faults(fabric, "all compute nodes read from them")
        counted_s = self.phase_time - self.warm_up
        if 0 < counted_s < 2 * self.sampled_every_s:
            least = f"two samples of ports, {self.sampled_every_s:g} s apart"
            yield f"phase_time: {counted_s:g} s count, which have not {least}; raise it or lower sample_period"
        if self.storage.checkpoint.share:
            yield f"storage.checkpoint.share: {self.storage.checkpoint.share:g}, but nobody writes here; set it to 0"
        if self.storage.restore.share:
            yield f"storage.restore.share: {self.storage.restore.share:g}, but nobody restores here; set it to 0"
        yield from self._beside_faults(fabric)

    def _beside_faults(self, fabric: Fabric) -> Iterator[str]:
        for fault in job_faults(self.beside, fabric, self.phase_time, self.queues.data_levels):
            yield fault.replace("jobs", "beside", 1)
        if any(job.name == READS for job in self.beside):
            yield f"beside: {READS} is the name of the job that reads; name yours otherwise"
