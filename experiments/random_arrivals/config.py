"""The config of ``random_arrivals``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from pydantic import AfterValidator, Field

from fabric.config import SizeBytes
from fabric.model.lanes import Queueing
from fabric.model.network import Fabric
from runs.config import QueueingConfig, each_once
from runs.phase_lengths import PhaseLengths

HEADERS_BYTES = 14 + 20 + 8
"""Ethernet's, IP's and UDP's."""
Load = Annotated[float, Field(gt=0, lt=1)]


class RandomArrivalsConfig(QueueingConfig):
    """Packets that come at random to one link."""

    queueing: Annotated[Queueing, Field(strict=False)] = Field(
        default=Queueing.LOSSLESS, description="Queueing of the link."
    )
    loads: Annotated[list[Load], Field(min_length=1), AfterValidator(each_once)] = Field(
        default_factory=lambda: [0.2, 0.4, 0.6, 0.8],
        description="Loads of the link, as fractions of its rate; each is a phase.",
    )
    frames: Annotated[int, Field(ge=2, le=1_000_000)] = Field(
        default=8000, description="Packets of each load. More narrow the error of the mean wait."
    )
    payload: Annotated[SizeBytes, Field(ge=18)] = Field(default=1024, description="Payload of each packet.")
    batches: Annotated[int, Field(ge=2, le=1_000_000)] = Field(
        default=20, description="Stretches of packets whose means give the error of the mean."
    )

    @property
    def phase_lengths(self) -> PhaseLengths:
        """As long as drawn arrivals take."""
        return PhaseLengths(until="all packets have arrived")

    def faults(self, fabric: Fabric) -> Iterator[str]:
        """Yield what does not fit the fabric."""
        yield from super().faults(fabric)
        if len(fabric.computes) < 2:
            yield f"topology: {len(fabric.computes)} compute nodes; this needs 2"
        if self.payload + HEADERS_BYTES > fabric.frame_bytes:
            most = fabric.frame_bytes - HEADERS_BYTES
            yield f"payload: {self.payload} B does not fit a frame of {fabric.frame_bytes} B; make it {most} B or less"
        if self.frames < self.batches:
            yield f"batches: {self.batches} exceed the {self.frames} frames; lower it"
