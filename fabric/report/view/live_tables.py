"""The tables of a run that plays, as far as their rows have come: what reads those of a result reads these, too."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fabric.measure.live_file import LiveSeries
from fabric.results import Phase
from fabric.tables import TABLES

if TYPE_CHECKING:
    import pandas as pd

Row = Mapping[str, Any]


class LiveRows:
    """Rows as they come, by phase and table; several threads may use them."""

    def __init__(self) -> None:
        self._rows: dict[tuple[str, str], list[Row]] = {}
        self._lock = threading.Lock()
        self.version = 0
        """Grows with each row."""

    def take(self, phase: str, table: str, rows: Sequence[Row], is_whole: bool = False) -> None:
        """Take rows of a table; ``is_whole``: they are all of a phase that has ended, and replace earlier ones."""
        with self._lock:
            known = self._rows.setdefault((phase, table), [])
            if is_whole:
                known.clear()
            known.extend(rows)
            self.version += len(rows)

    def of(self, series: Sequence[LiveSeries]) -> LiveTables:
        """Return the tables of phases that have samples."""
        phases = [_phase(one) for one in series if one.at_s]
        names = {phase.name for phase in phases}
        with self._lock:
            rows: dict[str, list[Row]] = {}
            for (name, table), found in self._rows.items():
                rows.setdefault(table, []).extend(found if name in names else [])
            told = {name for name, table in self._rows if table == "jobs"}
        for phase, one in zip(phases, _with_samples(series), strict=True):
            playing = one.phase.jobs if phase.name not in told else ()
            rows.setdefault("jobs", []).extend(_playing(phase, job) for job in playing)
        return LiveTables(phases, rows)


def _with_samples(series: Sequence[LiveSeries]) -> list[LiveSeries]:
    return [one for one in series if one.at_s]


def _phase(one: LiveSeries) -> Phase:
    phase = one.phase
    return Phase(phase.name, phase.title, phase.queueing, one.at_s[0], one.at_s[-1], phase.routing)


def _playing(phase: Phase, job: str) -> Row:
    """Return the row of a job that plays, or whose phase has told no more of it."""
    times = {"started_s": phase.started_s, "halted_s": phase.ended_s, "ended_s": phase.ended_s}
    return {"phase": phase.name, "job": job, "service_level": "", **times, "failed": ""}


class LiveTables:
    """Phases and tables as a :class:`fabric.results.Result` has them."""

    def __init__(self, phases: Sequence[Phase], rows: Mapping[str, Sequence[Row]]) -> None:
        self.phases = list(phases)
        self._rows = {name: found for name, found in rows.items() if found}

    @property
    def tables(self) -> frozenset[str]:
        """The names of those that are there."""
        return frozenset((*TABLES, *self._rows))

    def table(self, name: str) -> pd.DataFrame:
        """Return a table's rows so far."""
        import pandas as pd

        declared, rows = TABLES.get(name), self._rows.get(name, [])
        if declared is None:
            return pd.DataFrame(rows)
        return pd.DataFrame(rows, columns=list(declared.columns)).astype(declared.dtypes) if rows else declared.empty()
