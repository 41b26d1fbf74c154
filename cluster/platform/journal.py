"""The file of events. An event is written, and on disk, before anything is done about it."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType

from cluster.platform.events import Event, from_line, to_line
from fabric.errors import ConfigError


class Journal:
    """Events in a file, one per line. A last line without its end was being written when the program was killed: it is
    removed, for nothing was done about it. Raises ConfigError if another program has the file open to write: two
    schedulers would give the same nodes."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = path.open("ab", buffering=0)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._file.close()
            raise ConfigError(str(path), ["another scheduler writes this journal; end that first"]) from None
        self._repair()

    def _repair(self) -> None:
        data = self.path.read_bytes()
        whole = data.rfind(b"\n") + 1
        if whole < len(data):
            with self.path.open("r+b") as file:
                file.truncate(whole)
                os.fsync(file.fileno())

    def events(self) -> Iterator[Event]:
        """Yield what was written so far. Raises ConfigError with the line that is no event."""
        for number, line in enumerate(self.path.read_text().splitlines(), 1):
            yield from_line(line, f"{self.path}: line {number}")

    def write(self, event: Event) -> None:
        """Write an event, and wait until it is on disk. Raises OSError if it cannot be, and has then written
        nothing: half a line would make the next one unreadable."""
        before = os.fstat(self._file.fileno()).st_size
        left = memoryview(to_line(event).encode() + b"\n")
        try:
            while left:
                left = left[self._file.write(left) :]
            os.fsync(self._file.fileno())
        except OSError:
            os.ftruncate(self._file.fileno(), before)
            raise

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def __enter__(self) -> Journal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
