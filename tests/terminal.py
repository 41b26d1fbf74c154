"""A terminal with the command in it, as a person would use it."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

PATIENCE_S = 400.0


@dataclass
class Terminal:
    """A terminal with the command in it."""

    process: subprocess.Popen[str]
    ours: int
    _unread: str = field(default="")

    def type(self, text: str) -> None:
        os.write(self.ours, text.encode())

    def wait_for(self, words: str) -> str:
        """Return what was shown up to these words."""
        deadline = time.monotonic() + PATIENCE_S
        while words not in self._unread:
            assert time.monotonic() < deadline, f"no {words!r} within {PATIENCE_S:g} s, only {self._unread!r}"
            self._read(1.0)
        shown, _, self._unread = self._unread.partition(words)
        return shown

    def press_until(self, key: str, words: str) -> str:
        """Press a key until these words are shown, as a person does, and return what was shown up to them.

        Python's readline looks for signals when its wait for input is interrupted: one that comes just before it waits
        is noticed with the next key only.
        """
        deadline = time.monotonic() + PATIENCE_S
        while words not in self._unread:
            assert time.monotonic() < deadline, f"no {words!r} within {PATIENCE_S:g} s, only {self._unread!r}"
            self.type(key)
            pressed_again = time.monotonic() + 2
            while words not in self._unread and time.monotonic() < pressed_again:
                self._read(0.1)
        return self.wait_for(words)

    def _read(self, patience_s: float) -> None:
        if select.select([self.ours], [], [], patience_s)[0]:
            self._unread += os.read(self.ours, 65536).decode(errors="replace")

    def prompted(self, line: str) -> str:
        """Type a line, and return what is shown until the next prompt."""
        self.type(f"{line}\r")
        return self.wait_for("mininet> ")


@contextmanager
def in_terminal(start: Callable[..., subprocess.Popen[str]]) -> Iterator[Terminal]:
    """Start a process, by Popen's options, in a new terminal for the time of a block."""
    ours, theirs = pty.openpty()
    streams = {"stdin": theirs, "stdout": theirs, "stderr": theirs}
    with start(**streams, preexec_fn=_take_terminal) as process:
        os.close(theirs)
        try:
            yield Terminal(process, ours)
        finally:
            process.kill()
            os.close(ours)


def _take_terminal() -> None:
    with suppress(PermissionError):
        os.setsid()  # Unless it leads a session already.
    os.close(os.open(os.ttyname(0), os.O_RDWR))  # The first that a session opens is its own.
