"""Times at which something on a GPU begins or ends, some of them not known yet: those behind collectives under way."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field


class End:
    """The end of an operation whose length nobody knows before: it is there when packets have arrived."""

    def __init__(self, what: str) -> None:
        self.what = what
        self.error: BaseException | None = None
        self._at_ns: int | None = None
        self._known = threading.Event()

    @property
    def at_ns(self) -> int | None:
        """When it was; None: it is not known yet."""
        return self._at_ns

    def is_at(self, at_ns: int, error: BaseException | None = None) -> None:
        """Say when it was, and why it failed if it has."""
        self._at_ns, self.error = at_ns, error
        self._known.set()

    def await_known(self, timeout_s: float) -> int:
        """Return when it was, as soon as it is known. Raises its error, or TimeoutError."""
        if not self._known.wait(timeout_s):
            raise TimeoutError(f"{self.what} did not end within {timeout_s:g} s")
        if self.error is not None:
            raise self.error
        assert self._at_ns is not None
        return self._at_ns


@dataclass(frozen=True)
class Moment:
    """The latest of a known time and of others, each so long after an end: ``behind``, by ends."""

    known_ns: int = 0
    behind: Mapping[End, int] = field(default_factory=dict)

    def after(self, length_ns: int) -> Moment:
        """Return the moment so much later."""
        return Moment(self.known_ns + length_ns, {end: late + length_ns for end, late in self._folded().behind.items()})

    def latest(self, other: Moment) -> Moment:
        """Return the later of two."""
        known_ns = max(self.known_ns, other.known_ns)
        if not self.behind and not other.behind:
            return Moment(known_ns)
        behind = dict(self.behind)
        for end, late in other.behind.items():
            behind[end] = max(late, behind.get(end, late))
        return Moment(known_ns, behind)._folded()

    def _folded(self) -> Moment:
        """Return the same by what has become known."""
        if not self.behind:
            return self
        known_ns, behind = self.known_ns, {}
        for end, late in self.behind.items():
            if end.at_ns is None:
                behind[end] = late
            else:
                known_ns = max(known_ns, end.at_ns + late)
        return Moment(known_ns, behind)

    def at_ns(self) -> int | None:
        """Return when it is; None: it is not known yet."""
        folded = self._folded()
        return None if folded.behind else folded.known_ns

    def await_known(self, timeout_s: float) -> int:
        """Return when it is, as soon as all ends are known. Raises what made one of them fail, or TimeoutError."""
        return max([self.known_ns, *(end.await_known(timeout_s) + late for end, late in self.behind.items())])
