"""Files that commands write where the user says."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from fabric.errors import UsageError


@contextmanager
def writing(path: Path, option: str = "--out") -> Iterator[None]:
    """Raise UsageError, naming the file and the option that gives another, if a block cannot write it."""
    try:
        if path.is_dir():  # Also "." and "/", which have no name to which another ending could be added.
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        yield
    except OSError as error:
        raise UsageError(f"{path}: cannot be written ({error.strerror}); give another with {option}") from error


def write_whole(path: Path, data: bytes, option: str = "--out") -> None:
    """Write a file, which appears under its name only once it is whole: who collects it never reads half of it. Raises
    UsageError if it cannot be written."""
    with writing(path, option):
        partial = path.with_name(f"{path.name}.partial")
        try:
            partial.write_bytes(data)
            partial.replace(path)
        except OSError:
            with suppress(OSError):
                partial.unlink()
            raise
