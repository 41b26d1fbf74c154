"""A run that is watched while it plays: a file beside its result, to which its sampler writes and which others read."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from fabric.errors import ResultError
from fabric.measure.live_file import LiveReader
from runs.handover import make_for_user
from runs.launching.spec import Prepared


@contextmanager
def watched(prepared: Prepared) -> Iterator[tuple[Prepared, LiveReader]]:
    """Yield a run that writes its samples to a file as they are taken, and what reads them, for the time of a block.

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
    reader = LiveReader(path)
    try:
        yield replace(prepared, order=replace(prepared.order, live_file=str(path))), reader
    finally:
        reader.close()
        path.unlink(missing_ok=True)
