"""What a controller has done and what went wrong, since it began: for those who wait for it, and for results."""

from __future__ import annotations

import time
from collections import deque
from typing import Any

_EVENTS_KEPT = 20_000
_ALWAYS_KEPT = frozenset({"moved"})
"""What results are made of, whatever else happened since."""
DROPPED = "dropped"


class EventLog:
    """Events with their times (``time.monotonic()``), and errors. Of other kinds than moves it keeps the last 20,000,
    and says how many are dropped."""

    def __init__(self) -> None:
        self.errors: list[str] = []
        self._kept: list[dict[str, Any]] = []
        self._last: deque[dict[str, Any]] = deque()
        self._dropped: dict[str, Any] | None = None
        self._began_s = time.monotonic()
        self._ready_after_s: float | None = None

    def note(self, kind: str, **details: Any) -> None:
        """Add an event."""
        events = self._kept if kind in _ALWAYS_KEPT else self._last
        events.append({"at_s": time.monotonic(), "kind": kind, **details})
        if len(self._last) > _EVENTS_KEPT:
            count = 0 if self._dropped is None else self._dropped["count"]
            self._dropped = {"at_s": self._last.popleft()["at_s"], "kind": DROPPED, "count": count + 1}

    @property
    def events(self) -> list[dict[str, Any]]:
        """The events so far, in the order of their times; an event ``dropped`` has the ``count`` of those that are not
        known any more, and the time of the last of them."""
        dropped = [] if self._dropped is None else [self._dropped]
        return sorted([*self._kept, *dropped, *self._last], key=lambda event: event["at_s"])

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
