"""Frames put straight into ports' queues, as fast as the ports take them: the load of link measurements."""

from __future__ import annotations

import errno
import math
import select
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fabric.errors import EmulationError
from fabric.model.lanes import Queueing
from fabric.model.network import Link, Port
from fabric.world.engines import current_engine
from fabric.world.isolation import netns

_TURN_FRAMES_S = 5e-6
_TURN_FRACTION = 0.8
"""A stock kernel's netem takes frames off their socket's account at once, so that no socket is ever full. There
ports with a delay are fed by the clock: each turn, frames for a quarter longer than the turn."""
_TIMER_SLACK = Path("/proc/self/timerslack_ns")
_SO_SNDBUFFORCE = 32  # asm-generic/socket.h


@dataclass
class Feed:
    """Frames for one port: ``window_frames`` are kept queued, or ``turn_frames`` sent each turn if the clock paces
    them; ``sent`` counts what the port has taken so far, ``refused`` what its queue dropped as it was given."""

    port: Port
    frame: bytes
    window_frames: int
    turn_frames: int
    sock: socket.socket
    sent: int = 0
    refused: int = 0

    def fill(self, most: int) -> bool:
        """Send until the window is full, or ``most`` frames. Return whether the port's queue took all: it may be
        shorter than the window, and then drops a frame (ENOBUFS); the window is halved, so that it is full first."""
        try:
            for _ in range(most):
                self.sock.send(self.frame)
                self.sent += 1
        except BlockingIOError:  # Its window is full.
            return True
        except OSError as error:
            if error.errno != errno.ENOBUFS:
                raise
            self.refused += 1
            self.window_frames = max(1, self.window_frames // 2)
            self.turn_frames = max(1, self.turn_frames // 2)
            _set_window(self.sock, self.window_frames * len(self.frame))
            return False
        return True


def window_for(link: Link, frame_bytes: int, wanted_frames: int, queue_bytes: float = math.inf) -> int:
    """Return how many frames to keep queued: those wanted, or more on links that carry more in the shortest turn that
    timers keep; but three quarters of the queue at most, and one at least."""
    turn = math.ceil(_TURN_FRAMES_S * link.rate_bps / 8 / frame_bytes)
    return max(1, int(min(max(wanted_frames, turn), 0.75 * queue_bytes // frame_bytes)))


class Feeder:
    """Keeps ports full, all from one thread: of several, one can keep the interpreter from the others."""

    def __init__(self, queueing: Queueing) -> None:
        self._is_uncharged_by_delay = not (queueing.is_of_vl or current_engine().has_own_kernel)
        self._feeds: dict[int, Feed] = {}
        self._writable = select.poll()
        self._by_clock = False
        self._turn_s = math.inf

    def add(
        self, namespace: Path | None, port: Port, link: Link, frame: bytes, window_frames: int, share: float = 1.0
    ) -> Feed:
        """Take a port to those that are kept full, and return what it is fed.

        ``window_frames`` that are more than the port's queue takes cost refused frames until they are fewer.
        ``share`` is what part of the link these frames take at most. What the clock paces is then sent a quarter more
        than that, not all that the link could carry, which would fill the queues of lanes that carry a part of it.
        """
        window_bytes = window_frames * len(frame)
        self._turn_s = min(self._turn_s, _TURN_FRACTION * window_bytes * 8 / link.rate_bps)
        sock = _packet_socket(namespace, port.interface, window_bytes)
        feed = Feed(port, frame, window_frames, math.ceil(share * window_frames), sock)
        self._feeds[feed.sock.fileno()] = feed
        self._writable.register(feed.sock, select.POLLOUT)
        self._by_clock = self._by_clock or (link.delay_ns > 0 and self._is_uncharged_by_delay)
        return feed

    def feed(self, duration_s: float) -> None:
        """Keep all ports full for a time."""
        end = time.monotonic() + duration_s
        self._prepare()
        while (left_s := end - time.monotonic()) > 0:
            taken = [
                feed.fill(feed.turn_frames if self._by_clock else feed.window_frames) for feed in self._ready(left_s)
            ]
            self._rest(taken)

    def feed_frames(self, count: int, timeout_s: float) -> None:
        """Send so many more frames into each port. Raises EmulationError naming those that do not take them in time."""
        end = time.monotonic() + timeout_s
        self._prepare()
        goals = {feed.port: feed.sent + count for feed in self._feeds.values()}
        while goals and (left_s := end - time.monotonic()) > 0:
            taken = []
            for feed in self._ready(left_s):
                taken.append(feed.fill(min(feed.window_frames, goals[feed.port] - feed.sent)))
                if feed.sent == goals[feed.port]:
                    self._writable.unregister(feed.sock)  # Or it would be ready forever.
                    del goals[feed.port]
            self._rest(taken)
        for feed in self._feeds.values():
            self._writable.register(feed.sock, select.POLLOUT)
        if goals:
            names = ", ".join(map(str, goals))
            raise EmulationError(f"{names}: did not take {count} frames within {timeout_s:g} s; look at their queues")

    def _rest(self, taken: Sequence[bool]) -> None:
        """Wait a turn if no port's queue took its frames: sockets of which none is queued are ready at once."""
        if taken and not any(taken):
            time.sleep(self._turn_s)

    def _prepare(self) -> None:
        if self._by_clock:
            _TIMER_SLACK.write_text("1")  # In ns; by default sleeps may last 50 us longer.

    def _ready(self, timeout_s: float) -> list[Feed]:
        """Return the feeds with room in their windows, once there are some or the time is over."""
        if self._by_clock:
            time.sleep(self._turn_s)
        found = self._writable.poll(0 if self._by_clock else timeout_s * 1000)
        return [self._feeds[number] for number, _ in found]

    def close(self) -> None:
        """Feed no more."""
        for feed in self._feeds.values():
            feed.sock.close()


def _packet_socket(namespace: Path | None, interface: str, window_bytes: int) -> socket.socket:
    """Return a socket that takes no more while its window of frames is queued, so that the port paces the sender.

    It is bound to its interface, which to name with each frame takes another system call, and to no protocol: it is to
    receive nothing, and what it sends says what it is.
    """
    if namespace is not None:
        with netns.inside(namespace):
            return _packet_socket(None, interface, window_bytes)
    sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    sock.bind((interface, 0))
    _set_window(sock, window_bytes)
    sock.setblocking(False)
    return sock


def _set_window(sock: socket.socket, window_bytes: int) -> None:
    sock.setsockopt(socket.SOL_SOCKET, _SO_SNDBUFFORCE, window_bytes)
