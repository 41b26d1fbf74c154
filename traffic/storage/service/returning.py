"""A service's part in bringing targets up to date that have come back: as their predecessor, and as one of them."""

from __future__ import annotations

import asyncio
import functools
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from fabric.model.identity import NodeId
from traffic.storage.chains import Chain, ChunkId
from traffic.storage.config import ResyncConfig
from traffic.storage.control import (
    pack_chain_version,
    pack_last,
    pack_states,
    parse_chain_version,
    parse_last,
    parse_states,
)
from traffic.storage.orders import ResyncAttempt
from traffic.storage.payload import ChunkContent
from traffic.storage.service.membership import Membership
from traffic.storage.service.replica import Chunk, Refused, Replica
from traffic.storage.service.resync import ChunkState
from traffic.storage.service.resyncing import Resync, ResyncForked, ResyncStopped
from traffic.storage.updates import Action
from traffic.storage.wire.calls import CallTimeout, ConnectionLost, StorageConnection, Tasks
from traffic.storage.wire.links import Links
from traffic.storage.wire.messages import IO_BYTES, CallKind, Frame, Io, ReplyStatus, parse_ios
from traffic.transport.connection import Readable

START_TIMEOUT_S = 10.0
RESYNC_KINDS = (CallKind.RESYNC_START, CallKind.RESYNC_WRITE, CallKind.RESYNC_REMOVE, CallKind.RESYNC_DONE)


class PullFrame(Protocol):
    """Brings the data that a call offers, checked."""

    async def __call__(self, link: StorageConnection, frame: Frame, io: Io, until_s: float, /) -> ChunkContent:
        """Return it. Raises Refused."""


@dataclass(frozen=True)
class _Successor:
    """The target that has come back, over links: a :class:`traffic.storage.service.resyncing.ResyncPeer`."""

    node: NodeId
    links: Links
    patience_s: float
    counts: Counter[str]
    sent: Counter[str] = field(default_factory=Counter)
    """What this attempt has sent: ``chunks`` and ``bytes``."""

    async def _call(self, kind: CallKind, meta: bytes, timeout_s: float, offer: Sequence[memoryview] = ()) -> Frame:
        try:
            link = await self.links.to(self.node)
            reply = await link.call(kind, meta, timeout_s, offer=offer)
        except (ConnectionLost, CallTimeout) as error:
            raise ResyncStopped(str(error)) from error
        if reply.status is not ReplyStatus.OK:
            raise ResyncStopped(f"{self.node} refused {kind.name}: {reply.status.name}")
        return reply

    async def start(self, chain: Chain) -> Mapping[ChunkId, ChunkState]:
        reply = await self._call(CallKind.RESYNC_START, pack_chain_version(chain), START_TIMEOUT_S)
        return parse_states(reply.payload)

    async def write(self, chain: Chain, chunk: ChunkId, held: Chunk) -> None:
        stored = held.committed
        assert stored is not None, "what is sent is committed"
        size = stored.content.size_bytes
        action = Action.REMOVE if stored.is_removed else Action.WRITE
        what = 0, size, stored.checksum, stored.request, stored.version, chain.version
        io = Io(chain.number, chunk, *what, action)
        offer = list(stored.content.pieces(0, size))
        meta = io.pack() + pack_last(stored.chain_version, held.last)
        await self._call(CallKind.RESYNC_WRITE, meta, self.patience_s, offer)
        self.counts["resync_removed" if stored.is_removed else "resync_chunks"] += 1
        self.counts["resync_bytes"] += size
        self.sent["chunks"] += 1
        self.sent["bytes"] += size

    async def remove(self, chain: Chain, chunk: ChunkId) -> None:
        io = Io(chain.number, chunk, 0, 0, chain_version=chain.version)
        await self._call(CallKind.RESYNC_REMOVE, io.pack(), self.patience_s)
        self.counts["resync_removed"] += 1

    async def done(self, chain: Chain) -> None:
        await self._call(CallKind.RESYNC_DONE, pack_chain_version(chain), START_TIMEOUT_S)


