"""The agent of a node: starts and stops ranks, carries the suspend command, and is heard by the scheduler.

While it cannot reach the scheduler ranks go on, and what has ended or was saved is told when it is back. It keeps word
of an end until the scheduler has noted the end of the whole life.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from types import MappingProxyType
from typing import Protocol

from cluster.health.messages import HealthOrder
from cluster.health.unwell import Unwell
from cluster.platform.channel import Channel, Message
from cluster.platform.messages import (
    Acknowledged,
    Answered,
    AskReady,
    Beat,
    Hello,
    Noted,
    RankEnd,
    RankOrder,
    Ready,
    StartRank,
    StepSaved,
    StopRank,
    SuspendRank,
    Word,
    of_values,
    to_values,
)
from cluster.platform.timers import Timers
from fabric.errors import TrafficError
from traffic.storage.wire.event_loop import dialled
from traffic.transport.connection import Endpoint, Transport, UnreachableError

UNANSWERED_BEATS = 3
"""After so many heartbeats without an answer an agent dials anew: a way that works again is found sooner than by TCP,
whose pauses double."""
LOST_CODE = 143
"""The exit code of a rank of which the agent knows nothing any more, as of one that was killed by SIGTERM."""


@dataclass(frozen=True)
class SavedStep:
    """A checkpoint that a rank has told of, and when that was complete (``time.monotonic()``)."""

    step: int
    at_s: float


@dataclass(frozen=True)
class RankWords:
    """Who hears what a rank does: that it has ended, that it has seen the suspend command, that it has saved."""

    ended: Callable[[RankEnd], None]
    answered: Callable[[], None]
    saved: Callable[[SavedStep], None]


class Ranks(Protocol):
    """What runs ranks on a node."""

    def start(self, order: RankOrder, words: RankWords) -> None:
        """Start a rank; ``words`` are called when something happens."""

    def suspend(self, life: int) -> None:
        """Let a rank see the suspend command."""

    def stop(self, life: int) -> None:
        """Kill a rank."""


class HealthSide(Protocol):
    """What looks after the health of a node."""

    def unwell(self) -> Unwell:
        """Return the node's faults, for the scheduler."""

    def hear(self, order: HealthOrder) -> None:
        """Take an order that is not about ranks."""


class _NoHealth:
    """Nobody does."""

    def unwell(self) -> Unwell:
        return Unwell()

    def hear(self, order: HealthOrder) -> None:
        pass


@dataclass
class Unacknowledged:
    """What the scheduler has not noted yet, by life: ends of ranks, what they saved, and whose ranks the agent killed
    by its fence."""

    ended: dict[int, RankEnd] = field(default_factory=dict)
    saved: dict[int, SavedStep] = field(default_factory=dict)
    fenced: set[int] = field(default_factory=set)


