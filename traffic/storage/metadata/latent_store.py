"""A store that takes the time of another kind beside its own: FoundationDB's, in front of a program that takes none."""

from __future__ import annotations

import asyncio

from traffic.storage.kv.store import Commit, Pair, Range, Store
from traffic.storage.metadata.config import StoreConfig


class LatentStore:
    """A :class:`traffic.storage.kv.store.Store` whose calls take longer."""

    def __init__(self, store: Store, config: StoreConfig) -> None:
        self._store = store
        self._config = config

    async def read_version(self) -> int:
        """Return the version of the latest commit."""
        await _pass(self._config.begin_latency)
        return await self._store.read_version()

    async def get(self, key: bytes, version: int) -> bytes | None:
        """Return the value of a key at a version, or None. Raises TooOld."""
        await _pass(self._config.read_latency)
        return await self._store.get(key, version)

    async def range(self, range_: Range, version: int, limit: int, reverse: bool = False) -> list[Pair]:
        """Return the first pairs of a range at a version. Raises TooOld."""
        await _pass(self._config.read_latency)
        return await self._store.range(range_, version, limit, reverse)

    async def commit(self, commit: Commit) -> int:
        """Write, and return the version of it. Raises Conflict, and TooOld."""
        if commit.sets or commit.clears:
            await _pass(self._config.commit_latency)
        return await self._store.commit(commit)


async def _pass(time_s: float) -> None:
    if time_s > 0:
        await asyncio.sleep(time_s)
