"""How users ask a cluster in a guest, and how its virtual time goes on while it is up.

A guest's clock leaps to the next event when all programs sleep: days would pass between two questions. So the cluster
asks this side, in turns, whether it may go on (:mod:`fabric.world.virtual.dialogue`): while it waits for the answer the
whole guest stands still. The answer says for how long it may; it comes when as much wall time has passed, or at once
with a user's question. A virtual second takes ``1 / pace`` wall seconds at least. What a guest is late because it
computes is not made up for.

::

    here    GO_S, or GO_S NUMBER MORE TEXT with a piece of a question, or END
    guest   NUMBER and the answer, a line of JSON on stdout
"""

from __future__ import annotations

import asyncio
import json
import os
import select
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, BinaryIO

from cluster.platform.channel import Message
from cluster.platform.responses import RESPONSES, Failed

TURN_S = 0.1
"""For how long a cluster that nobody asks may go on before it asks again."""
ASKED_S = 0.02
"""So with a question, which takes a fraction of that over a fabric: whoever asks often does not make time fly."""
END = "end"
_PIECE = 3500
"""Characters of a question in one answer, which has 4,000 bytes at most."""
LEAST_PACE, MOST_PACE = 0.01, 1000.0


def pieces(number: int, question: Message) -> Iterator[str]:
    """Yield a question as answers to a guest, without how long it may go on."""
    text = json.dumps(question, separators=(",", ":"))
    for start in range(0, len(text), _PIECE):
        more = int(start + _PIECE < len(text))
        yield f"{number} {more} {text[start : start + _PIECE]}"


class _Wake:
    """Ends a wait from another thread, or from a signal's handler."""

    def __init__(self) -> None:
        self._read, self._write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)

    def wait(self, seconds: float) -> None:
        """Return after a time, or once :meth:`end` is called, also before."""
        select.select([self._read], [], [], seconds)
        with suppress(BlockingIOError):
            os.read(self._read, 4096)

    def end(self) -> None:
        """End the wait, or else the next one."""
        with suppress(BlockingIOError):
            os.write(self._write, b".")


class PacedQuestions:
    """This side: answers the guest (``ask``), and takes what it writes (``write``), in the main thread; ``answer`` is
    for the thread in which users are answered. ``on_first``: called when the guest asks for the first time: it is up.

    The first Ctrl-C or SIGTERM from then on lets the cluster end in good order, the second one ends it at once.
    """

    def __init__(self, pace: float, on_first: Callable[[], None], now_s: Callable[[], float] = time.monotonic) -> None:
        self._pace, self._on_first, self._now_s = pace, on_first, now_s
        self._due_s: float | None = None
        """When the guest may go on that has been asked nothing; None before it is up."""
        self._waiting: deque[str] = deque()
        self._answers: dict[int, Future[Message]] = {}
        self._count = 0
        self._ends = self._has_ended = False
        self._rest = b""
        self._lock = threading.Lock()
        self._wake = _Wake()

    def ask(self) -> str:
        """Return what the guest is to do next, once that is due."""
        if self._due_s is None:
            self._due_s = self._now_s()
            for number in (signal.SIGINT, signal.SIGTERM):
                signal.signal(number, self._interrupted)
            self._on_first()
        while True:
            if self._ends and not self._has_ended:
                self._has_ended = True
                return END
            if self._waiting:
                piece = self._waiting.popleft()
                go_s = 0.0 if piece.split(" ", 2)[1] == "1" else ASKED_S
                self._due_s = max(self._due_s, self._now_s()) + go_s / self._pace
                return f"{go_s} {piece}"
            left_s = self._due_s - self._now_s()
            if left_s <= 0:
                # Not from when it was due: what a guest is late is not made up for.
                self._due_s = self._now_s() + TURN_S / self._pace
                return f"{TURN_S}"
            self._wake.wait(left_s)

    def end(self) -> None:
        """Let the cluster end in good order."""
        self._ends = True
        self._wake.end()

    def _interrupted(self, number: int, _: object) -> None:
        if self._ends:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            if number == signal.SIGTERM:
                sys.exit(128 + number)
            raise KeyboardInterrupt
        self.end()

    async def answer(self, question: Message) -> Message:
        """Return what the guest answers a question."""
        answer: Future[Message] = Future()
        with self._lock:
            self._count += 1
            self._answers[self._count] = answer
            self._waiting.extend(pieces(self._count, question))
        self._wake.end()
        return await asyncio.wrap_future(answer)

    def write(self, text: bytes) -> int:
        """Take what the guest has written."""
        *lines, self._rest = (self._rest + text).split(b"\n")
        for line in lines:
            number, _, answer = line.partition(b" ")
            with self._lock:
                waiting = self._answers.pop(int(number), None)
            if waiting is not None and waiting.set_running_or_notify_cancel():
                waiting.set_result(json.loads(answer))
        return len(text)

    def flush(self) -> None:
        """Have nothing to pass on: lines are taken as they come."""


class GuestQuestions:
    """In the guest: takes what the other side says (``next_line``), and answers on ``out``.

    ``begin`` has a question answered, and returns the future.
    """

    def __init__(self, next_line: Callable[[], str | None], begin: Callable[[Message], Any], out: BinaryIO) -> None:
        self._next_line, self._begin, self._out = next_line, begin, out
        self._texts: dict[int, str] = {}
        self._lock = threading.Lock()

    def turn(self) -> float | None:
        """Return for how long the cluster may go on; None: it is to end. All of the guest stands still until that is
        said."""
        line = self._next_line()
        if line is None or line == END:
            return None
        go_s, *asked = line.split(" ", 3)
        if asked:
            number, more, text = int(asked[0]), asked[1] == "1", asked[2]
            text = self._texts.pop(number, "") + text
            if more:
                self._texts[number] = text
            else:
                self._begin(json.loads(text)).add_done_callback(lambda future: self._answer(number, future))
        return float(go_s)

    def _answer(self, number: int, future: Future[Message]) -> None:
        error = future.exception()
        answer = RESPONSES.to_values(Failed(str(error))) if error is not None else future.result()
        line = f"{number} ".encode() + json.dumps(answer, separators=(",", ":")).encode() + b"\n"
        with self._lock:
            self._out.write(line)
            self._out.flush()
