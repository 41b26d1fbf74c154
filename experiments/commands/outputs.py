"""Files that commands write where the user says."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fabric.errors import UsageError


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Raise UsageError, naming the file, if a block cannot write it."""
    try:
        yield
    except OSError as error:
        raise UsageError(f"{path}: cannot be written ({error.strerror}); give another with --out") from error
