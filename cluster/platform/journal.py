"""The file of events. An event is written, and on disk, before anything is done about it.

Times in it are seconds since the cluster first came up, without those in which it was down: a machine that starts anew,
and a guest, have clocks that begin anew.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import TracebackType

from cluster.platform.events import Event, from_line, to_line
from fabric.errors import ConfigError


class Journal:
    """Events in a file, one per line. A last line without its end was being written when the program was killed: it is
    removed, for nothing was done about it. Raises ConfigError if another program has the file open to write: two
    schedulers would give the same nodes.

    ``origin_s``: when, by the clock of who writes (``time.monotonic()``), the file's time was zero; events that are
    read and written have that clock's times.
    """

    def __init__(self, path: Path, origin_s: float = 0.0) -> None:
        self.path, self.origin_s = path, origin_s
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
        """Return what was written so far, one by one. Raises ConfigError with the line that is not an event."""
        return events_in(self.path, self.origin_s)

    def write(self, event: Event) -> None:
        """Write an event, and wait until it is on disk. Raises OSError if it cannot be, and has then written
        nothing: half a line would make the next one unreadable."""
        before = os.fstat(self._file.fileno()).st_size
        left = memoryview(to_line(replace(event, at_s=event.at_s - self.origin_s)).encode() + b"\n")
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


def events_in(path: Path, origin_s: float = 0.0) -> Iterator[Event]:
    """Yield the events of a file that may still be written to, ``origin_s`` later than it says: whole lines only.
    Raises ConfigError with the line that is not an event."""
    for number, line in enumerate(_whole_lines(path, 0), 1):
        event = from_line(line.decode(errors="replace"), f"{path}: line {number}")
        yield replace(event, at_s=event.at_s + origin_s)


def _whole_lines(path: Path, offset: int) -> list[bytes]:
    if not path.exists():
        return []
    with path.open("rb") as file:
        file.seek(offset)
        data = file.read()
    return data[: data.rfind(b"\n") + 1].splitlines(keepends=True)


class JournalTail:
    """Reads a file of events as it grows, from ``offset`` bytes on."""

    def __init__(self, path: Path, offset: int = 0) -> None:
        self._path, self._offset = path, offset

    def events(self) -> Iterator[Event]:
        """Yield the events that have come since the last call, by the file's time. Raises ConfigError."""
        for line in _whole_lines(self._path, self._offset):
            self._offset += len(line)
            yield from_line(line.decode(errors="replace"), f"{self._path}: before byte {self._offset}")


def last_time_s(path: Path) -> float:
    """Return the time of a file's last event, by the file; 0 if there is none."""
    return max((event.at_s for event in events_in(path)), default=0.0)
