"""What arrives on a connection: frames in pieces, payloads under way, and how much has to come before its receiver
is woken."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from traffic.storage.wire.messages import HEADER, Frame, parse_header
from traffic.transport.connection import Connection

_WAKE_BYTES = 128 << 10


@dataclass
class ArrivingPayloads:
    """How many payloads are arriving at a program at once: those begun and not yet whole."""

    current: int = 0
    peak: int = 0

    def begin(self) -> None:
        """Count one that begins."""
        self.current += 1
        self.peak = max(self.peak, self.current)

    def end(self) -> None:
        """Count one that is whole or given up."""
        self.current -= 1


class ArrivingFrame:
    """The frame that is arriving on a connection: its header, then its records and its payload, each into a buffer of
    its own.

    ``scratch``: where small ones come first, with what is behind them.
    """

    def __init__(self, arrivals: ArrivingPayloads, on_frame: Callable[[Frame], None], scratch: memoryview) -> None:
        self._arrivals = arrivals
        self._on_frame = on_frame
        self._scratch = scratch
        self._is_copied = False
        self._header = bytearray(HEADER.size)
        self._head: tuple[Frame, int, int] | None = None
        """What the header says, once it is whole."""
        self._meta = bytearray()
        self._frame: Frame | None = None
        """The frame whose payload is arriving."""
        self._is_counted = False
        self._rest = memoryview(self._header)

    @property
    def wanted_bytes(self) -> int:
        """How much completes the part that is arriving."""
        return len(self._rest)

    @property
    def is_between_frames(self) -> bool:
        """Whether nothing of the next frame has come."""
        return self._head is None and self._frame is None and len(self._rest) == HEADER.size

    def buffer(self) -> memoryview:
        """Return where the next bytes are to come."""
        self._is_copied = len(self._rest) < len(self._scratch)
        return self._scratch if self._is_copied else self._rest

    def take(self, count: int, goes_on: Callable[[], bool]) -> None:
        """Take ``count`` bytes that have come into :meth:`buffer`; hand on the frames that they complete, for as long
        as ``goes_on`` says so after each."""
        if not self._is_copied:
            self._advance(count)
            return
        start = 0
        while start < count and goes_on():
            start += self._take_copied(start, count)

    def _take_copied(self, start: int, end: int) -> int:
        """Take of the scratch a header with its records, or what completes a part; return how much that was."""
        if self.is_between_frames and end - start >= HEADER.size:
            head, meta_bytes, payload_bytes = parse_header(self._scratch, start)
            size = HEADER.size + meta_bytes
            if end - start >= size:
                self._begin_payload(head, bytes(self._scratch[start + HEADER.size : start + size]), payload_bytes)
                return size
        taken = min(end - start, len(self._rest))
        self._rest[:taken] = self._scratch[start : start + taken]
        self._advance(taken)
        return taken

    def _advance(self, count: int) -> None:
        self._rest = self._rest[count:]
        while not self._rest:
            self._next_part()

    def _next_part(self) -> None:
        if self._frame is not None:
            self._end_frame(self._frame)
        elif self._head is None:
            self._head = parse_header(self._header)
            self._meta = bytearray(self._head[1])
            self._rest = memoryview(self._meta)
        else:
            head, _, payload_bytes = self._head
            self._begin_payload(head, bytes(self._meta), payload_bytes)

    def _begin_payload(self, head: Frame, meta: bytes, payload_bytes: int) -> None:
        payload = bytearray(payload_bytes)
        frame = Frame(head.kind, head.is_reply, head.status, head.number, head.deadline_s, meta, payload)
        if not payload_bytes:
            self._end_frame(frame)
            return
        self._frame = frame
        self._rest = memoryview(payload)
        self._is_counted = True
        self._arrivals.begin()

    def _end_frame(self, frame: Frame) -> None:
        self.give_up()
        self._head = self._frame = None
        self._rest = memoryview(self._header)
        self._on_frame(frame)

    def give_up(self) -> None:
        """Count the payload, if one is arriving, as gone."""
        if self._is_counted:
            self._is_counted = False
            self._arrivals.end()


class WakeMark:
    """How much must have come before a receiver is woken: what completes a part, or 128 KiB of it, or
    five eighths of its window if that is more. Five, so that a payload of half a window is waited for with its header.

    To wake for each packet would cost a core per 20 MB/s. ``expected_bytes``: how much payload the next frame bears at
    least.
    """

    def __init__(self, connection: Connection, window_bytes: int | None) -> None:
        self.expected_bytes = 0
        self._connection = connection
        self._most = max(_WAKE_BYTES, (window_bytes or 0) * 5 // 8)
        self._set = 0

    def set_for(self, arriving: ArrivingFrame) -> None:
        """Have the receiver woken for what is wanted next."""
        wanted = arriving.wanted_bytes
        if arriving.is_between_frames:
            wanted += self.expected_bytes
        mark = min(wanted, self._most)
        if mark != self._set:
            self._set = mark
            self._connection.wake_at(mark)
