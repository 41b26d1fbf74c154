"""What ``data_loader`` plays: its config, and the variants that it comes to."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Annotated

from pydantic import AfterValidator, Field

from fabric.config import TimeS
from fabric.model.lanes import Queueing
from fabric.model.network import Fabric
from fabric.units import exact_in, format_time
from runs.config import Choices, QueueingsConfig, each_once, storage_faults
from runs.phase_lengths import PhaseLengths
from traffic.storage.config import MOST_READS, StorageConfig
from traffic.storage.load_config import EpochsConfig, SampleOrder

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
            yield "storage.dataloader.epochs: there are none; give it, e.g. {count: 1}"
        elif self.storage.dataloader.epochs.count is None:
            yield "storage.dataloader.epochs.count: epochs would not end; give it, e.g. 1"
        batch = self.storage.dataloader.batch
        if (asked := (max(self.prefetches) + 1) * batch) > MOST_READS:
            yield (
                f"prefetches: {max(self.prefetches)} and one more batch of {batch} are {asked:,} reads of each client "
                f"at once, more than {MOST_READS:,}; lower it or storage.dataloader.batch"
            )


@dataclass(frozen=True)
class Variant:
    """How long a batch is computed for, in which order samples come, and how many batches are asked for ahead."""

    queueing: Queueing
    compute_s: float
    order: SampleOrder
    prefetch: int

    @property
    def name(self) -> str:
        """The name of its phase."""
        time = f"{exact_in(self.compute_s, 1_000_000)}us".replace(".", "p")
        return f"{self.queueing.value}_{time}_{self.order.value}_ahead_{self.prefetch}"

    @property
    def title(self) -> str:
        """Return the title of its phase."""
        return f"{self.group}, {self.ahead_words}"

    @property
    def group(self) -> str:
        """What it shares with variants that only ask for more or fewer batches ahead, in words."""
        order = self.order.value.replace("_", " ")
        return f"{format_time(self.compute_s)} a batch, {order}, {self.queueing.words}"

    @property
    def ahead_words(self) -> str:
        """How many batches are asked for ahead, in words."""
        return f"{self.prefetch} ahead" if self.prefetch else "each when wanted"

    def storage(self, config: StorageConfig) -> StorageConfig:
        """Return the storage job's config."""
        given = config.dataloader.epochs or EpochsConfig()
        changed = {"compute": self.compute_s, "order": self.order, "prefetch": self.prefetch}
        epochs = given.model_copy(update=changed)
        return config.model_copy(update={"dataloader": config.dataloader.model_copy(update={"epochs": epochs})})


def variants(config: DataLoaderConfig) -> tuple[Variant, ...]:
    """Return all variants."""
    axes = product(config.queueings, config.computes, config.orders, config.prefetches)
    return tuple(Variant(*one) for one in axes)
