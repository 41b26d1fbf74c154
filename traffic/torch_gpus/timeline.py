"""What a stream plays, one after another; the host runs ahead."""

from __future__ import annotations

import time
from collections.abc import Callable

from traffic.torch_gpus.moments import End, Moment

Clock = Callable[[], int]
"""Returns the time in ns: in a world of virtual time, that one."""


class Timeline:
    """A stream. What it is given begins when all before has ended, and not before it is given."""

    def __init__(self, clock: Clock = time.monotonic_ns) -> None:
        self._clock = clock
        self._end = Moment()

    def mark(self) -> Moment:
        """Return when what it has been given will have ended."""
        return self._end.latest(Moment(self._clock()))

    def play(self, length_ns: int) -> None:
        """Give it an operator that takes so long."""
        self._end = self.mark().after(length_ns)

    def wait(self, moment: Moment) -> None:
        """Let what it is given from now on begin after a moment."""
        self._end = self._end.latest(moment)

    def wait_end(self, end: End) -> None:
        """Let what it is given from now on begin after an operation's end."""
        self.wait(Moment(0, {end: 0}))


def sleep_until(at_ns: int, clock: Clock = time.monotonic_ns) -> None:
    """Sleep until a time; it costs no core."""
    while (left_ns := at_ns - clock()) > 0:
        time.sleep(left_ns / 1e9)
