"""Directories for the time of a run on a worker. What a killed worker left is removed by whoever next needs one.

A directory is in use as long as its owner holds its lock, which the kernel releases when the owner dies.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_PREFIX = "fabric-sweep-"


@contextmanager
def scratch_directory() -> Iterator[Path]:
    """Make a directory for the time of a block, and remove it with all that is in it."""
    remove_abandoned()
    path, lock = _made()
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
        os.close(lock)


def remove_abandoned() -> None:
    """Remove the directories of this account whose owners were killed."""
    for path in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        with suppress(OSError):  # Another account's, no directory, or removed meanwhile.
            lock = _opened(path)
            try:
                if os.fstat(lock).st_uid == os.geteuid() and _is_locked_now(lock):
                    shutil.rmtree(path, ignore_errors=True)
            finally:
                os.close(lock)


def _made() -> tuple[Path, int]:
    while True:
        path = Path(tempfile.mkdtemp(prefix=_PREFIX))
        with suppress(FileNotFoundError):  # Between its making and its lock it looked abandoned.
            lock = _opened(path)
            if _is_locked_now(lock) and path.exists():
                return path, lock
            os.close(lock)


def _opened(path: Path) -> int:
    return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)


def _is_locked_now(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
