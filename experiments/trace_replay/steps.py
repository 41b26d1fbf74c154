"""A graph of work as a job of a phase that plays it so often, however long that takes."""

from __future__ import annotations

import threading
import time
from functools import partial

from fabric.errors import TrafficError
from traffic.job import Records
from traffic.stepped_job import FiniteSteps
from traffic.work.job import WorkJob

_MARGIN_S = 60.0


class PlayedSteps(FiniteSteps):
    """A started job that plays a number of steps from some time of a phase on, beside others."""

    def __init__(self, job: WorkJob, steps: int, start_s: float) -> None:
        super().__init__(job, partial(job.run_steps, steps))
        self._longest_s = start_s + steps * job.step_timeout_s + _MARGIN_S
        self._count = steps
        self._start_s = start_s
        self._thread: threading.Thread | None = None
        self._error: Exception | None = None

    def play(self, phase: str) -> None:
        """Begin; returns at once."""
        super().play(phase)
        self._thread = threading.Thread(target=self._play, daemon=True)
        self._thread.start()

    def _play(self) -> None:
        try:
            time.sleep(self._start_s)
            super().finish()
        except Exception as error:  # Whatever it is, it is raised where somebody waits.
            self._error = error

    def finish(self) -> None:
        """Return once the steps have ended. Raises TrafficError if one failed, or not all end in time."""
        assert self._thread is not None, "play() comes first"
        self._thread.join(self._longest_s)
        if self._thread.is_alive():
            what = f"{self.name}: {self._count} steps did not end within {self._longest_s:,.0f} s"
            raise TrafficError(f"{what}; look for cut links or raise step_timeout")
        if self._error is not None:
            raise self._error

    def halt(self) -> Records:
        """Return the rows of the steps."""
        self.finish()
        return super().halt()
