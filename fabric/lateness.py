"""How late the programs of hosts wake, core by core: on each a process with their priority that does nothing but wake.

One process would be put on an idle core and measure the best host; the worst counts.
"""

from __future__ import annotations

import mmap
import os
import signal
import struct
import time
from collections.abc import Iterable

_WAKE_S = 0.02
_KEPT = 1 << 16
"""Wake-ups that are kept until they are asked for: 22 minutes."""
_COUNT = struct.Struct("=Qd")
_LATE = struct.Struct("=d")


class HostLateness:
    """Processes that wake every 20 ms, one on each of ``cores``; in a guest they are never late."""

    def __init__(self, cores: Iterable[int]) -> None:
        self._hearts = [_Heart(core) for core in cores]

    @property
    def pids(self) -> list[int]:
        """The processes, in the order of the cores."""
        return [heart.pid for heart in self._hearts]

    def worst_s(self) -> float:
        """Return the worst lateness since the last call, on any core; one that is still to wake counts as late as it is
        by now."""
        return max(heart.worst_s() for heart in self._hearts)

    def close(self) -> None:
        """End the processes."""
        for heart in self._hearts:
            heart.close()


class _Heart:
    """One process, and the record of its wake-ups: how many there were, when the next is due, and how late each was.

    It writes a wake-up before it counts it, and nobody ever clears one, so that none is lost, whenever it is read.
    """

    def __init__(self, core: int) -> None:
        self._record = mmap.mmap(-1, _COUNT.size + _KEPT * _LATE.size)
        _COUNT.pack_into(self._record, 0, 0, time.monotonic() + _WAKE_S)
        self._seen = 0
        self.pid = os.fork()
        if self.pid == 0:
            os.sched_setaffinity(0, {core})
            self._beat()

    def _beat(self) -> None:
        parent, count = os.getppid(), 0
        while os.getppid() == parent:
            due = time.monotonic() + _WAKE_S
            _COUNT.pack_into(self._record, 0, count, due)
            time.sleep(_WAKE_S)
            late = time.monotonic() - due
            _LATE.pack_into(self._record, _COUNT.size + count % _KEPT * _LATE.size, late)
            count += 1
        os._exit(0)

    def worst_s(self) -> float:
        """Return the worst since the last call."""
        count, due = _COUNT.unpack_from(self._record)
        new = range(max(self._seen, count - _KEPT), count)
        self._seen = count
        lates = (_LATE.unpack_from(self._record, _COUNT.size + number % _KEPT * _LATE.size)[0] for number in new)
        worst: float = max(0.0, time.monotonic() - due, *lates)
        return worst

    def close(self) -> None:
        """End the process."""
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
