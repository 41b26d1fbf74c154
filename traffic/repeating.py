"""A thread that repeats something until it is told to halt."""

from __future__ import annotations

import threading
from collections.abc import Callable


class Repeating:
    """What goes wrong in the thread is kept, and raised by :meth:`raise_error` where somebody waits."""

    def __init__(self) -> None:
        self.thread: threading.Thread | None = None
        self._halting = threading.Event()
        self._error: Exception | None = None

    @property
    def is_halting(self) -> bool:
        """Whether it was told to halt."""
        return self._halting.is_set()

    def prepare(self) -> None:
        """Forget the last time."""
        self._error = None
        self._halting.clear()

    def start(self, work: Callable[[], None]) -> None:
        """Begin to repeat ``work``."""
        self.thread = threading.Thread(target=self._repeat, args=(work,), daemon=True)
        self.thread.start()

    def _repeat(self, work: Callable[[], None]) -> None:
        try:
            while not self._halting.is_set():
                work()
        except Exception as error:  # Whatever it is, it is raised where somebody waits.
            self._error = error

    def halt(self) -> None:
        """Tell it to halt after what it does now."""
        self._halting.set()

    def join(self, timeout_s: float) -> bool:
        """Wait for the thread to end; return whether it has, or there is none."""
        if self.thread is None:
            return True
        self.thread.join(timeout_s)
        if self.thread.is_alive():
            return False
        self.thread = None
        return True

    def raise_error(self) -> None:
        """Raise what has gone wrong."""
        if self._error is not None:
            raise self._error