class Returning:
    """Answers calls of a resync, and begins resyncs of chains in which this node is the last that serves.

    ``counts``: ``resyncs`` done, ``resyncs_stopped`` on the way, ``resync_chunks``, ``resync_bytes`` and
    ``resync_removed`` sent.
    """

    def __init__(self, replica: Replica, config: ResyncConfig, patience_s: float, counts: Counter[str]) -> None:
        self.membership: Membership | None = None
        """The service's part in the cluster, if a cluster manager hears it."""
        self.attempts: list[ResyncAttempt] = []
        """What it has done as a predecessor."""
        self._replica = replica
        self._config = config
        self._patience_s = patience_s
        self._counts = counts
        self._resync = Resync(config.batch, config.rate, patience_s)
        self._rests_until: dict[int, float] = {}

    # As the target that has come back.

    def require_membership(self) -> None:
        """Raises Refused if the service may not answer: it is fenced, or begins anew."""
        if self.membership is not None and not self.membership.may_answer(time.monotonic()):
            node = self._replica.node
            raise Refused(ReplyStatus.NOT_SERVING, f"{node} has lost the cluster manager, or begins anew")

    async def handle(self, link: StorageConnection, frame: Frame, pull: PullFrame) -> None:
        """Answer a call. Raises Refused."""
        until_s = frame.deadline_s
        payload: list[Readable] = []
        if frame.kind is CallKind.RESYNC_START:
            chain = self._syncing(*parse_chain_version(frame.meta))
            if states := pack_states(self._replica.states(chain.number)):
                payload.append(states)
        elif frame.kind is CallKind.RESYNC_WRITE:
            (io,) = parse_ios(frame.meta[:IO_BYTES])
            self._syncing(io.chain, io.chain_version)
            committed_in, last = parse_last(frame.meta[IO_BYTES:])
            bring = functools.partial(pull, link, frame, io, until_s)
            await self._replica.replace_chunk(io._replace(chain_version=committed_in), last, bring, until_s)
        elif frame.kind is CallKind.RESYNC_REMOVE:
            (io,) = parse_ios(frame.meta)
            self._syncing(io.chain, io.chain_version)
            await self._replica.remove_chunk(io.chunk, io.chain, until_s)
        else:
            chain = self._syncing(*parse_chain_version(frame.meta))
            if self.membership is not None:
                self.membership.is_up_to_date(chain.number)
        await link.reply(frame, ReplyStatus.OK, b"", payload)

    def _syncing(self, number: int, version: int) -> Chain:
        """Return a chain in which this node's target syncs. Raises Refused if it does not, or by another version."""
        node = self._replica.node
        chain = self._replica.chain_of(Io(number, ChunkId(0, 0), 0, 0, chain_version=version))
        if chain.syncing is None or chain.syncing.node != node:
            raise Refused(ReplyStatus.WRONG_REQUEST, f"{node} does not sync in {chain}")
        return chain

    # As a predecessor.

    async def look_for_successors(self, tasks: Tasks, links: Callable[[], Links], playing: asyncio.Event) -> None:
        """Begin resyncs where they are due, forever, while the job plays. Of each chain, one at a time."""
        while True:
            await playing.wait()
            await asyncio.sleep(self._config.every)
            now = time.monotonic()
            for chain in self._replica.table.chains:
                is_due = self._rests_until.get(chain.number, now) <= now
                if chain.syncing is not None and chain.nodes[-1:] == (self._replica.node,) and is_due:
                    self._rests_until[chain.number] = float("inf")
                    peer = _Successor(chain.syncing.node, links(), self._patience_s, self._counts)
                    tasks.spawn(self._bring_up_to_date(chain, peer))

    async def _bring_up_to_date(self, chain: Chain, peer: _Successor) -> None:
        began_s, outcome = time.monotonic(), "stopped"
        try:
            await self._resync.bring_up_to_date(self._replica, chain, peer)
            self._counts["resyncs"] += 1
            outcome = "done"
        except (ResyncStopped, Refused) as stopped:
            outcome = "forked" if isinstance(stopped, ResyncForked) else "stopped"
            self._counts[f"resyncs_{outcome}"] += 1
        finally:
            now, sent = time.monotonic(), peer.sent
            self._rests_until[chain.number] = now + self._config.pause
            self.attempts.append(
                ResyncAttempt(
                    chain.number, self._replica.node, peer.node, began_s, now, sent["chunks"], sent["bytes"], outcome
                )
            )