class NodeAgent:
    """One node's agent. ``saved``: of lives that ran before it was begun again, what they have saved."""

    def __init__(
        self, node: str, ranks: Ranks, timers: Timers, saved: Mapping[int, SavedStep] = MappingProxyType({})
    ) -> None:
        self.node, self.ranks, self.timers = node, ranks, timers
        self.health: HealthSide = _NoHealth()
        self.playing = asyncio.Event()
        """Whether it may send: between phases of a run no packet moves."""
        self.playing.set()
        self._running: dict[int, RankOrder] = {}
        self.untold = Unacknowledged(saved=dict(saved))
        self._asked: AskReady | None = None
        """The question whether it can take a life, until it is answered."""
        self._channel: Channel | None = None
        self._heard_s = time.monotonic()
        """When the last heartbeat was sent that the scheduler has answered: it has heard this node at that time or
        later."""

    async def serve(self, transport: Transport, endpoint: Endpoint, source: str = "") -> None:
        """Be the agent, forever: dial the scheduler, again whenever it is gone."""
        fencing = None
        if self.timers.fence is not None:
            fencing = asyncio.get_running_loop().create_task(self._fence_on(self.timers.fence))
        try:
            await self._serve_on(transport, endpoint, source)
        finally:
            if fencing is not None:
                fencing.cancel()

    async def _fence_on(self, fence_s: float) -> None:
        """Kill all ranks whenever the scheduler has been silent for too long."""
        while True:
            left_s = self._heard_s + fence_s - time.monotonic()
            if left_s <= 0 and self.playing.is_set():
                self.untold.fenced |= set(self._running)
                self.stop_ranks()
            await asyncio.sleep(left_s if left_s > 0 else self.timers.beat / 2)

    async def _serve_on(self, transport: Transport, endpoint: Endpoint, source: str) -> None:
        while True:
            await self.playing.wait()
            lost: asyncio.Future[str] = asyncio.get_running_loop().create_future()
            with suppress(UnreachableError, asyncio.TimeoutError, TrafficError):
                connection = await dialled(transport, endpoint, source, self.timers.dial)
                channel = Channel(connection, self._hear, partial(_set, lost))
                self._channel = channel
                try:
                    self._hello()
                    await self._beat_on(channel, lost)
                finally:
                    self._channel = None
                    channel.close()
            await asyncio.sleep(self.timers.redial)

    async def _beat_on(self, channel: Channel, lost: asyncio.Future[str]) -> None:
        """Send heartbeats until the connection has ended, or is not answered any more."""
        answered_s = time.monotonic()
        while not lost.done():
            await asyncio.wait([lost], timeout=self.timers.beat)
            now_s = time.monotonic()
            if not self.playing.is_set():
                answered_s = now_s
            elif now_s - max(answered_s, self._heard_s) > UNANSWERED_BEATS * self.timers.beat:
                return
            elif not lost.done():
                self._beat(now_s)

    def _hello(self) -> None:
        now_s, untold = time.monotonic(), self.untold
        saved = tuple(StepSaved(life, one.step, now_s - one.at_s) for life, one in untold.saved.items())
        ended, running = tuple(untold.ended.values()), tuple(sorted(self._running))
        self.send(Hello(self.node, self.health.unwell(), now_s, running, ended, saved))

    def beat(self) -> None:
        """Be heard now, as when what ails the node has changed."""
        if self.playing.is_set():
            self._beat(time.monotonic())

    def _beat(self, now_s: float) -> None:
        self.send(Beat(self.health.unwell(), now_s, now_s - self._heard_s))

    def stop_ranks(self) -> None:
        """Kill all ranks."""
        self._stop(self._running)

    def _stop(self, lives: Iterable[int]) -> None:
        for life in list(lives):
            self.ranks.stop(life)

    def send(self, word: Word) -> None:
        """Send a word to the scheduler, if it can be reached."""
        if self._channel is not None:
            self._channel.send(to_values(word))

    def _hear(self, message: Message) -> None:
        order = of_values(message)
        if isinstance(order, Acknowledged):
            self._heard_s = max(self._heard_s, order.at)
        elif isinstance(order, AskReady):
            self._asked = order
            # The node is that life's alone: to the scheduler whatever else runs here has ended.
            self._stop(self._running.keys() - {order.life})
            self._answer()
        elif isinstance(order, StartRank):
            self._start(order.order)
        elif isinstance(order, SuspendRank):
            if order.life in self._running:
                self.ranks.suspend(order.life)
        elif isinstance(order, StopRank):
            if order.life in self._running:
                self.beat()  # It is heard, however long the rank takes to end.
                self.ranks.stop(order.life)
            else:
                self.send(self.untold.ended.get(order.life, RankEnd(order.life, LOST_CODE)))
        elif isinstance(order, Noted):
            self.untold.ended.pop(order.life, None)
            self.untold.saved.pop(order.life, None)
            self.untold.fenced.discard(order.life)
        elif isinstance(order, HealthOrder):
            self.health.hear(order)

    def _answer(self) -> None:
        """Say whether it can take the life that it was asked for, once no rank of another is left."""
        if self._asked is not None and not self._running.keys() - {self._asked.life}:
            asked, self._asked = self._asked, None
            self.send(Ready(asked.life, asked.turn, self.health.unwell()))

    def _start(self, order: RankOrder) -> None:
        if order.life in self._running or order.life in self.untold.ended:
            return
        self._running[order.life] = order
        words = RankWords(
            self._has_ended,
            lambda: self.send(Answered(order.life)),
            partial(self._has_saved, order.life),
        )
        self.ranks.start(order, words)

    def _has_saved(self, life: int, saved: SavedStep) -> None:
        self.untold.saved[life] = saved
        self.send(StepSaved(life, saved.step, time.monotonic() - saved.at_s))

    def _has_ended(self, end: RankEnd) -> None:
        self._running.pop(end.life, None)
        end = replace(end, fenced=end.life in self.untold.fenced and end.code != 0)
        self.untold.ended[end.life] = end
        self.send(end)
        self._answer()


def _set(lost: asyncio.Future[str], why: str) -> None:
    if not lost.done():
        lost.set_result(why)
