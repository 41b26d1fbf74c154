"""What each Service Level gets of one port's link: of the port that sends the most while programs play alone."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

import pandas as pd

from fabric.failures.kinds.process import FailingPrograms, HasPrograms
from fabric.model.lanes import ServiceLevel
from fabric.model.network import Fabric, Port
from runs.job_metrics import sent_by_port
from traffic.job import Job, Records


class WatchedJob:
    """The job that starts first and is halted first, and what a port sent meanwhile: ``levels_Bps``, in bytes per
    second of each service level, from its start until the order to halt. ``read`` returns the bytes since the last
    reading, ``now`` the time. What others and the job itself send after that belongs to a load that no longer plays."""

    def __init__(
        self,
        job: Job,
        read: Callable[[], Mapping[ServiceLevel, int]],
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name, self.level = job.name, job.level
        self.levels_Bps: dict[ServiceLevel, float] = {}
        self._job, self._read, self._now = job, read, now
        self._began = 0.0

    @property
    def failing_programs(self) -> Sequence[FailingPrograms]:
        """The job's programs, for failures."""
        return self._job.failing_programs if isinstance(self._job, HasPrograms) else ()

    def start(self) -> None:
        """Start the job."""
        self._job.start()

    def play(self, phase: str) -> None:
        """Start to count, and to play."""
        self._read()
        self._began = self._now()
        self._job.play(phase)

    def halt(self) -> Records:
        """End the count, and the job."""
        counted, seconds = self._read(), self._now() - self._began
        self.levels_Bps = {level: size / seconds for level, size in counted.items()}
        return self._job.halt()

    def close(self) -> None:
        """Close the job."""
        self._job.close()


def busiest_switch_port(ports: pd.DataFrame, fabric: Fabric) -> Port:
    """Return the port of a switch that sends the most, as a fraction of its link, summed over phases played alone."""
    by_name = {str(port): port for port, _ in fabric.directed_ports() if port.node.is_switch}
    totals = sent_by_port(ports[ports["port"].isin(by_name)])
    relative = {name: total / fabric.link_at[by_name[name]].rate_bps for name, total in totals.items()}
    return by_name[max(relative, key=lambda name: relative[name])]
