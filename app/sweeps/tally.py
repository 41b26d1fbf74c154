"""How far a sweep is: how many runs are done, and how long the rest will take."""

from __future__ import annotations

from dataclasses import dataclass

_MINUTE_S, _HOUR_S = 60, 3600


@dataclass
class Tally:
    """Counts of runs: ``total`` in all, of which ``kept`` were finished before this start. ``invalid`` ones are among
    those done. ``began_s``: when this start began, on the caller's clock."""

    total: int
    kept: int
    began_s: float
    ended: int = 0
    running: int = 0
    failed: int = 0
    invalid: int = 0

    @property
    def done(self) -> int:
        """How many are finished."""
        return self.kept + self.ended

    @property
    def left(self) -> int:
        """How many have neither finished nor failed."""
        return self.total - self.done - self.failed

    def left_s(self, now_s: float) -> float | None:
        """Return how long the rest will take at the pace so far; None before the first has ended."""
        ended = self.ended + self.failed
        return self.left * (now_s - self.began_s) / ended if ended else None

    def cells(self, now_s: float) -> list[str]:
        """Return the row of the live table: done, running, failed, invalid, time left."""
        left_s = self.left_s(now_s)
        rest = "unknown yet" if left_s is None else about(left_s)
        return [f"{self.done} of {self.total}", str(self.running), str(self.failed), str(self.invalid), rest]


COLUMNS = ("done", "running", "failed", "invalid", "time left")
"""Of the live table."""


def about(seconds: float) -> str:
    """Return a time as a person reads it who waits: ``2 h 05 min``."""
    if seconds < _MINUTE_S:
        return f"{seconds:.0f} s"
    if seconds < _HOUR_S:
        return f"{round(seconds / _MINUTE_S)} min"
    minutes = round(seconds / _MINUTE_S)
    return f"{minutes // 60} h {minutes % 60:02} min"
