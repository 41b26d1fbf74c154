"""A graph of work as a job of a phase that plays it so often, however long that takes."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence

from fabric.errors import TrafficError
from traffic.job import Records
from traffic.program_group import ProgramGroup
from traffic.work.job import WorkJob

_MARGIN_S = 60.0


class PlayedSteps:
    """A started job that plays a number of steps from some time of a phase on, beside others: a
    :class:`traffic.job.FiniteJob`. Who started the job closes it."""

    def __init__(self, job: WorkJob, steps: int, start_s: float) -> None:
        self.name = job.name
        self.level = job.level
        self._job = job
        self._steps = steps
        self._start_s = start_s
        self._thread: threading.Thread | None = None
        self._records = Records()
        self._error: Exception | None = None

    @property
    def failing_programs(self) -> Sequence[ProgramGroup[int]]:
        """The job's programs, for failures."""
        return self._job.failing_programs

    def start(self) -> None:
        """Do nothing: the job has started."""

    def play(self, phase: str) -> None:
        """Begin; returns at once."""
        self._thread = threading.Thread(target=self._play, args=(phase,), daemon=True)
        self._thread.start()

    def _play(self, phase: str) -> None:
        try:
            time.sleep(self._start_s)
            self._records = self._job.run_steps(self._steps, phase)
        except Exception as error:  # Whatever it is, it is raised where somebody waits.
            self._error = error

    def finish(self) -> None:
        """Return once the steps have ended. Raises TrafficError if one failed, or not all end in time."""
        assert self._thread is not None, "play() comes first"
        longest_s = self._start_s + self._steps * self._job.step_timeout_s + _MARGIN_S
        self._thread.join(longest_s)
        if self._thread.is_alive():
            what = f"{self.name}: {self._steps} steps did not end within {longest_s:,.0f} s"
            raise TrafficError(f"{what}; look for cut links or raise step_timeout")
        if self._error is not None:
            raise self._error

    def halt(self) -> Records:
        """Return the rows of the steps."""
        self.finish()
        records, self._records = self._records, Records()
        return records

    def close(self) -> None:
        """Do nothing: who started the job closes it."""
