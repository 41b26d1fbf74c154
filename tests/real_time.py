"""Times and rates measured in real time, judged again before a test fails.

A machine that does something else for a second makes a flow slower and an event later, now and then. A defect of the
product does so in every play. What does not hang on the machine's speed (that nothing is lost, that sums are right) is
not judged here: it must hold in the first play.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any

TRIES = 3


class Seen(Mapping[str, Any]):
    """What a scenario saw, by name; it is played when that is first asked for."""

    def __init__(self, play: Callable[[], dict[str, Any]]):
        self._play = play
        self._found: dict[str, Any] | None = None

    def play_again(self) -> None:
        """Forget what was seen, so that the scenario is played again when it is next asked for."""
        self._found = None

    @property
    def _now(self) -> dict[str, Any]:
        if self._found is None:
            self._found = self._play()
        return self._found

    def __getitem__(self, name: str) -> Any:
        return self._now[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._now)

    def __len__(self) -> int:
        return len(self._now)


def in_real_time(test: Callable[..., None]) -> Callable[..., None]:
    """Have a test judge up to three plays: its own, or those of its fixtures that are :class:`Seen`.

    Those that fell short are in pytest's warnings.
    """

    @functools.wraps(test)
    def judged(**fixtures: Any) -> None:
        for _ in range(TRIES - 1):
            try:
                return test(**fixtures)
            except AssertionError as error:
                warnings.warn(f"{test.__name__}: played again, since {error}", stacklevel=2)
            for seen in fixtures.values():
                if isinstance(seen, Seen):
                    seen.play_again()
        return test(**fixtures)

    return judged
