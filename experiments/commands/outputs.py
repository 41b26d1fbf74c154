"""Files that commands write where the user says."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from fabric.errors import UsageError


@contextmanager
def writing(path: Path, option: str = "--out") -> Iterator[None]:
    """Raise UsageError, naming the file and the option that gives another, if a block cannot write it."""
    if path.is_dir():
        raise UsageError(f"{path}: is a directory; name a file in it with {option}")
    try:
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
