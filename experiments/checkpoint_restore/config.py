"""The config of ``checkpoint_restore``."""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from typing import Annotated

from pydantic import AfterValidator, Field

from fabric.model.lanes import Queueing, ServiceLevel
from fabric.model.network import Fabric
from runs.config import Choices, QueueingsConfig, each_once, storage_faults
from runs.phase_lengths import PhaseLengths
from traffic import congestion_control
from traffic.storage.config import RequestToSend, StorageConfig
from traffic.storage.load_config import RestoreBegin, RestoreOf


class Parts(str, Enum):
    """What nodes restore: each a file of its own, all one file from its start on, or all one file, each from another
    place on."""

    OWN = "own"
    SAME = "same"
    SAME_SPREAD = "same_spread"

    @property
    def words(self) -> str:
        """It in words."""
        return {Parts.OWN: "own files", Parts.SAME: "one file", Parts.SAME_SPREAD: "one file, begun all over"}[self]

    @property
    def keys(self) -> dict[str, object]:
        """The keys of the config that say so."""
        return {
            "storage.restore.of": RestoreOf.OWN if self is Parts.OWN else RestoreOf.SAME,
            "storage.restore.begin": RestoreBegin.SPREAD if self is Parts.SAME_SPREAD else RestoreBegin.START,
        }


class CheckpointRestoreConfig(QueueingsConfig):
    """All compute nodes restore in each of ``queueings``, with each limit of ``request_to_send`` and each of
    ``parts``."""

    queueings: Choices[Queueing] = Field(
        default_factory=lambda: [Queueing.LANES, Queueing.LOSSLESS_LANES], description="Queueings to compare."
    )
    parts: Choices[Parts] = Field(
        default_factory=lambda: list(Parts),
        description=(
            "What nodes restore: each its `own` file (sharded state), all the `same` one from its start on (weights), "
            "or that with each node beginning elsewhere (`same_spread`)."
        ),
    )
    request_to_send: Annotated[list[RequestToSend], Field(min_length=1, max_length=100), AfterValidator(each_once)] = (
        Field(
            default_factory=lambda: [None, 8, 2],
            description="Limits on the reads that may send to a client at once; `off`: all.",
        )
    )
    dropping_control: str = Field(
        default="cubic",
        description="TCP congestion control of storage in queueings that drop; `congestion_control` is for the others.",
    )
    storage: StorageConfig = Field(default_factory=StorageConfig, description="The storage service and the restore.")

    @property
    def controls_played(self) -> dict[str, str]:
        """Those of the config, and that for queueings that drop."""
        return {**self.congestion_control, "storage in queues that drop": self.dropping_control}

    def controls_in(self, queueing: Queueing) -> dict[ServiceLevel, str]:
        """Return the congestion control of each service level in a queueing: where that drops, storage has its own."""
        of_storage = {} if queueing.is_lossless else {ServiceLevel.STORAGE: self.dropping_control}
        return {**self.congestion_controls(), **of_storage}

    @property
    def phase_lengths(self) -> PhaseLengths:
        """Until all have restored."""
        return PhaseLengths(until="all nodes have restored")

    def faults(self, fabric: Fabric) -> Iterator[str]:
        """Yield what does not fit the fabric."""
        yield from super().faults(fabric)
        yield from storage_faults(fabric, "all compute nodes restore from them")
        for fault in congestion_control.faults({"storage": self.dropping_control}, self.queues.marks):
            yield fault.replace("congestion_control.storage", "dropping_control", 1)
        for load in (self.storage.dataloader, self.storage.checkpoint):
            if load.share:
                key = "dataloader" if load is self.storage.dataloader else "checkpoint"
                yield f"storage.{key}.share: {load.share:g}, but clients only restore here; set it to 0"
