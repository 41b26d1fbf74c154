"""Times of arrival by the clock that all programs share.

The kernel stamps packets by CLOCK_REALTIME, which NTP or a person may set at any moment; programs go by
``time.monotonic()``. The offset between them is read with every packet.
"""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Callable

_SO_TIMESTAMPNS = 35  # asm-generic/socket.h: the kernel's time of arrival, CLOCK_REALTIME.
_TIMESPEC = struct.Struct("=qq")
_STEP_NS = 100_000
"""What a clock is set by if it is more than this; what is less is drift, which moves no time by more."""
_LONGEST_LOOK_NS = 20_000
"""A look at both clocks in which this thread was kept waiting for longer says nothing of either."""
_FIRST_LOOKS = 5


def stamp_arrivals(sock: socket.socket) -> None:
    """Have the kernel stamp what comes to a socket."""
    sock.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)


def stamped_packet(sock: socket.socket, size_bytes: int, flags: int = 0) -> tuple[bytes, int]:
    """Return ``size_bytes`` at most of the next packet of a socket that stamps, and its stamp: CLOCK_REALTIME in ns."""
    packet, ancillary, _, _ = sock.recvmsg(size_bytes, socket.CMSG_SPACE(_TIMESPEC.size), flags)
    seconds, nanoseconds = _TIMESPEC.unpack(ancillary[0][2])
    return packet, seconds * 1_000_000_000 + nanoseconds


class ArrivalClock:
    """Turns stamps of the real-time clock into ``time.monotonic_ns()``. ``steps_s`` is what the clock was set by, each
    time that it was.

    Of a packet that came before a step and is looked at after it, both readings are tried: the time of arrival is the
    later one of those that are not still to come. For packets that have waited for longer than the step is large, that
    may be wrong by the step.
    """

    def __init__(
        self,
        real_ns: Callable[[], int] = time.time_ns,
        monotonic_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._real_ns, self._monotonic_ns = real_ns, monotonic_ns
        # Nothing is known yet by which a look that was interrupted could be told: the shortest of some is believed.
        _, self._ahead_ns, _ = min(self._both() for _ in range(_FIRST_LOOKS))
        self._ahead_before_ns: int | None = None
        self.steps_s: list[float] = []

    def arrived_ns(self, stamp_ns: int) -> int:
        """Return when a packet came that is looked at now."""
        now_ns = self._look()
        found_ns = stamp_ns - self._ahead_ns
        if self._ahead_before_ns is None:
            return found_ns
        either = (found_ns, stamp_ns - self._ahead_before_ns)
        return max((at_ns for at_ns in either if at_ns <= now_ns + _STEP_NS), default=found_ns)

    def _both(self) -> tuple[int, int, int]:
        """Return how long a look at both clocks took, how far the real one is ahead, and the time by the other."""
        before_ns, real_ns, after_ns = self._monotonic_ns(), self._real_ns(), self._monotonic_ns()
        return after_ns - before_ns, real_ns - after_ns, after_ns

    def _look(self) -> int:
        took_ns, ahead_ns, after_ns = self._both()
        if took_ns <= _LONGEST_LOOK_NS:
            if abs(ahead_ns - self._ahead_ns) > _STEP_NS:
                self.steps_s.append((ahead_ns - self._ahead_ns) / 1e9)
                self._ahead_before_ns = self._ahead_ns
            self._ahead_ns = ahead_ns
        return after_ns
