"""Chunks between ranks and between a rank's threads: frames with a verified header on connections, and handoffs.

A frame is 16 bytes of header (step, channel, chunk, bytes) and the chunk. Whoever receives one knows which must come
next, so a frame that is lost, doubled, late or another connection's is found at once.
"""

from __future__ import annotations

import contextlib
import queue
import select
import socket
import struct
from dataclasses import dataclass

import numpy as np

from fabric.errors import TrafficError
from traffic.dataset import Floats


class PeerGoneError(TrafficError):
    """A connection or a thread ended because another one failed: a consequence, not a cause."""


class StalledError(TrafficError):
    """Nothing came or went for longer than a rank waits: a dead link or rank somewhere."""


@dataclass(frozen=True, order=True)
class Edge:
    """A connection that ``dialer`` opens to ``listener``; ``channel`` tells parallel ones apart."""

    channel: int
    dialer: int
    listener: int

    def peer(self, rank: int) -> int:
        """Return the other end."""
        return self.listener if rank == self.dialer else self.dialer


_HEADER = struct.Struct("!IIII")
_LOW_WATER_BYTES = 256 * 1024


class Link:
    """A rank's end of a connection, on which chunks travel under a verified header: step, channel, chunk and length.

    One thread may send while another receives. Both raise TrafficError after ``timeout_s`` without progress,
    PeerGoneError if the connection ends.
    """

    def __init__(self, sock: socket.socket, channel: int, name: str, timeout_s: float) -> None:
        self._sock = sock
        self._channel = channel
        self._name = name
        self._timeout_s = timeout_s
        self._received_header = bytearray(_HEADER.size)
        self._low_water = 1
        self._readable = select.poll()
        self._readable.register(sock, select.POLLIN)
        seconds, fraction = divmod(timeout_s, 1)
        self._sock.setsockopt(
            socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", int(seconds), int(fraction * 1e6))
        )

    def send(self, step: int, chunk: int, payload: Floats) -> None:
        """Send one chunk."""
        header = _HEADER.pack(step, self._channel, chunk, payload.nbytes)
        waiting = [memoryview(header), payload.data.cast("B")]
        try:
            while waiting:
                waiting = _advanced(waiting, self._sock.sendmsg(waiting))
        except BlockingIOError as error:
            raise self._stuck("took no data", step, chunk) from error
        except OSError as error:
            raise self._gone(step, chunk) from error

    def receive(self, step: int, chunk: int, into: Floats) -> None:
        """Receive one chunk of exactly the size of ``into``. Raises TrafficError if another frame arrives."""
        waiting = [memoryview(self._received_header), into.data.cast("B")]
        try:
            while waiting:
                self._await(min(_LOW_WATER_BYTES, sum(map(len, waiting))), step, chunk)
                waiting = _advanced(waiting, self._received_into(waiting, step, chunk))
        except OSError as error:
            raise self._gone(step, chunk) from error
        self._check_header(step, chunk, into.nbytes)

    def _await(self, wanted_bytes: int, step: int, chunk: int) -> None:
        """Wait until enough has arrived: a wake-up for each packet would cost more than all the sums."""
        if wanted_bytes != self._low_water:
            self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, wanted_bytes)
            self._low_water = wanted_bytes
        if not self._readable.poll(self._timeout_s * 1000):
            raise self._stuck("sent no data", step, chunk)

    def _received_into(self, waiting: list[memoryview], step: int, chunk: int) -> int:
        """Receive what is there. Without MSG_DONTWAIT the kernel would take less than the low-water mark (which it also
        hands out, e.g. short of memory) and then wait for as much again: for ever, at the end of a step."""
        try:
            received = self._sock.recvmsg_into(waiting, 0, socket.MSG_DONTWAIT)[0]
        except BlockingIOError:
            return 0
        if received == 0:
            raise self._gone(step, chunk)
        return received

    def _check_header(self, step: int, chunk: int, length: int) -> None:
        expected = (step, self._channel, chunk, length)
        found = _HEADER.unpack(self._received_header)
        if found != expected:
            words = "(step, channel, chunk, bytes)"
            raise TrafficError(f"{self._name}: received frame {found}, expected {expected} {words}")

    def _stuck(self, what: str, step: int, chunk: int) -> StalledError:
        return StalledError(
            f"{self._name}: peer {what} for {self._timeout_s:g} s at step {step}, chunk {chunk}; "
            "look for a dead route or raise stall_timeout or step_timeout"
        )

    def _gone(self, step: int, chunk: int) -> PeerGoneError:
        return PeerGoneError(f"{self._name}: connection ended at step {step}, chunk {chunk}")

    def close(self) -> None:
        """End the connection; both directions' threads see PeerGoneError."""
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)
        self._sock.close()

    def abort(self) -> None:
        """Wake the threads that wait on this connection, with PeerGoneError."""
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)


def _advanced(views: list[memoryview], done: int) -> list[memoryview]:
    """Return what is left of ``views`` after their first ``done`` bytes."""
    while views and done >= len(views[0]):
        done -= len(views[0])
        views = views[1:]
    return [views[0][done:], *views[1:]] if views else []


class Handoff:
    """How one thread of a rank hands the next piece to another."""

    def __init__(self, what: str, timeout_s: float) -> None:
        self._what = what
        self._timeout_s = timeout_s
        self._ready: queue.SimpleQueue[Floats | None] = queue.SimpleQueue()

    def put(self, piece: Floats) -> None:
        """Hand over one more piece."""
        self._ready.put(piece)

    def get(self) -> Floats:
        """Wait for one more piece. Raises PeerGoneError if it will not come, TrafficError if it takes too long."""
        try:
            piece = self._ready.get(timeout=self._timeout_s)
        except queue.Empty as error:
            raise StalledError(
                f"{self._what}: not ready within {self._timeout_s:g} s; raise stall_timeout or step_timeout"
            ) from error
        if piece is None:
            raise PeerGoneError(f"{self._what}: its thread failed")
        return piece

    def abort(self) -> None:
        """Wake the waiting thread with PeerGoneError."""
        self._ready.put(None)


class Slots:
    """Memory for pieces on their way between two threads of a rank, made when first needed and used again and again."""

    def __init__(self, length: int) -> None:
        self._length = length
        self._free: queue.SimpleQueue[Floats] = queue.SimpleQueue()

    def take(self) -> Floats:
        """Return memory for a piece, of shape (length,)."""
        try:
            return self._free.get_nowait()
        except queue.Empty:
            return np.empty(self._length, np.float32)

    def give_back(self, slot: Floats) -> None:
        """Say that a slot is no longer used."""
        self._free.put(slot)
