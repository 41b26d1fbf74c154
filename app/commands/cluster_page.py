"""``fabric cluster page``: the live page of a cluster, and its metrics, from what it keeps in its folder.

Nobody asks the scheduler for it: the page shows what happens also while no packet reaches that.
"""

from __future__ import annotations

import argparse
import json
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from app.commands.cluster_questions import add_usual
from fabric.errors import UsageError

T = TypeVar("T")


def add_page_options(commands: Any) -> None:
    """Define the command."""
    one = commands.add_parser("page", help="serve a page of the cluster, and metrics for Prometheus, until Ctrl-C")
    one.add_argument("--port", type=int, default=0, metavar="PORT", help="of both (default: any that is free)")
    add_usual(one, serve_page, is_read=True)


def serve_page(options: argparse.Namespace, _: list[str]) -> int:
    """Serve the page of a cluster that is up, or of a folder, until Ctrl-C."""
    from app.commands.watching import tell_address
    from app.export.live_metrics import live_metrics
    from cluster.platform.client import clusters_up, the_one
    from fabric.report.view.live import LivePages
    from fabric.report.view.serving import serving

    up = clusters_up()
    folder = the_one(up, None).folder if options.folder is None else options.folder.absolute()
    engines = (one.about.engine for one in up if one.folder == folder and one.about is not None)
    watched = WatchedCluster(folder, next(engines, ""))
    pages = LivePages(watched.live)
    answer = watched.after_reading(pages.answer)
    with serving(answer, options.port, watched.after_reading(lambda: live_metrics(watched.live))) as address:
        if options.json:
            print(json.dumps({"address": address}), flush=True)
        tell_address(address, "until Ctrl-C")
        with suppress(KeyboardInterrupt):
            threading.Event().wait()
    return 0


class WatchedCluster:
    """A cluster as a run that plays: its samples, its journal and what failed by hand, as its folder has them. Raises
    UsageError if there are no samples."""

    def __init__(self, folder: Path, engine: str = "") -> None:
        from app.commands.cluster_config import config_of, failures_of, journal_of, samples_of
        from cluster.platform.journal_rows import JournalRows
        from fabric.measure.live_file import LiveReader
        from fabric.model.encoding import fabric_as_json
        from fabric.report.view.live import Live

        found = config_of(folder)
        config, samples = found.config, samples_of(folder)
        if not samples.exists():
            raise UsageError(
                f"{folder}: has no samples to make the page from: its config says sample_period: null, or it is "
                "from before samples were kept"
            )
        known = config.listed(found.fabric), config.users_of
        self._rows, self._failures, self._read = JournalRows(journal_of(folder), known, ""), failures_of(folder), 0
        self._lock = threading.Lock()
        self.live = Live(fabric_as_json(found.fabric), LiveReader(samples), "cluster", engine, folder.name)
        self._folder = folder

    def after_reading(self, answer: Callable[..., T]) -> Callable[..., T]:
        """Return a function that answers after it has read what is new."""

        def answered(*arguments: Any) -> T:
            with self._lock:
                self.read()
            return answer(*arguments)

        return answered

    def read(self) -> None:
        """Take in what has happened since."""
        from app.commands.cluster_config import PLATFORM

        series = self.live.series()
        if not series:
            return
        phase, rows = series[-1].phase.name, self.live.rows
        for table, found in self._rows.read().items():
            rows.take(phase, table, [{**row, "phase": phase, "job": PLATFORM} for row in found])
        rows.take(phase, "failures", [{**row, "phase": phase} for row in self._new_failures()])
        self.live.progress.note = f"{_summary(self._rows.state)}; {self._folder}"

    def _new_failures(self) -> list[Mapping[str, Any]]:
        if not self._failures.exists():
            return []
        with self._failures.open("rb") as file:
            file.seek(self._read)
            data = file.read()
        whole = data[: data.rfind(b"\n") + 1]
        self._read += len(whole)
        return [json.loads(line) for line in whole.splitlines()]


def _summary(state: Any) -> str:
    """Return how a cluster is, in a line."""
    from cluster.platform.state import JobState
    from cluster.tasks import TaskState

    busy = {node for task in state.tasks.values() for node in state.nodes_of(task.number)}
    out, names = set(state.outs), set(state.nodes.names)
    waiting = sum(task.state is TaskState.QUEUED for task in state.tasks.values())
    running = sum(job.state is JobState.RUNNING for job in state.jobs.values())
    nodes = f"{len(names)} nodes: {len(names - busy - out)} free, {len(busy - out)} busy, {len(out)} out"
    return f"{nodes}; {running} jobs run, {waiting} wait"
