"""The tables of a run while it goes on: frames and rows are added phase by phase, and written at its end."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import pandas as pd

from fabric.errors import ResultError
from fabric.results import TIME_COLUMNS
from fabric.tables import TABLES, Table
from runs.attempts import Attempts
from runs.known_tables import own_tables, verify_rows
from runs.phase_rows import move_rows
from runs.ways import Moved
from traffic.job import Records


class RunTables:
    """Tables of :data:`fabric.tables.TABLES`, those of kinds of jobs, and ``own``: those of the experiment. ``origin``
    is the run's time zero (``time.monotonic()``)."""

    def __init__(self, own: Mapping[str, Table] = MappingProxyType({})) -> None:
        self.origin = time.monotonic()
        self.attempts = Attempts()
        """The attempts at its phases, of which the last of each counts."""
        self._aside: RunTables | None = None
        self._known = {**TABLES, **own_tables(own)}
        self._frames: dict[str, list[pd.DataFrame]] = {}

    @property
    def aside(self) -> RunTables:
        """What jobs measured in attempts that do not count, in tables of the same names and the same origin."""
        if self._aside is None:
            self._aside = RunTables()
            self._aside.origin, self._aside._known = self.origin, self._known
        return self._aside

    def keep_frame(self, name: str, frame: pd.DataFrame) -> None:
        """Add rows to a table; times are already seconds of the run. Raises ResultError if there is no such table."""
        if name not in self._known:
            raise ResultError(f"table {name}: is not declared; give it to the experiment's tables")
        self._frames.setdefault(name, []).append(frame)

    def keep_rows(self, name: str, rows: Sequence[Mapping[str, Any]]) -> None:
        """Add rows, whose times are ``time.monotonic()``, to a table. Raises ResultError if there is no such table, or
        a row does not have its columns."""
        if name not in self._known:
            raise ResultError(f"table {name}: is not declared; give it to the experiment's tables")
        verify_rows(name, self._known[name], rows)
        if rows:
            frame = pd.DataFrame(rows, columns=list(self._known[name].columns))
            for column in TIME_COLUMNS:
                if column in frame:
                    frame[column] -= self.origin
            self.keep_frame(name, frame)

    def keep_records(self, records: Records) -> None:
        """Add what jobs measured."""
        for name, rows in records.items():
            self.keep_rows(name, rows)

    def keep_moves(self, phase: str, moves: Sequence[Moved]) -> None:
        """Add adaptive routing's moves, whose times are already seconds of the run, to the controller's rows."""
        if moves:
            frame = pd.DataFrame(move_rows(phase, moves), columns=list(self._known["controller"].columns))
            self.keep_frame("controller", frame)

    def table(self, name: str) -> pd.DataFrame:
        """Return all rows of a table so far."""
        frames = [frame for frame in self._frames.get(name, []) if not frame.empty]
        return pd.concat(frames, ignore_index=True) if frames else self._known[name].empty()
