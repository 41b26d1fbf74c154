"""What a process has asked ``nccl`` for: how often, how many bytes, and how long that was under way, by kind."""

from __future__ import annotations

import threading
from dataclasses import dataclass


@dataclass
class Communication:
    """Operations of a kind. ``size_bytes``: by nccl-tests' convention, the data of all ranks; of messages what this
    rank has sent or received, of an all-to-all what it has sent. ``busy_ns``: from the begin of each to its end."""

    calls: int = 0
    size_bytes: int = 0
    busy_ns: int = 0


class Communications:
    """All operations of a process, by kind; threads add to them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._by_kind: dict[str, Communication] = {}

    def called(self, kind: str, size_bytes: int) -> None:
        """Count an operation."""
        with self._lock:
            one = self._by_kind.setdefault(kind, Communication())
            one.calls += 1
            one.size_bytes += size_bytes

    def took(self, kind: str, busy_ns: int) -> None:
        """Add the time that an operation, which was counted, was under way."""
        with self._lock:
            self._by_kind[kind].busy_ns += busy_ns

    def by_kind(self) -> dict[str, Communication]:
        """Return all of them, those with most bytes first."""
        with self._lock:
            return dict(sorted(self._by_kind.items(), key=lambda item: -item[1].size_bytes))
