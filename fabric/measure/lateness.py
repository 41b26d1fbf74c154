"""How late the programs of hosts wake, core by core: measured by one process per core, at their priority.

One process would be put on an idle core and measure the best host; the worst counts.
"""

from __future__ import annotations

import mmap
import os
import signal
import time
from collections.abc import Iterable

_WAKE_S = 0.02
_KEPT = 1 << 16
"""Wake-ups that are kept until they are asked for: 22 minutes."""


class HostLateness:
    """Processes that wake every 20 ms, one on each of ``cores``; in a guest they are never late."""

    def __init__(self, cores: Iterable[int]) -> None:
        self._hearts = [_Heart(core) for core in cores]

    def worst_s(self) -> float:
        """Return the worst lateness since the last call, on any core; one that is still to wake counts as late as it is
        by now."""
        return max(heart.worst_s() for heart in self._hearts)

    def close(self) -> None:
        """End the processes."""
        for heart in self._hearts:
            heart.close()


class WakeRecord:
    """What one process writes about its wake-ups and others read: how many there were, when the next is due (seconds of
    ``time.monotonic()``), and how late each was.

    Nothing is locked. Each value is an aligned word, stored at once: nobody ever reads half of one. (``struct`` clears
    a value before it writes it.) A wake-up is written before it is counted, and none is ever cleared.
    """

    def __init__(self, due_s: float) -> None:
        words = memoryview(mmap.mmap(-1, (2 + _KEPT) * 8))
        self._count = words[:8].cast("Q")
        self._due = words[8:16].cast("d")
        self._late = words[16:].cast("d")
        self._seen = 0
        self.expect(due_s)

    def expect(self, due_s: float) -> None:
        """Write when the next wake-up is due."""
        self._due[0] = due_s

    def add(self, late_s: float) -> None:
        """Write how late one was."""
        count = self._count[0]
        self._late[count % _KEPT] = late_s
        self._count[0] = count + 1

    def worst_s(self, now_s: float) -> float:
        """Return the worst since the last call of this reader; one that is due and still to come is late already."""
        due_s = self._due[0]
        count = self._count[0]
        new = range(max(self._seen, count - _KEPT), count)
        self._seen = count
        return max(0.0, now_s - due_s, *(self._late[number % _KEPT] for number in new))


class _Heart:
    """One process, and the record of its wake-ups."""

    def __init__(self, core: int) -> None:
        self._record = WakeRecord(time.monotonic() + _WAKE_S)
        self.pid = os.fork()
        if self.pid == 0:
            os.sched_setaffinity(0, {core})
            self._beat()

    def _beat(self) -> None:
        parent = os.getppid()
        while os.getppid() == parent:
            due = time.monotonic() + _WAKE_S
            self._record.expect(due)
            time.sleep(_WAKE_S)
            self._record.add(time.monotonic() - due)
        os._exit(0)

    def worst_s(self) -> float:
        """Return the worst since the last call."""
        return self._record.worst_s(time.monotonic())

    def close(self) -> None:
        """End the process."""
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
