"""What a program's connections say of themselves, every quarter of a second or so."""

from __future__ import annotations

import threading
import time
from typing import NamedTuple

from traffic.transport.connection import ConnectionEndedError, ConnectionSample, Sampled


class FlowSample(NamedTuple):
    """What one connection said at one time (``time.monotonic()``)."""

    at: float
    peer: str
    said: ConnectionSample


class FlowSampler:
    """Samples a program's connections in a thread of its own, between :meth:`start` and :meth:`stop`."""

    def __init__(self, period_s: float = 0.25) -> None:
        self._period_s = period_s
        self._tracked: list[tuple[Sampled, str]] = []
        self._samples: list[FlowSample] = []
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None

    def track(self, connection: Sampled, peer: str) -> None:
        """Sample a connection from now on, until it is closed."""
        with self._lock:
            self._tracked.append((connection, peer))

    def release(self, connection: Sampled, peer: str) -> None:
        """Take a last sample of a connection that is about to be closed, however short it was, and no more."""
        with self._lock:
            self._tracked = [(other, name) for other, name in self._tracked if other is not connection]
            self._samples.append(FlowSample(time.monotonic(), peer, connection.sample()))

    def start(self) -> None:
        """Begin a fresh series with a first sample: what comes after this is behind it."""
        self._samples = []
        self._wake.clear()
        self._sample()
        self._thread = threading.Thread(target=self._sample_on, daemon=True)
        self._thread.start()

    def stop(self) -> list[FlowSample]:
        """End the series with a last sample and return it."""
        self._wake.set()
        if self._thread is not None:
            self._thread.join(5)
            self._thread = None
        self._sample()
        return self._samples

    def _sample_on(self) -> None:
        while not self._wake.wait(self._period_s):
            self._sample()

    def _sample(self) -> None:
        now = time.monotonic()
        with self._lock:
            self._tracked = [one for one in self._tracked if self._has_sampled(now, *one)]

    def _has_sampled(self, now: float, connection: Sampled, peer: str) -> bool:
        try:
            self._samples.append(FlowSample(now, peer, connection.sample()))
        except ConnectionEndedError:
            return False
        return True
