"""A run that is watched while it plays: a file beside its result, to which its sampler writes and which others read."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from fabric.errors import ResultError
from fabric.measure.live_file import LiveReader
from fabric.model.encoding import fabric_as_json
from fabric.report.view.live import Live
from fabric.world.virtual.watch import GuestTime
from runs.handover import make_for_user
from runs.launching.events import Event, NewRows, Note, PhaseProgress, VerdictSoFar
from runs.launching.spec import Prepared


@contextmanager
def watched(prepared: Prepared) -> Iterator[tuple[Prepared, Live]]:
    """Yield a run that writes its samples to a file as they are taken, and what it shows so far, for the time of a
    block.

    Raises ResultError if there is a file of its name.
    """
    directory = Path(prepared.order.directory)
    make_for_user(directory.parent)
    path = directory.with_name(f".{directory.name}.live")
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))
    except FileExistsError as error:
        raise ResultError(
            f"{path}: is there already, of another run of this name; remove it or give another --out"
        ) from error
    fabric = fabric_as_json(prepared.resolved.fabric)
    live = Live(fabric, LiveReader(path), prepared.experiment.name, prepared.engine.name, directory.name)
    live.progress.result = prepared.order.directory
    try:
        yield replace(prepared, order=replace(prepared.order, live_file=str(path))), live
    finally:
        with live.lock:  # Who reads now reads to the end.
            live.reader.close()
        path.unlink(missing_ok=True)


def take(live: Live, event: Event) -> None:
    """Take an event into what a run shows so far."""
    progress = live.progress
    if isinstance(event, Note):
        progress.note = event.text
    elif isinstance(event, PhaseProgress):
        progress.phase, progress.fraction = event.title, event.fraction
    elif isinstance(event, NewRows):
        live.rows.take(event.phase, event.table, event.rows, event.is_whole)
    elif isinstance(event, GuestTime):
        progress.clock = str(event)
    elif isinstance(event, VerdictSoFar):
        progress.verdict, progress.reasons = event.status, tuple(event.reasons)
