"""The agent of a node: starts and stops ranks, carries the suspend command, and is heard by the scheduler.

While it cannot reach the scheduler ranks go on, and what has ended is told when it is back.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from typing import Protocol

from cluster.platform.channel import Channel, Message
from cluster.platform.timers import Timers
from fabric.errors import TrafficError
from traffic.storage.event_loop import dialled
from traffic.transport.connection import Endpoint, Transport, UnreachableError

LOST_CODE = 143
"""The exit code of a rank of which the agent knows nothing any more, as of one that was killed by SIGTERM."""


@dataclass(frozen=True)
class RankOrder:
    """What one node does of a life: ``rank`` of ``world`` nodes, and where rank 0 is. ``step``: that of the last
    checkpoint that a former life told of."""

    life: int
    job: int
    rank: int
    world: int
    master: str
    command: tuple[str, ...]
    step: int | None = None


@dataclass(frozen=True)
class RankEnd:
    """How a rank has ended. ``suspended``: by ``go_suspend()``; ``step``: that of its last checkpoint."""

    life: int
    code: int
    step: int | None = None
    suspended: bool = False


class Ranks(Protocol):
    """What runs ranks on a node."""

    def start(self, order: RankOrder, ended: Callable[[RankEnd], None], answered: Callable[[], None]) -> None:
        """Start a rank. Once it has ended ``ended`` is called, and ``answered`` once it has seen the command."""

    def suspend(self, life: int) -> None:
        """Let a rank see the suspend command."""

    def stop(self, life: int) -> None:
        """Kill a rank."""


class NodeAgent:
    """One node's agent. ``unwell`` says what is wrong with the node, for the scheduler; empty: nothing."""

    def __init__(self, node: str, ranks: Ranks, timers: Timers) -> None:
        self.node, self.ranks, self.timers = node, ranks, timers
        self.unwell: Callable[[], str] = str
        self.others: Callable[[Message], None] = lambda message: None
        """Takes messages that are not about ranks."""
        self.playing = asyncio.Event()
        """Whether it may send: between phases of a run no packet moves."""
        self.playing.set()
        self._running: dict[int, RankOrder] = {}
        self._ended: dict[int, RankEnd] = {}
        self._channel: Channel | None = None
        self._heard_s = time.monotonic()

    async def serve(self, transport: Transport, endpoint: Endpoint, source: str = "") -> None:
        """Be the agent, for ever: dial the scheduler, again whenever it is gone."""
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
        while not lost.done():
            await asyncio.wait([lost], timeout=self.timers.beat)
            if not lost.done() and self.playing.is_set():
                channel.send({"kind": "beat", "unwell": self.unwell()})

    def _hello(self) -> None:
        self.send(
            {
                "kind": "hello",
                "node": self.node,
                "unwell": self.unwell(),
                "running": sorted(self._running),
                "ended": [asdict(end) for end in self._ended.values()],
            }
        )

    def beat(self) -> None:
        """Be heard now, as when what ails the node has changed."""
        if self.playing.is_set():
            self.send({"kind": "beat", "unwell": self.unwell()})

    def stop_ranks(self) -> None:
        """Kill all ranks."""
        for life in list(self._running):
            self.ranks.stop(life)

    def send(self, message: Message) -> None:
        """Send a message to the scheduler, if it can be reached."""
        if self._channel is not None:
            self._channel.send(message)

    def _hear(self, message: Message) -> None:
        kind = message["kind"]
        self._heard_s = time.monotonic()
        if kind == "start":
            self._start(RankOrder(**{**message["order"], "command": tuple(message["order"]["command"])}))
        elif kind == "suspend" and message["life"] in self._running:
            self.ranks.suspend(message["life"])
        elif kind == "stop":
            if message["life"] in self._running:
                self.ranks.stop(message["life"])
            else:
                end = self._ended.get(message["life"], RankEnd(message["life"], LOST_CODE))
                self.send({"kind": "ended", **asdict(end)})
        elif kind == "noted":
            self._ended.pop(message["life"], None)
        else:
            self.others(message)

    def _start(self, order: RankOrder) -> None:
        if order.life in self._running or order.life in self._ended:
            return
        self._running[order.life] = order
        self.ranks.start(order, self._has_ended, lambda: self.send({"kind": "answered", "life": order.life}))

    def _has_ended(self, end: RankEnd) -> None:
        self._running.pop(end.life, None)
        self._ended[end.life] = end
        self.send({"kind": "ended", **asdict(end)})


def _set(lost: asyncio.Future[str], why: str) -> None:
    if not lost.done():
        lost.set_result(why)
