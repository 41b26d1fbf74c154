"""The config of ``head_of_line``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from pydantic import Field

from fabric.config import TimeS
from fabric.model.lanes import Queueing
from fabric.model.network import Fabric
from runs.config import Choices, Duration, QueueingsConfig, short_faults
from runs.phase_lengths import PhaseLengths
from traffic.flows.streams import Timetable

_HOSTS = 6


def _untrimmed() -> list[Queueing]:
    return [one for one in Queueing if one is not Queueing.TRIMMED]


class HeadOfLineConfig(QueueingsConfig):
    """The queueings, how often each is played, and how long."""

    queueings: Choices[Queueing] = Field(
        default_factory=_untrimmed,
        description="The queueings to play, in this order: the same load in each.",
    )
    repeats: Annotated[int, Field(ge=1, le=1000)] = Field(
        default=3, description="How often each queueing is played, with other starts of its streams."
    )
    warm_up: Duration = Field(
        default=0.5, description="Start of each phase that is not measured, while windows open and buffers fill."
    )
    measured: Duration = Field(default=0.5, description="Time that is measured after the warm-up.")
    start_spread: Annotated[TimeS, Field(ge=0)] = Field(
        default=0.005, description="Streams begin at random times within this, different in each repeat."
    )
    time_scale: Annotated[float, Field(gt=0, le=1000, strict=False)] = Field(
        default=1.0,
        description="Multiplies the times of a phase and `sample_period`: 0.005 where links are 200 times as fast.",
    )

    @property
    def sampled_every_s(self) -> float:
        """The sample period, scaled."""
        return self.sample_period * min(1.0, self.time_scale)

    @property
    def timetable(self) -> Timetable:
        """The times of a phase, scaled."""
        scale = self.time_scale
        return Timetable(self.warm_up * scale, self.measured * scale, self.start_spread * scale)

    @property
    def phase_lengths(self) -> PhaseLengths:
        """A phase has all three."""
        key = "warm_up, measured and start_spread, x time_scale"
        return PhaseLengths({key: (self.warm_up + self.measured + self.start_spread) * self.time_scale})

    def faults(self, fabric: Fabric) -> Iterator[str]:
        """Yield what does not fit the fabric."""
        yield from super().faults(fabric)
        if len(fabric.computes) != _HOSTS or len(fabric.switches) != 4:
            have = f"{len(fabric.computes)} compute nodes and {len(fabric.switches)} switches"
            yield f"topology: has {have}; this needs {_HOSTS} at 3 leaves with 1 spine, as head_of_line has"
        yield from (f"measured: {fault}" for fault in short_faults(fabric, self.measured))
