"""The tables of a run while it goes on: frames and rows are added phase by phase, and written at its end."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from fabric.results import TABLES, TIME_COLUMNS, empty_table
from traffic.job import Records


class RunTables:
    """Tables of :data:`fabric.results.TABLES`. ``origin`` is the run's time zero (``time.monotonic()``)."""

    def __init__(self) -> None:
        self.origin = time.monotonic()
        self._frames: dict[str, list[pd.DataFrame]] = {}

    def keep_frame(self, name: str, frame: pd.DataFrame) -> None:
        """Add rows, whose times are already seconds of the run, to a table."""
        self._frames.setdefault(name, []).append(frame)

    def keep_rows(self, name: str, rows: Sequence[Mapping[str, Any]]) -> None:
        """Add rows, whose times are ``time.monotonic()``, to a table."""
        if rows:
            frame = pd.DataFrame(rows, columns=list(TABLES[name]))
            for column in TIME_COLUMNS:
                if column in frame:
                    frame[column] -= self.origin
            self.keep_frame(name, frame)

    def keep_records(self, records: Records) -> None:
        """Add what jobs measured."""
        for name, rows in vars(records).items():
            self.keep_rows(name, rows)

    def table(self, name: str) -> pd.DataFrame:
        """Return all rows of a table so far."""
        frames = [frame for frame in self._frames.get(name, []) if not frame.empty]
        return pd.concat(frames, ignore_index=True) if frames else empty_table(name)
