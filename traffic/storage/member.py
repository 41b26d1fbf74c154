"""What services and clients do in a cluster with a manager: heartbeats, and asking for newer chains, in turns."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from traffic.storage.chains import ChainTable, TableChange
from traffic.storage.control import ManagerLink, Nodes
from traffic.storage.orders import ManagerEnd
from traffic.storage.service.membership import Membership
from traffic.storage.wire.calls import Party, StorageConnection, Tasks
from traffic.storage.wire.links import Links
from traffic.storage.wire.messages import Frame, ReplyStatus

JOINING_TURN_S = 1.0
"""How often a service that begins anew is heard and asks, until it may join (3FS: ``waitRoutingInfo``)."""


def manager_link(
    name: str, manager: ManagerEnd, source: str, timeout_s: float, tasks: Tasks, counts: Counter[str] | None = None
) -> ManagerLink:
    """Return how a program calls the cluster manager, or the primary of several, from its address ``source``;
    ``counts``: those of the program."""
    links = Links(
        Party(name, _refuse, manager.transport, tasks, counts=Counter() if counts is None else counts), source
    )
    for node, endpoint in manager.ends.items():
        links.expect(node, endpoint)
    nodes = Nodes(manager.nodes, manager.has_clocks)
    return ManagerLink(links, tuple(manager.ends), nodes, timeout_s, manager.skew_s)


class Follower(Protocol):
    """A program that goes by chains."""

    table: ChainTable

    def adopt(self, change: TableChange) -> None:
        """Go by newer ones."""


async def follow_routing(
    link: ManagerLink, first_s: float, every_s: float, program: Follower, playing: asyncio.Event
) -> None:
    """Ask for newer chains, after a time and then in turns, forever; but only while the job plays."""
    await playing.wait()
    await asyncio.sleep(first_s)
    while True:
        await playing.wait()
        change = await link.routing_since(program.table.version)
        if change is not None:
            program.adopt(change)
        await asyncio.sleep(every_s)


def _refuse(link: StorageConnection, frame: Frame) -> None:
    link.answer(frame, ReplyStatus.WRONG_REQUEST)


@dataclass(frozen=True)
class Member:
    """A service as the cluster manager hears it. Turns of a service begin at a place of theirs, from 0 to 1, so that
    not all are heard at once. Between phases of its job, when no packet may move, nobody is heard or asks."""

    membership: Membership
    link: ManagerLink
    table: Callable[[], ChainTable]
    adopt: Callable[[TableChange], None]
    playing: asyncio.Event

    async def beat_on(self, every_s: float, place: float) -> None:
        """Be heard in turns, forever; sooner while it joins."""
        await self.playing.wait()
        await asyncio.sleep(every_s * place)
        while True:
            await self.playing.wait()
            await self._beat()
            await self._turn(every_s)

    async def _beat(self) -> None:
        sent_s = time.monotonic()
        number, reports = self.membership.next_heartbeat(self.table())
        said = self.link.nodes.pack_heartbeat(self.membership.node, number, reports, self.link.clock_s())
        if await self.link.heartbeat(said):
            self.membership.heard(sent_s, time.monotonic())
            if self.membership.must_see:
                await self._poll()

    async def _turn(self, every_s: float) -> None:
        """Wait for the next turn: a turn is short while the service joins, and it ends once it has joined."""
        ends_s = time.monotonic() + every_s
        was_joining = self.membership.is_joining
        while (left_s := ends_s - time.monotonic()) > 0:
            await asyncio.sleep(min(JOINING_TURN_S, left_s))
            if was_joining or self.membership.is_joining:
                return

    async def poll_on(self, every_s: float, place: float) -> None:
        """Ask for newer chains in turns, forever, and go by them."""
        await self.playing.wait()
        await asyncio.sleep(every_s * place)
        while True:
            await self.playing.wait()
            await self._poll()
            await self._turn(every_s)

    async def ask_last(self) -> None:
        """Ask once more at the end of a phase, when clients have ended: they may know newer chains, and this service
        could answer nothing that goes by these until the next phase."""
        await self._poll()

    async def _poll(self) -> None:
        asked_s = time.monotonic()
        change = await self.link.routing_since(self.table().version)
        if change is not None:
            self.adopt(change)
            self.membership.see(self.table(), time.monotonic(), asked_s)
