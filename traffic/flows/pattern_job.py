"""A traffic pattern as a job: between NICs, connections that never run dry, and what of each arrives in a period.

A host has one program for all that it sends and receives (:mod:`traffic.flows.pair_streams`). Connections are open
before a phase begins, so that it is known by then which ports, and with that which paths, they have.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fabric.errors import TrafficError
from fabric.model.identity import NodeId
from fabric.model.lanes import ServiceLevel
from fabric.model.patterns import NicPair
from traffic.flows.pair_streams import Streams
from traffic.job import Records, Stage
from traffic.program_group import ProgramGroup

OPERATION = "stream"
"""What rows of the ``operations`` table call them."""


class PatternJob:
    """A :class:`traffic.job.Job` of flows that :meth:`connect` is told before each phase. All send for ``warm_up_s``
    and then for ``measured_s``, in which what arrives counts.

    ``goodput_bps``: what each flow delivered in the last phase.
    """

    def __init__(self, stage: Stage, warm_up_s: float, measured_s: float, level: ServiceLevel) -> None:
        self.level = level
        self.name = level.label
        self.goodput_bps: dict[NicPair, float] = {}
        self._streams = Streams(stage, level)
        self._times = (warm_up_s, measured_s)
        self._phase = ""
        self._measured_from = 0.0

    @property
    def failing_programs(self) -> Sequence[ProgramGroup[NodeId]]:
        """Its programs, for failures."""
        return self._streams.failing_programs

    def start(self) -> None:
        """Fork all programs. Raises TrafficError naming a host that failed."""
        self._streams.start()

    def connect(self, flows: Sequence[NicPair]) -> dict[NicPair, tuple[int, int]]:
        """Open a connection for each flow of the next phase, and return its ports, the source's first. Raises
        TrafficError, also if a flow does not get one."""
        ports = self._streams.connect(flows)
        if missing := [flow for flow in flows if flow not in ports]:
            source, destination = missing[0]
            count = f"{len(missing)} of {len(flows)} have none"
            raise TrafficError(f"{source.port} to {destination.port}: no connection; {count}; look for links that fail")
        return {flow: ports[flow] for flow in flows}

    def play(self, phase: str) -> None:
        """Let all flows send; returns at once."""
        self._phase = phase
        self._measured_from = self._streams.begin(*self._times)

    def halt(self) -> Records:
        """Wait for the phase's end and return a row of each flow. Raises TrafficError."""
        self.goodput_bps = self._streams.received_bps()
        return Records(operations=[self._row(*flow) for flow in self.goodput_bps.items()])

    def _row(self, flow: NicPair, goodput_bps: float) -> dict[str, Any]:
        source, destination = flow
        return {
            "phase": self._phase,
            "service_level": self.level.label,
            "operation": OPERATION,
            "host": source.node.name,
            "peer": destination.node.name,
            "size_bytes": round(goodput_bps * self._times[1] / 8),
            "started_s": self._measured_from,
            "ended_s": self._measured_from + self._times[1],
            "retries": 0,
        }

    def close(self) -> None:
        """End the programs."""
        self._streams.close()
