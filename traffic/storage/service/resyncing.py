"""A predecessor brings a target up to date that has come back, by the plan of :mod:`traffic.storage.service.resync`. No
sockets.

As 3FS does, chain by chain and chunk by chunk: each chunk is read and sent under its lock, so that writes of it come
before or after. Each batch begins only if the chain is still the same. 3FS sets no limit to the rate; here may be one.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from fabric.errors import TrafficError
from traffic.storage.chains import Chain, ChunkId
from traffic.storage.service.replica import Chunk, Replica
from traffic.storage.service.resync import ChunkState, ResyncPlan, plan_resync

T = TypeVar("T")


class ResyncStopped(TrafficError):  # noqa: N818 - what happened, as its callers name it
    """A resync did not come to its end: the chain changed, or the target is out of reach. It begins anew."""


class ResyncForked(ResyncStopped):
    """The target that has come back has what its predecessor never had. It must be taken offline."""


class ResyncPeer(Protocol):
    """The target that has come back. All raise ResyncStopped if it cannot be done."""

    async def start(self, chain: Chain) -> Mapping[ChunkId, ChunkState]:
        """Return what it has of the chain's chunks."""

    async def write(self, chain: Chain, chunk: ChunkId, held: Chunk) -> None:
        """Let it have a whole chunk, as it is committed here."""

    async def remove(self, chain: Chain, chunk: ChunkId) -> None:
        """Let it forget a chunk."""

    async def done(self, chain: Chain) -> None:
        """Let it know that it is up to date."""


@dataclass(frozen=True)
class Resync:
    """How it is done. ``batch``: chunks at once; ``rate_bps``: at most, None: as fast as it goes; ``patience_s``: how
    long a chunk may take."""

    batch: int = 16
    rate_bps: float | None = None
    patience_s: float = 60.0

    async def bring_up_to_date(self, replica: Replica, chain: Chain, peer: ResyncPeer) -> ResyncPlan:
        """Send what the target lacks that syncs in a chain; return what was planned. Raises ResyncStopped."""
        there = await peer.start(chain)
        _require_same(replica, chain)
        plan = plan_resync(replica.states(chain.number), there, chain.version)
        if plan.forked:
            shown = ", ".join(map(str, plan.forked[:3]))
            raise ResyncForked(f"{replica.node}: {chain}: {chain.syncing} has forked: {shown}")

        async def remove(chunk: ChunkId) -> None:
            await peer.remove(chain, chunk)

        async def write(chunk: ChunkId) -> None:
            async with replica.at_rest(chunk, time.monotonic() + self.patience_s) as held:
                if held is not None:  # Else it was removed meanwhile.
                    await peer.write(chain, chunk, held)

        await self._batches(replica, chain, plan.removes, remove, {})
        await self._batches(replica, chain, list(plan.writes), write, plan.writes)
        _require_same(replica, chain)
        await peer.done(chain)
        return plan

    async def _batches(
        self,
        replica: Replica,
        chain: Chain,
        chunks: Sequence[ChunkId],
        do: Callable[[ChunkId], Awaitable[None]],
        sizes: Mapping[ChunkId, int],
    ) -> None:
        for start in range(0, len(chunks), self.batch):
            _require_same(replica, chain)
            batch = chunks[start : start + self.batch]
            not_before_s = time.monotonic() + self._paced_s(sum(sizes.get(chunk, 0) for chunk in batch))
            await asyncio.gather(*(do(chunk) for chunk in batch))
            await asyncio.sleep(max(0.0, not_before_s - time.monotonic()))

    def _paced_s(self, size_bytes: int) -> float:
        return size_bytes * 8 / self.rate_bps if self.rate_bps else 0.0


def _require_same(replica: Replica, chain: Chain) -> None:
    now = replica.table.chains[chain.number]
    if now != chain:
        raise ResyncStopped(f"{replica.node}: {chain} of version {chain.version} has version {now.version} now")
