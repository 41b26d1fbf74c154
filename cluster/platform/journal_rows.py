"""Rows of a platform's events and jobs while its journal grows, as they are at the end of a phase."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from cluster.nodes import Nodes
from cluster.platform.event_rows import EVENTS
from cluster.platform.journal import JournalTail
from cluster.platform.programs import JOBS, job_rows, rows_of
from cluster.platform.state import PlatformState
from cluster.tasks import Users
from traffic.job import Records


class JournalRows:
    """Rows of a journal from ``offset`` bytes on, those behind its first ``before`` events, and the state that all of
    them led to."""

    def __init__(self, journal: Path, known: tuple[Nodes, Users], phase: str, before: int = 0, offset: int = 0) -> None:
        self._tail, self._phase, self._passed = JournalTail(journal, offset), phase, before
        self.state = PlatformState(*known)

    def begin(self, phase: str) -> None:
        """Pass over what has come, and let rows of what follows name another phase."""
        self.read()
        self._phase = phase

    def read(self, origin_s: float = 0.0) -> Records:
        """Return the rows of what has come since the last call, ``origin_s`` after the journal's times. Raises
        ConfigError for a line that is not an event."""
        events = list(self._tail.events())
        for event in events:
            self.state.apply(event)
        new = [replace(event, at_s=event.at_s + origin_s) for event in events[self._passed :]]
        self._passed = max(0, self._passed - len(events))
        records = Records()
        records.add(EVENTS, rows_of(new, self.state, self._phase))
        records.add(JOBS, job_rows(new, self.state, self._phase))
        return records
