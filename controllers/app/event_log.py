"""What a controller has done and what went wrong, since it began: for those who wait for it, and for results."""

from __future__ import annotations

import time
from collections import deque
from typing import Any

_EVENTS_KEPT = 20_000


class EventLog:
    """Events with their times (``time.monotonic()``), the last of them, and errors."""

    def __init__(self) -> None:
        self.errors: list[str] = []
        self._events: deque[dict[str, Any]] = deque(maxlen=_EVENTS_KEPT)
        self._began_s = time.monotonic()
        self._ready_after_s: float | None = None

    def note(self, kind: str, **details: Any) -> None:
        """Add an event."""
        self._events.append({"at_s": time.monotonic(), "kind": kind, **details})

    @property
    def events(self) -> list[dict[str, Any]]:
        """The events so far."""
        return list(self._events)

    @property
    def seconds(self) -> float:
        """From the begin to when it was first ready, or to now."""
        return self._ready_after_s or time.monotonic() - self._began_s

    def is_first_ready(self) -> bool:
        """Take down that the controller is ready; return whether it was for the first time."""
        if self._ready_after_s is not None:
            return False
        self._ready_after_s = time.monotonic() - self._began_s
        return True
