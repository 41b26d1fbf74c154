"""The config of ``data_loader``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from pydantic import AfterValidator, Field

from fabric.config import TimeS
from fabric.model.lanes import Queueing
from fabric.model.network import Fabric
from runs.config import Choices, QueueingsConfig, each_once, storage_faults
from runs.phase_lengths import PhaseLengths
from traffic.storage.config import MOST_READS, StorageConfig
from traffic.storage.load_config import SampleOrder

Ahead = Annotated[int, Field(ge=0, le=4096)]
Time = Annotated[TimeS, Field(ge=0)]


class DataLoaderConfig(QueueingsConfig):
    """All compute nodes read an epoch of a data set, in each of ``queueings``, with each time of computing, each order
    and each number of batches that are asked for ahead."""

    queueings: Choices[Queueing] = Field(
        default_factory=lambda: [Queueing.LOSSLESS_LANES], description="Queueings to compare."
    )
    computes: Annotated[list[Time], Field(min_length=1, max_length=100), AfterValidator(each_once)] = Field(
        default_factory=lambda: [0.0001, 0.0005], description="Times that a batch is computed for."
    )
    orders: Choices[SampleOrder] = Field(
        default_factory=lambda: [SampleOrder.SHUFFLED], description="Orders of an epoch's samples."
    )
    prefetches: Annotated[list[Ahead], Field(min_length=1, max_length=100), AfterValidator(each_once)] = Field(
        default_factory=lambda: [0, 1, 2, 4],
        description="Batches that are asked for ahead of the one that is computed.",
    )
    storage: StorageConfig = Field(
        default_factory=StorageConfig, description="The storage service and its clients' reads."
    )

    @property
    def phase_lengths(self) -> PhaseLengths:
        """As long as an epoch takes."""
        return PhaseLengths(until="all batches are read")

    def faults(self, fabric: Fabric) -> Iterator[str]:
        """Yield what does not fit the fabric."""
        yield from super().faults(fabric)
        yield from storage_faults(fabric, "all compute nodes read from them")
        for load in (self.storage.checkpoint, self.storage.restore):
            if load.share:
                key = "checkpoint" if load is self.storage.checkpoint else "restore"
                yield f"storage.{key}.share: {load.share:g}, but clients only read epochs here; set it to 0"
        if self.storage.dataloader.epochs is None:
            yield "storage.dataloader.epochs: is missing; give it, e.g. {count: 1}"
        elif self.storage.dataloader.epochs.count is None:
            yield "storage.dataloader.epochs.count: epochs would not end; give it, e.g. 1"
        batch = self.storage.dataloader.batch
        if (asked := (max(self.prefetches) + 1) * batch) > MOST_READS:
            yield (
                f"prefetches: {max(self.prefetches)} and one more batch of {batch} are {asked:,} reads of each client "
                f"at once, more than {MOST_READS:,}; lower it or storage.dataloader.batch"
            )
