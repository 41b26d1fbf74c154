"""A program's links to its peers: made at the start or when first used, and again on next use once they are lost."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping

from fabric.errors import TrafficError
from fabric.model.identity import NodeId
from traffic.storage.wire.calls import ConnectionLost, Party, StorageConnection, dial
from traffic.transport.connection import Endpoint

OnLink = Callable[[NodeId, StorageConnection], None]
DIAL_TIMEOUT_S = 5.0
"""How long one attempt to make a link again takes at most: time for TCP's first three SYNs."""
_PAUSE_FIRST_S = 0.05
_PAUSE_LONGEST_S = 1.0


class Links(Mapping[NodeId, StorageConnection]):
    """Links from the address ``source`` to peers by node; ``on_link`` hears of each one that is made.

    A link is lost when its connections end: the peer died, or TCP gave up (``SocketOptions.user_timeout_s``). Nobody
    dials a peer that nobody wants to call.
    """

    def __init__(self, party: Party, source: str, on_link: OnLink = lambda node, link: None) -> None:
        self._party = party
        self._source = source
        self._on_link = on_link
        self._links: dict[NodeId, StorageConnection] = {}
        self._addresses: dict[NodeId, Endpoint] = {}
        self._untried: set[NodeId] = set()
        self._dialling: dict[NodeId, asyncio.Task[None]] = {}
        self._paused: dict[NodeId, tuple[float, float]] = {}
        """Until when no attempt is made, and how long that pause was."""

    def __getitem__(self, node: NodeId) -> StorageConnection:
        return self._links[node]

    def __iter__(self) -> Iterator[NodeId]:
        return iter(self._links)

    def __len__(self) -> int:
        return len(self._links)

    async def connect(self, node: NodeId, address: Endpoint, timeout_s: float) -> None:
        """Make the first link to a peer. Raises TrafficError if it is not there within ``timeout_s``."""
        self._addresses[node] = address
        link = await dial(self._party, node.name, address, self._source, timeout_s)
        self._links[node] = link
        self._on_link(node, link)

    async def add(self, node: NodeId, address: Endpoint, timeout_s: float, *, is_made_now: bool) -> None:
        """Know of a peer, and make the first link now or when somebody wants to call it. Raises as :meth:`connect`."""
        if is_made_now:
            await self.connect(node, address, timeout_s)
        else:
            self.expect(node, address)

    def expect(self, node: NodeId, address: Endpoint) -> None:
        """Know of a peer; the first link is made when somebody wants to call it."""
        self._addresses[node] = address
        self._untried.add(node)

    def is_up(self, node: NodeId) -> bool:
        """Return whether there is a link to a peer, or none was needed yet; see that one is made if it was lost."""
        link = self._links.get(node)
        if node in self._untried or (link is not None and not link.lost):
            return True
        not_before_s, _ = self._paused.get(node, (0.0, 0.0))
        if node in self._addresses and node not in self._dialling and time.monotonic() >= not_before_s:
            self._dial(node)
        return False

    async def to(self, node: NodeId) -> StorageConnection:
        """Return the link to a peer; wait for the first one. Raises ConnectionLost if there is none now."""
        if node in self._untried:
            self._untried.remove(node)
            self._dial(node)
        if node not in self._links and (first := self._dialling.get(node)) is not None:
            await asyncio.wait([first])
        if not self.is_up(node):
            raise ConnectionLost(f"{self._party.name}: {node} has gone")
        return self._links[node]

    def _dial(self, node: NodeId) -> None:
        self._dialling[node] = self._party.tasks.spawn(self._connect_beside(node))

    async def _connect_beside(self, node: NodeId) -> None:
        """Make a link beside other work; after a failure, none for a while."""
        is_first = node not in self._links
        try:
            await self.connect(node, self._addresses[node], DIAL_TIMEOUT_S)
        except TrafficError:
            _, pause_s = self._paused.get(node, (0.0, _PAUSE_FIRST_S / 2))
            pause_s = min(2 * pause_s, _PAUSE_LONGEST_S)
            self._paused[node] = (time.monotonic() + pause_s, pause_s)
        else:
            self._paused.pop(node, None)
            self._party.counts["links_made_again"] += not is_first
        finally:
            del self._dialling[node]
