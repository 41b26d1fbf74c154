"""The loop that storage's programs wait in: asyncio's, which asks the kernel for events less often; and how connections
of any transport wait in it.

asyncio looks for events before each round of what is ready to run, also if that is only what the last event led to: a
message that arrives sets a future, whose task runs in the next round. So each message took two calls of ``epoll_wait``,
one of them in vain. Here, what is ready runs first, and events are looked for once nothing is, or after a number of
rounds.

``epoll_wait`` counts milliseconds, so that a pause of 0.1 ms would take one. Where a timer is near, ``select`` waits
for it, which counts microseconds. And the kernel may let a thread's timers be late by its slack, which is 50 us unless
the thread asks for less.
"""

from __future__ import annotations

import asyncio
import ctypes
import select
import selectors
import time
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from traffic.transport.connection import Connection, Endpoint, PollFor, Transport

MOST_ROUNDS = 10
"""Rounds of what is ready, one after the other without a look at events: tasks that never wait keep nobody waiting."""
NEAR_S = 0.1
"""How near a timer is that is to be exact: of one that is farther, a millisecond is less than a hundredth."""
_MOST_SELECTED = 1024
"""``select`` knows descriptors below this."""

_libc = ctypes.CDLL(None)
_PR_SET_TIMERSLACK, _LEAST_SLACK_NS = 29, 1

_Events = list[tuple[selectors.SelectorKey, int]]


class FewerLooks(selectors.DefaultSelector):
    """A selector that finds nothing, without a look, where it is not to wait: up to ``MOST_ROUNDS`` times in a row.
    Short waits last as long as they are to."""

    def __init__(self) -> None:
        super().__init__()
        self._rounds = 0

    def select(self, timeout: float | None = None) -> _Events:
        """Return the events that are there within ``timeout`` seconds; None: as long as it takes."""
        if timeout is not None and timeout <= 0 and self._rounds < MOST_ROUNDS:
            self._rounds += 1
            return []
        self._rounds = 0
        if timeout is not None and 0 < timeout < NEAR_S and self.fileno() < _MOST_SELECTED:
            select.select([self.fileno()], [], [], timeout)
            timeout = 0
        return super().select(timeout)


class _Policy(asyncio.DefaultEventLoopPolicy):
    def new_event_loop(self) -> asyncio.AbstractEventLoop:
        return asyncio.SelectorEventLoop(FewerLooks())


def run(main: Coroutine[Any, Any, None]) -> None:
    """Run a program's coroutine to its end, as :func:`asyncio.run` does. Timers of the thread are exact from now on."""
    asyncio.set_event_loop_policy(_Policy())
    _libc.prctl(_PR_SET_TIMERSLACK, _LEAST_SLACK_NS)
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


async def dialled(transport: Transport, endpoint: Endpoint, source: str, timeout_s: float) -> Connection:
    """Return a connection to who listens. Raises UnreachableError if nobody does, asyncio.TimeoutError if nobody
    answers in time."""
    deadline_s = time.monotonic() + timeout_s
    dial = transport.dial(endpoint, source)
    while True:
        try:
            await until(dial.poll_for_answer, max(0.0, deadline_s - time.monotonic()))
        except BaseException:
            dial.close()
            raise
        if (connection := dial.answered()) is not None:
            return connection


async def until(wanted: PollFor, timeout_s: float) -> None:
    """Wait for it once. Raises asyncio.TimeoutError."""
    loop = asyncio.get_running_loop()
    is_there: asyncio.Future[None] = loop.create_future()
    watch(loop, wanted, lambda: None if is_there.done() else is_there.set_result(None))
    try:
        await asyncio.wait_for(is_there, timeout_s)
    finally:
        unwatch(loop, wanted)


async def all_of(work: Sequence[Coroutine[Any, Any, None]]) -> None:
    """Wait for all; on the first failure cancel the others and raise it."""
    running = [asyncio.ensure_future(one) for one in work]
    try:
        await asyncio.gather(*running)
    finally:
        for one in running:
            one.cancel()
