"""What a program's connections say of themselves, every quarter of a second or so."""

from __future__ import annotations

import socket
import threading
import time
from typing import NamedTuple

from traffic.transport.tcp import TcpInfo, tcp_info


class FlowSample(NamedTuple):
    """TCP_INFO of one connection at one time (``time.monotonic()``)."""

    at: float
    peer: str
    info: TcpInfo


class FlowSampler:
    """Samples TCP_INFO of a program's connections in a thread of its own, between :meth:`start` and :meth:`stop`."""

    def __init__(self, period_s: float = 0.25) -> None:
        self._period_s = period_s
        self._tracked: list[tuple[socket.socket, str]] = []
        self._samples: list[FlowSample] = []
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None

    def track(self, sock: socket.socket, peer: str) -> None:
        """Sample a connection from now on, until it is closed."""
        with self._lock:
            self._tracked.append((sock, peer))

    def release(self, sock: socket.socket, peer: str) -> None:
        """Take a last sample of a connection that is about to be closed, however short it was, and no more."""
        with self._lock:
            self._tracked = [(other, name) for other, name in self._tracked if other is not sock]
            self._samples.append(FlowSample(time.monotonic(), peer, tcp_info(sock)))

    def start(self) -> None:
        """Begin a fresh series."""
        self._samples = []
        self._wake.clear()
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
        self._sample()
        while not self._wake.wait(self._period_s):
            self._sample()

    def _sample(self) -> None:
        now = time.monotonic()
        with self._lock:
            self._tracked = [(sock, peer) for sock, peer in self._tracked if sock.fileno() >= 0]
            for sock, peer in self._tracked:
                try:
                    self._samples.append(FlowSample(now, peer, tcp_info(sock)))
                except OSError:
                    continue  # Closed between the two lines above.
