"""The page of a sweep while its runs are played: the grid with the state of each run, and the run that plays now."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from app.sweeps.labels import key_words
from app.sweeps.planning import PlannedRun, SweepPlan, point_text
from app.sweeps.store import Store
from app.sweeps.tables import FAILED
from app.sweeps.tally import COLUMNS, Tally
from fabric.errors import ResultError
from fabric.report.view.answers import PAGE_KIND, ResultPages, charts
from fabric.report.view.document import study_page
from fabric.report.view.live import LIVE, Live, LivePages
from fabric.report.view.model import view_of
from fabric.report.view.packing import json_bytes, zipped
from fabric.report.view.serving import Resource
from runs.launching import launcher
from runs.launching.events import Event
from runs.launching.result_ways import ways_of
from runs.launching.run_result import RunResult
from runs.launching.spec import RunSpec, prepare
from runs.launching.watched import take, watched

PLAYING, WAITING = "playing", "waiting"
"""What stands for a verdict of a run that has none yet."""
_FAST = 1
_RUN = "run/"
"""Below it is a page of each run, under its key."""


class StudyPages:
    """The page of a sweep, and below ``run/KEY/`` those of its runs: of one that plays here its live page, of one that
    has ended what ``fabric view`` shows of it.

    What plays the runs calls :meth:`play`. Of runs that are played elsewhere, the page has the state, and no samples.
    """

    def __init__(self, plan: SweepPlan, store: Store) -> None:
        self._plan, self._store = plan, store
        self._runs = {run.key: run for run in plan.runs}
        self._ended: dict[str, dict[str, Any]] = {}
        self._playing: dict[str, tuple[Live, LivePages]] = {}
        self._shown: tuple[str, ResultPages] | None = None
        self._lock = threading.Lock()
        self._looking = threading.Lock()
        """Held for as long as samples of a result are read, which takes seconds."""
        self._tally: Tally | None = None

    def show(self, tally: Tally) -> None:
        """Take how far the sweep is."""
        self._tally = tally

    def play(self, spec: RunSpec, report: Callable[[Event], None]) -> RunResult:
        """Play a run of the sweep, whose page can be looked at meanwhile. Raises FabricError if it fails."""
        with watched(prepare(spec, sys.argv)) as (played, live), self._shown_as_playing(live):

            def taken(event: Event) -> None:
                take(live, event)
                report(event)

            return launcher.play(played, taken)

    @contextmanager
    def _shown_as_playing(self, live: Live) -> Iterator[None]:
        run = self._runs[live.name]
        live.about = ", ".join(filter(None, (point_text(run.point), f"seed {run.seed}")))
        with self._lock:
            self._playing[run.key] = live, LivePages(live)
        try:
            yield
        finally:
            with live.lock, self._lock:  # A request that is being answered still needs the samples.
                del self._playing[run.key]

    def answer(self, path: str, query: Mapping[str, str]) -> Resource | None:
        """The resource at a path, None if there is none; the query ``run`` names the run whose map the page shows."""
        if path == "":
            return Resource(zipped(self._page(query.get("run", "")), _FAST), PAGE_KIND, is_zipped=True)
        if path == "study":
            return _json(self._state())
        if path == "charts.js":
            return charts()
        key, separator, rest = path.removeprefix(_RUN).partition("/")
        if not path.startswith(_RUN) or not separator or key not in self._runs:
            return None
        with self._lock:
            live, pages = self._playing.get(key, (None, None))
        if live is None or pages is None:
            return self._result_of(key, rest, query)
        with live.lock:  # It may have ended since.
            return pages.answer(rest, query) if key in self._playing else self._result_of(key, rest, query)

    def _page(self, wanted: str) -> bytes:
        """Return the page with the run that is wanted if it plays, else the one that has played for longest."""
        head = {
            "title": f"{self._plan.name}, playing",
            "name": self._plan.name,
            "facts": f"{self._plan.experiment}, engine {self._plan.engine}",
            "directory": str(self._store.directory),
            "axes": [key_words(axis) for axis in self._plan.axes],
            "colours": [WAITING, PLAYING, "faithful", "degraded", "invalid", FAILED],
        }
        with self._lock:
            key = wanted if wanted in self._playing else next(iter(self._playing), None)
            pages = None if key is None else self._playing[key][1]
        shown = None if pages is None else (pages.described(), f"{_RUN}{key}/")
        return study_page({**head, "shown": key}, shown)

    def _state(self) -> dict[str, Any]:
        """Return how far the sweep is, and the state of each run, point by point."""
        cells = [] if self._tally is None else self._tally.cells(time.monotonic())
        plan = self._plan
        points = [
            {
                "values": [plan.text_of(axis, value) for axis, value in runs[0].point.items()],
                "runs": [self._state_of(run) for run in runs],
            }
            for runs in plan.points
        ]
        return {"counts": dict(zip(COLUMNS, cells, strict=False)), "points": points}

    def _state_of(self, run: PlannedRun) -> dict[str, Any]:
        about = {"key": run.key, "seed": run.seed}
        with self._lock:
            live, _ = self._playing.get(run.key, (None, None))
        if live is not None:
            now = live.progress
            words = "; ".join(filter(None, (now.phase, now.clock, now.note)))
            return {**about, "state": PLAYING, "fraction": now.fraction, "words": words}
        if run.key not in self._ended and self._store.is_finished(run.key):
            self._ended[run.key] = _outcome(self._store.run_directory(run.key))
        if run.key in self._ended:
            return {**about, **self._ended[run.key]}
        error = self._store.error(run.key)
        return {**about, "state": WAITING if error is None else FAILED, "words": error or ""}

    def _result_of(self, key: str, path: str, query: Mapping[str, str]) -> Resource | None:
        if path == LIVE:
            return _json({"has_ended": True})
        if not self._store.is_finished(key):
            return None
        with self._looking:
            try:
                if self._shown is None or self._shown[0] != key:  # One at a time: its samples are in memory.
                    result = RunResult(self._store.run_directory(key), self._plan.foreign_folder)
                    self._shown = key, ResultPages([view_of(result, ways_of(result))])
            except ResultError as error:
                return Resource(f"{error}\n".encode(), "text/plain; charset=utf-8")
            pages = self._shown[1]
        return pages.answer(path, query)


def _json(values: dict[str, Any]) -> Resource:
    return Resource(zipped(json_bytes(values), _FAST), "application/json", is_zipped=True)


def _outcome(directory: Path) -> dict[str, Any]:
    """Return the verdict of a finished run, and what it says of it or of its question."""
    verdict = json.loads((directory / "manifest.json").read_text())["verdict"]
    answer = json.loads((directory / "summary.json").read_text()).get("answer", "")
    return {"state": verdict["status"], "words": "; ".join(map(str, (*verdict["reasons"], answer)))}
