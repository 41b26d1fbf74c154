"""An operation of a group that is under way: who waits for its end, and how it ended."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from fabric.errors import TrafficError


def silence_s(timeout_s: float) -> float:
    """Return how long parts of an operation wait for each other that may take so long: longer, so that who says that
    its time is over is the operation."""
    return 2 * timeout_s + 60.0


class TookTooLongError(TrafficError):
    """An operation had not ended within its time."""


class Operation:
    """What a rank has asked of its group. ``what``: the operation in words, for messages; ``timeout_s``: how long it
    may take from now on; ``await_turn``: returns once it may begin, which takes a limit in seconds; None: at once."""

    def __init__(self, what: str, timeout_s: float, await_turn: Callable[[float], None] | None = None) -> None:
        self.what, self.timeout_s = what, timeout_s
        self._await_turn = await_turn
        self.error: BaseException | None = None
        self._deadline = time.monotonic() + timeout_s
        self._ended = threading.Event()
        self._lock = threading.Lock()
        self._callbacks: list[Callable[[Operation], None]] = []

    @property
    def has_ended(self) -> bool:
        """Whether it has, well or not."""
        return self._ended.is_set()

    @property
    def left_s(self) -> float:
        """What is left of its time, in seconds; 0 or more."""
        return max(0.0, self._deadline - time.monotonic())

    def await_turn(self) -> None:
        """Wait until it may begin."""
        if self._await_turn is not None:
            self._await_turn(self.left_s)

    def end(self, error: BaseException | None = None) -> None:
        """Say that it has ended, once, and why it failed if it has; callbacks run in this thread."""
        with self._lock:
            if self._ended.is_set():
                return
            self.error = error
            self._ended.set()
            callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback(self)

    def when_ended(self, callback: Callable[[Operation], None]) -> None:
        """Have a function called once it has ended: at once, if it has."""
        with self._lock:
            if not self._ended.is_set():
                self._callbacks.append(callback)
                return
        callback(self)

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait for its end, at most ``timeout_s``; return whether it has ended."""
        return self._ended.wait(timeout_s)

    def took_too_long(self) -> TookTooLongError:
        """Return the error that its time is over."""
        return TookTooLongError(
            f"{self.what} ran for {self.timeout_s * 1e3:.0f} milliseconds before timing out: a rank has not called it, "
            "or is cut off; raise the group's timeout if it only takes longer"
        )
