"""The config of ``incast``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from pydantic import AfterValidator, Field

from fabric.model.lanes import Queueing
from fabric.model.network import Fabric
from runs.config import Choices, CountedPhases, each_once, storage_faults
from traffic import congestion_control
from traffic.storage.config import RequestToSend, StorageConfig

Count = Annotated[int, Field(ge=1, le=65_536)]


class IncastConfig(CountedPhases):
    """The variants: every combination of ``servers``, ``request_to_send``, ``controls`` and ``queueings``."""

    servers: Annotated[list[Count], Field(min_length=1), AfterValidator(each_once)] = Field(
        default_factory=lambda: [4, 16],
        description="Numbers of storage nodes that answer the client: the fabric's, in their order.",
    )
    request_to_send: Annotated[list[RequestToSend], Field(min_length=1), AfterValidator(each_once)] = Field(
        default_factory=lambda: [None, 8, 2, 1],
        description="Limits on the reads that may send to the client at once; `off`: all.",
    )
    controls: Annotated[list[str], Field(min_length=1), AfterValidator(each_once)] = Field(
        default_factory=lambda: ["line", "cubic", "dcqcn"],
        description="TCP congestion controls to compare; `line` is none.",
    )
    queueings: Choices[Queueing] = Field(
        default_factory=lambda: [Queueing.LANES, Queueing.LOSSLESS_LANES], description="Queueings to compare."
    )
    storage: StorageConfig = Field(
        default_factory=StorageConfig, description="The storage service and its client's reads."
    )

    @property
    def controls_played(self) -> dict[str, str]:
        """Those of the variants; what ``congestion_control`` says plays nowhere."""
        return {name: name for name in self.controls}

    def faults(self, fabric: Fabric) -> Iterator[str]:
        """Yield what does not fit the fabric."""
        yield from super().faults(fabric)
        yield from storage_faults(fabric, "storage nodes answer")
        if fabric.storages and max(self.servers) > len(fabric.storages):
            yield f"servers: {max(self.servers)} exceeds the {len(fabric.storages)} storage nodes; lower it"
        yield from congestion_control.faults({f"controls ({name})": name for name in self.controls}, marks=True)
