"""The scheduler's turns: which one it is, and when it was due."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass
class Turns:
    """``number``: of those that were, or are; ``due_s``: when the one under way was due (``time.monotonic()``), None
    between two."""

    number: int = 0
    due_s: float | None = None

    @contextmanager
    def under_way(self, due_s: float) -> Iterator[None]:
        """Be in a turn that was due at a time."""
        self.due_s = due_s
        try:
            yield
        finally:
            self.due_s = None

    def counts_from(self, now_s: float) -> float:
        """Return from when a wait counts that begins now: in a turn from when that was due. Each turn is late by
        another part of a millisecond or two, and a wait of whole ticks that counted from then would last for one more
        whenever the turn at its end is less late."""
        return now_s if self.due_s is None else self.due_s
