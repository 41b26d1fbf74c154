"""What a server of a run that plays answers: the page, and what was sampled since it last asked."""

from __future__ import annotations

import base64
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fabric.measure.live_file import LiveReader, LiveSeries
from fabric.records.palette import lane_colours
from fabric.report.users_jobs import users_jobs_of
from fabric.report.view.answers import PAGE_KIND, charts
from fabric.report.view.document import live_page
from fabric.report.view.grid import is_cumulative
from fabric.report.view.live_tables import LiveRows
from fabric.report.view.model import Described, Wires, fabric_as_page_reads_it
from fabric.report.view.packing import json_bytes, packed, zipped
from fabric.report.view.serving import Resource
from fabric.report.view.spans import happened_in
from fabric.report.view.users import users_on_page

_MOST_ROWS = 400
"""Samples per answer; the page asks again at once for what is left."""
LIVE = "live"
"""Where samples are asked for."""
_FAST = 1
_MOST_DIGITS = 15


@dataclass
class Progress:
    """How far a run is, in words for people: what is done, the verdict so far, the clock, where the result is."""

    note: str = ""
    phase: str = ""
    fraction: float = 0.0
    verdict: str = ""
    reasons: tuple[str, ...] = ()
    clock: str = ""
    result: str = ""


@dataclass
class Live:
    """A run that plays: its ``fabric.json``, what was sampled, how far it is, rows of tables that came. ``about``: what
    tells it from other runs of a sweep. ``lock``: whoever reads holds it, for as long as it goes through what was read:
    others read on."""

    fabric: Mapping[str, Any]
    reader: LiveReader
    experiment: str
    engine: str
    name: str = ""
    about: str = ""
    progress: Progress = field(default_factory=Progress)
    rows: LiveRows = field(default_factory=LiveRows)
    lock: Any = field(default_factory=threading.RLock)

    def series(self) -> list[LiveSeries]:
        """Return all that was sampled so far, phase by phase."""
        with self.lock:
            self.reader.read()
            return list(self.reader.series)


class LivePages:
    """The page of a run while it plays."""

    def __init__(self, live: Live) -> None:
        self._live = live
        self._wires = Wires.of(live.fabric)
        self._lanes: list[str] = []

    def answer(self, path: str, query: Mapping[str, str]) -> Resource | None:
        """Return what a path holds; ``live`` takes the number of a phase, and of the first sample that is wanted."""
        if path == "":
            return Resource(zipped(live_page(self.described()), _FAST), PAGE_KIND, is_zipped=True)
        if path == "charts.js":
            return charts()
        if path == LIVE:
            wanted = (query.get("phase", "0"), query.get("from", "0"))
            if not all(text.isdecimal() and len(text) <= _MOST_DIGITS for text in wanted):
                return None
            return Resource(
                zipped(json_bytes(self._since(*map(int, wanted))), _FAST), "application/json", is_zipped=True
            )
        return None

    def described(self) -> Described:
        """Return the run as the page has it before it asks for samples."""
        live = self._live
        values = {
            "title": ", ".join(filter(None, (live.experiment, live.about, "playing"))),
            "experiment": live.experiment,
            "directory": live.experiment,
            "engine": live.engine,
            "answer": "",
            "verdict": {"status": "playing", "reasons": [], "notes": []},
            "scale": "",
            "fabric": fabric_as_page_reads_it(live.fabric),
            "lanes": [],
            "level_names": [],
            "happened": {"spans": [], "instants": [], "changes": []},
            "findings": [],
            "notes": [],
            "steps": [],
            "streams": [],
            "users": [],
            "phases": [],
        }
        return Described(values)

    def _since(self, phase: int, first: int) -> dict[str, Any]:
        with self._live.lock:  # Each page that asks has a thread.
            series = self._live.series()
            for lane in (lane for one in series for _, lane in one.phase.queues):
                if lane not in self._lanes:
                    self._lanes.append(lane)
            shown = [self._phase(one) for one in series]
            rows = _rows(series[phase], first) if phase < len(series) else None
            lanes = {"lanes": list(self._lanes), "lane_colours": lane_colours(sorted(self._lanes))}
            told = {"progress": vars(self._live.progress), **self._happened(series)}
            return {**told, **lanes, "phases": shown, "rows": rows}

    def _happened(self, series: list[LiveSeries]) -> dict[str, Any]:
        """Return what happened, and users' jobs, as the page of the result will show them, and their ``version``."""
        rows = self._live.rows
        version, tables = rows.version, rows.of(series)
        users, _ = users_on_page(users_jobs_of(tables))
        return {"happened": happened_in(tables).as_json(), "users": users, "version": version}

    def _phase(self, one: LiveSeries) -> dict[str, Any]:
        place = self._wires.place_of
        return {
            "name": one.phase.name,
            "title": one.phase.title,
            "queueing": one.phase.queueing,
            "routing": one.phase.routing,
            "jobs": list(one.phase.jobs),
            "samples": len(one.at_s),
            "started_s": one.at_s[0] if one.at_s else None,
            "ended_s": one.at_s[-1] if one.at_s else None,
            "ports": [place[port] for port, _ in one.phase.queues],
            "lanes": [self._lanes.index(lane) for _, lane in one.phase.queues],
            "columns": {name: is_cumulative(name) for name in one.phase.columns},
        }


def _rows(one: LiveSeries, first: int) -> dict[str, Any]:
    """Return the samples of a phase from the ``first`` on."""
    rows = one.rows[first : first + _MOST_ROWS]
    found = np.array(rows, np.int64).reshape(len(rows), len(one.phase.columns), len(one.phase.queues))
    columns = {}
    for number, name in enumerate(one.phase.columns):
        array = packed(found[:, number], _FAST)
        columns[name] = {"kind": array.kind, "zipped": base64.b64encode(array.zipped).decode()}
    return {"at_s": one.at_s[first : first + len(rows)], "columns": columns}
