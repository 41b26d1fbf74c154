"""What ``checkpoint_restore`` plays: its config, and the variants that it comes to."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from itertools import product
from typing import Annotated

from pydantic import AfterValidator, Field

from fabric.model.lanes import Queueing
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

    def control_in(self, queueing: Queueing) -> str:
        """Return the congestion control of storage in a queueing."""
        return self.congestion_control.get("storage", "cubic") if queueing.is_lossless else self.dropping_control

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


@dataclass(frozen=True)
class Variant:
    """What is restored, with which limit (None: none), in which queues."""

    queueing: Queueing
    parts: Parts
    limit: int | None

    @property
    def name(self) -> str:
        """The name of its phase."""
        limit = "off" if self.limit is None else self.limit
        return f"{self.queueing.value}_{self.parts.value}_rts_{limit}"

    @property
    def title(self) -> str:
        """Return the title of its phase."""
        return f"{self.parts.words}, {self.limit_words}, {self.queueing.words}"

    @property
    def limit_words(self) -> str:
        """Its limit, in words."""
        return "no limit" if self.limit is None else f"{self.limit} send at once"

    def storage(self, config: StorageConfig) -> StorageConfig:
        """Return the storage job's config."""
        changed = {
            "of": RestoreOf.OWN if self.parts is Parts.OWN else RestoreOf.SAME,
            "begin": RestoreBegin.SPREAD if self.parts is Parts.SAME_SPREAD else RestoreBegin.START,
        }
        restore = config.restore.model_copy(update=changed)
        return config.model_copy(update={"restore": restore, "request_to_send": self.limit})


def variants(config: CheckpointRestoreConfig) -> tuple[Variant, ...]:
    """Return all variants, a queueing after the other."""
    return tuple(Variant(*one) for one in product(config.queueings, config.parts, config.request_to_send))
