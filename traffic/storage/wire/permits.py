"""Permits for a limited number at a time, handed out in order; waiting for one has a deadline."""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import Callable
from functools import cached_property


class Permits:
    """``limit`` permits, first come, first served.

    What moves data says so by ``progress``, a count of bytes. If no byte has moved for ``stall_s``, its permit goes to
    another and the rest of it counts no more, nor do others with the same ``progress`` until a byte moves: peers that
    have fallen silent cannot use the permits up. An RDMA transfer to a dead peer fails and gives its permit back, too.
    """

    def __init__(self, limit: int, stall_s: float = math.inf) -> None:
        self.free = limit
        self._stall_s = stall_s
        self._silent: dict[Callable[[], int], int] = {}
        """The counts at which transfers stood still."""
        self._waiting: deque[asyncio.Future[bool]] = deque()

    @cached_property
    def _loop(self) -> asyncio.AbstractEventLoop:
        """The loop of those who wait. To ask asyncio for it is a system call (before Python 3.12)."""
        return asyncio.get_running_loop()

    def held(self, deadline_s: float, progress: Callable[[], int] | None = None) -> _Holding:
        """Hold a permit for the length of a block; it is told whether one came free by ``deadline_s`` (monotonic)."""
        return _Holding(self, deadline_s, progress)

    async def take(self, deadline_s: float, progress: Callable[[], int] | None = None) -> Callable[[], None] | None:
        """Take a permit and return what gives it back; None if none came free by ``deadline_s``."""
        if progress is not None and self._is_silent(progress):
            return _nothing
        return self._watched(progress) if await self._is_granted(deadline_s) else None

    def _watched(self, progress: Callable[[], int] | None) -> Callable[[], None]:
        """Return what gives back a permit that has just been taken, unless it goes back before."""
        if progress is None or self._stall_s == math.inf:
            return self._give_back
        if self._is_silent(progress):  # Found out while this one waited.
            self._give_back()
            return _nothing
        return _Watch(self._give_back, self._stall_s, progress, self._silent, self._loop).end

    def _is_silent(self, progress: Callable[[], int]) -> bool:
        if progress not in self._silent:
            return False
        if self._silent[progress] == progress():
            return True
        del self._silent[progress]
        return False

    async def _is_granted(self, deadline_s: float) -> bool:
        if self.free:
            self.free -= 1
            return True
        turn: asyncio.Future[bool] = self._loop.create_future()
        self._waiting.append(turn)
        timer = None if deadline_s == math.inf else self._loop.call_at(deadline_s, _settle, turn, False)
        try:
            return await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled() and turn.result():
                self._give_back()
            raise
        finally:
            if timer is not None:
                timer.cancel()
            if turn in self._waiting:
                self._waiting.remove(turn)

    def _give_back(self) -> None:
        while self._waiting:
            if _settle(self._waiting.popleft(), True):
                return
        self.free += 1


class _Holding:
    """A permit held for the length of a block. A class, for ``asynccontextmanager`` takes three times as long."""

    def __init__(self, permits: Permits, deadline_s: float, progress: Callable[[], int] | None) -> None:
        self._permits = permits
        self._deadline_s = deadline_s
        self._progress = progress
        self._end: Callable[[], None] | None = None

    async def __aenter__(self) -> bool:
        self._end = await self._permits.take(self._deadline_s, self._progress)
        return self._end is not None

    async def __aexit__(self, *_: object) -> None:
        if self._end is not None:
            self._end()


def _nothing() -> None:
    return


def _settle(turn: asyncio.Future[bool], granted: bool) -> bool:
    if turn.done():
        return False
    turn.set_result(granted)
    return True


class _Watch:
    """Gives a permit back when its transfer ends or stands still, whichever is first."""

    def __init__(
        self,
        give_back: Callable[[], None],
        stall_s: float,
        progress: Callable[[], int],
        silent: dict[Callable[[], int], int],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._loop = loop
        self._give_back = give_back
        self._stall_s = stall_s
        self._progress = progress
        self._silent = silent
        self._seen = progress()
        self._moved_at = time.monotonic()
        self._timer = self._after(stall_s)
        self._ended = False

    def _after(self, delay_s: float) -> asyncio.TimerHandle:
        return self._loop.call_later(delay_s, self._look)

    def _look(self) -> None:
        now, seen = time.monotonic(), self._progress()
        if seen != self._seen:
            self._seen, self._moved_at = seen, now
        if now - self._moved_at >= self._stall_s:
            self._silent[self._progress] = seen
            self.end()
        else:
            self._timer = self._after(self._stall_s)

    def end(self) -> None:
        """Give the permit back, unless that is done."""
        self._timer.cancel()
        if not self._ended:
            self._ended = True
            self._give_back()
