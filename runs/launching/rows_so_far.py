"""What has happened in a phase that plays, told to those who watch the run, as rows of the result's tables."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from queue import Empty, SimpleQueue
from typing import Any

from controllers.client import ControllerEvent
from fabric.errors import FabricError
from fabric.failures.report import Change
from fabric.results import TIME_COLUMNS
from runs.launching.events import NewRows, Report
from runs.phase_rows import controller_rows, failure_row
from traffic.job import TellsSoFar

_LOOK_S = 0.5
Row = Mapping[str, Any]


class RowsSoFar:
    """Tells in a thread, for the time of a block. ``actions``: what the controller has done since the phase began;
    ``origin_s``: the run's time zero (``time.monotonic()``)."""

    def __init__(
        self,
        phase: str,
        jobs: Sequence[TellsSoFar],
        actions: Callable[[], Sequence[ControllerEvent]],
        origin_s: float,
        report: Report,
    ) -> None:
        self._phase, self._jobs, self._actions, self._origin_s, self._report = phase, jobs, actions, origin_s, report
        self._changes: SimpleQueue[Change] = SimpleQueue()
        self._told_actions = 0
        self._is_over = threading.Event()

    def hear(self, change: Change) -> None:
        """Take a change of what fails, from any thread."""
        self._changes.put(change)

    @contextmanager
    def telling(self) -> Iterator[None]:
        """Tell, now and then."""
        thread = threading.Thread(target=self._run, daemon=True, name="rows so far")
        thread.start()
        try:
            yield
        finally:
            self._is_over.set()
            thread.join()

    def _run(self) -> None:
        while not self._is_over.wait(_LOOK_S):
            self.tell()

    def tell(self) -> None:
        """Tell what is new."""
        self._tell("failures", [failure_row(self._phase, one) | {"ended_s": math.nan} for one in self._new_changes()])
        with suppress(FabricError):  # A controller that was killed says nothing, and the run goes on.
            actions = self._actions()
            self._tell("controller", controller_rows(self._phase, actions[self._told_actions :]))
            self._told_actions = len(actions)
        for job in self._jobs:
            for table, rows in job.so_far().items():
                self._tell(table, [row | {"job": job.name} for row in rows])

    def _new_changes(self) -> Iterator[Change]:
        with suppress(Empty):
            while True:
                yield self._changes.get_nowait()

    def _tell(self, table: str, rows: Sequence[Row]) -> None:
        if rows:
            self._report(NewRows(self._phase, table, tuple(self._in_run(row) for row in rows)))

    def _in_run(self, row: Row) -> Row:
        return {name: value - self._origin_s if name in TIME_COLUMNS else value for name, value in row.items()}
