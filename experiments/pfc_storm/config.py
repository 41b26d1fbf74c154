"""The config of ``pfc_storm``: for how long a NIC pauses, which watchdogs there are, who writes to whom."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field

from fabric.config import OFF_IS_NONE, NoneAs, TimeS
from fabric.model.lanes import FlowControl, Queueing, ServiceLevel
from fabric.model.network import Fabric, Nic
from fabric.model.patterns import permutation
from fabric.units import format_time
from runs.config import RunConfig, each_once, short_faults
from runs.phase_lengths import PhaseLengths
from traffic.flows.streams import LEAD_S, Stream, Timetable

Duration = Annotated[TimeS, Field(gt=0)]
EVER_S = 3600.0
Watchdog = Annotated[Duration | None, OFF_IS_NONE, NoneAs("off")]
Pause = Annotated[Watchdog, BeforeValidator(lambda value: EVER_S if value == "ever" else value)]


def pause_words(pause: float | None) -> str:
    """Return how long a NIC pauses, in words."""
    return "no pause" if pause is None else "forever" if pause >= EVER_S else f"for {format_time(pause)}"


def watchdog_words(watchdog: float | None) -> str:
    """Return which watchdog there is, in words."""
    return "no watchdog" if watchdog is None else f"watchdog {format_time(watchdog)}"


class PfcStormConfig(RunConfig):
    """The cases: every combination of ``pauses`` and ``watchdogs``."""

    streams: Annotated[int, Field(ge=1, le=64)] = Field(
        default=2, description="Streams of each host, to hosts drawn at random; each receives as many."
    )
    pauses: Annotated[list[Pause], Field(min_length=1), AfterValidator(each_once)] = Field(
        default_factory=lambda: [None, 0.0003, EVER_S],
        description="For how long the first host's NIC pauses what its switch sends it; `off`: not; `ever`: an hour.",
    )
    watchdogs: Annotated[list[Watchdog], Field(min_length=1), AfterValidator(each_once)] = Field(
        default_factory=lambda: [None, 0.0001],
        description="After how long a lane of a switch that stands still drops what it has (`queues.watchdog`).",
    )
    warm_up: Duration = Field(
        default=0.0003, description="Start of each phase, which does not count; then the NIC pauses."
    )
    measured: Duration = Field(default=0.0007, description="Time that is measured after the warm-up.")

    @property
    def queueings_played(self) -> tuple[Queueing, ...]:
        """One lane without loss."""
        return (Queueing.LOSSLESS,)

    @property
    def timetable(self) -> Timetable:
        """The times of a phase; all streams begin at once."""
        return Timetable(self.warm_up, self.measured, 0.0)

    def played(self, fabric: Fabric) -> list[Stream]:
        """Return the streams, one permutation of hosts after the other."""
        draw = random.Random(f"{self.seed}")
        nics = [fabric.nics_of[host][0] for host in fabric.computes]
        pairs = [pair for _ in range(self.streams) for pair in permutation(fabric, nics, draw)]
        return [Stream(source.node, sink.node, ServiceLevel.OTHER) for source, sink in pairs]

    def ends(self, fabric: Fabric) -> list[tuple[Nic, Nic]]:
        """Return the NICs of each stream, the sender's first."""
        return [(fabric.nics_of[one.source][0], fabric.nics_of[one.sink][0]) for one in self.played(fabric)]

    @property
    def phase_lengths(self) -> PhaseLengths:
        """All phases are as long."""
        return PhaseLengths({"warm_up and measured": LEAD_S + self.warm_up + self.measured})

    @property
    def cuts_links(self) -> bool:
        """A NIC pauses, if it shall."""
        return any(self.pauses) or super().cuts_links

    def faults(self, fabric: Fabric) -> Iterator[str]:
        """Yield what does not fit the fabric."""
        yield from super().faults(fabric)
        yield from (f"measured: {fault}" for fault in short_faults(fabric, self.measured))
        if self.queues.flow_control is not FlowControl.PFC:
            yield f"queues.flow_control: {self.queues.flow_control.value} pauses nobody; use pfc"
        if self.queues.watchdog is not None:
            yield "queues.watchdog: is not what decides here; remove it and set watchdogs"
