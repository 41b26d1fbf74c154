"""The file of events. An event is written, and on disk, before anything is done about it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType

from cluster.platform.events import Event, from_line, to_line


class Journal:
    """Events in a file, one per line. A last line without its end was being written when the program was killed: it is
    removed, for nothing was done about it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._repair()
        self._file = path.open("ab", buffering=0)

    def _repair(self) -> None:
        if not self.path.exists():
            return
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
        """Write an event, and wait until it is on disk."""
        self._file.write(to_line(event).encode() + b"\n")
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def __enter__(self) -> Journal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
