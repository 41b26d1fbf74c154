"""Signals that ask for an end, held back while what they would have to end is being started."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

ENDING = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def held_back() -> Iterator[None]:
    """Let SIGINT and SIGTERM that come within a block act at its end.

    A process that is started there is by then known to whoever ends it. Signals that are ignored, or end this process
    at once, do so here, too; so do all of them in another thread than the first, to which Python gives none.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[tuple[int, FrameType | None]] = []
    handlers = {number: handler for number in ENDING if callable(handler := signal.getsignal(number))}
    for number in handlers:
        signal.signal(number, lambda *what: came.append(what))  # What is executed has the default one instead.
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        for which, frame in came:
            handlers[signal.Signals(which)](which, frame)
