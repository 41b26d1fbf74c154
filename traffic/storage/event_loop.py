"""The loop that storage's programs wait in: asyncio's, which asks the kernel for events less often; and how connections
of any transport wait in it.

asyncio looks for events before each round of what is ready to run, also if that is only what the last event led to: a
message that arrives sets a future, whose task runs in the next round. So each message took two calls of ``epoll_wait``,
one of them in vain. Here, what is ready runs first, and events are looked for once nothing is, or after a number of
rounds.
"""

from __future__ import annotations

import asyncio
import select
import selectors
from collections.abc import Callable, Coroutine
from typing import Any

from traffic.transport.connection import PollFor

MOST_ROUNDS = 10
"""Rounds of what is ready, one after the other without a look at events: tasks that never wait keep nobody waiting."""

_FINE_BELOW_S = 0.02
"""Of longer waits a millisecond is little, and a wait by ``select`` takes one more call."""
_MOST_SELECTED = 1024
"""Descriptors that ``select`` can wait for are below."""

_Events = list[tuple[selectors.SelectorKey, int]]


class FewerLooks(selectors.DefaultSelector):
    """A selector that finds nothing, without a look, where it is not to wait: up to ``MOST_ROUNDS`` times in a row.

    Short waits last as long as they are to. ``epoll_wait`` counts milliseconds, and Python rounds up: a disk's latency
    of 100 us would be ten times as long.
    """

    def __init__(self) -> None:
        super().__init__()
        self._rounds = 0

    def select(self, timeout: float | None = None) -> _Events:
        """Return the events that are there within ``timeout`` seconds; None: as long as it takes."""
        if timeout is not None and timeout <= 0 and self._rounds < MOST_ROUNDS:
            self._rounds += 1
            return []
        self._rounds = 0
        descriptor = self.fileno() if hasattr(self, "fileno") else _MOST_SELECTED
        if timeout is not None and 0 < timeout < _FINE_BELOW_S and descriptor < _MOST_SELECTED:
            if not select.select((descriptor,), (), (), timeout)[0]:
                return []
            timeout = 0.0
        return super().select(timeout)


class _Policy(asyncio.DefaultEventLoopPolicy):
    def new_event_loop(self) -> asyncio.AbstractEventLoop:
        return asyncio.SelectorEventLoop(FewerLooks())


def run(main: Coroutine[Any, Any, None]) -> None:
    """Run a program's coroutine to its end, as :func:`asyncio.run` does."""
    asyncio.set_event_loop_policy(_Policy())
    asyncio.run(main)


def watch(loop: asyncio.AbstractEventLoop, wanted: PollFor, ready: Callable[[], None]) -> None:
    """Call ``ready`` in each round in which there is what is wanted, until :func:`unwatch`."""
    if wanted.events == select.POLLIN:
        loop.add_reader(wanted.descriptor, ready)
    else:
        loop.add_writer(wanted.descriptor, ready)


def unwatch(loop: asyncio.AbstractEventLoop, wanted: PollFor) -> None:
    """Wait for it no longer. To be called before the descriptor is closed."""
    if wanted.events == select.POLLIN:
        loop.remove_reader(wanted.descriptor)
    else:
        loop.remove_writer(wanted.descriptor)


async def until(wanted: PollFor, timeout_s: float) -> None:
    """Wait for it once. Raises asyncio.TimeoutError."""
    loop = asyncio.get_running_loop()
    is_there: asyncio.Future[None] = loop.create_future()
    watch(loop, wanted, lambda: None if is_there.done() else is_there.set_result(None))
    try:
        await asyncio.wait_for(is_there, timeout_s)
    finally:
        unwatch(loop, wanted)
