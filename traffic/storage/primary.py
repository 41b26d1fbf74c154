"""One of several cluster managers: it is the primary while it holds the lease, and goes by what is stored else.

Who is no primary hears heartbeats, but changes nothing. Who becomes it reads the chains, waits until every service has
had time to be heard, and goes on from there. 3FS: ``MgmtdLeaseExtender`` and ``doAsPrimary``.
"""

from __future__ import annotations

from fabric.errors import TrafficError
from traffic.storage.chain_store import ChainStore, StaleManager
from traffic.storage.chains import TableChange
from traffic.storage.kv.lease import Lease, NotPrimary, extend_lease
from traffic.storage.kv.store import Conflict, Store
from traffic.storage.manager import ClusterManager


class Primary:
    """A manager's part among several. ``bootstrap_s``: how long a new primary changes nothing."""

    def __init__(
        self, name: str, manager: ClusterManager, store: Store, chains: ChainStore, bootstrap_s: float
    ) -> None:
        self.manager = manager
        self._name = name
        self._store = store
        self._chains = chains
        self._bootstrap_s = bootstrap_s
        self._lease: Lease | None = None
        self._begins_s = 0.0
        self._is_current = False

    def is_primary(self, now_s: float) -> bool:
        """Whether it holds the lease, and trusts it."""
        return self._lease is not None and self._lease.is_trusted(self._name, now_s)

    @property
    def holder(self) -> str | None:
        """Who held the lease when it was looked at last."""
        return self._lease.holder if self._lease else None

    async def extend(self, now_s: float) -> None:
        """Take the lease if it is free, or extend it; read the chains anew after taking it."""
        before = self._lease
        try:
            self._lease = await extend_lease(self._store, self._name, now_s)
        except Conflict:
            return  # Others were faster; there is a next turn.
        is_mine = self._lease.holder == self._name
        if not is_mine or before is None or before.since_s != self._lease.since_s or before.holder != self._name:
            self._is_current = False
        if is_mine and not self._is_current:
            await self._begin(now_s)

    async def _begin(self, now_s: float) -> None:
        stored = await self._chains.read()
        if stored is not None:
            self.manager.take_over(stored.version, stored.chains, now_s)
            self._begins_s = now_s + self._bootstrap_s
        self._is_current = True

    async def look(self, now_s: float) -> TableChange | None:
        """Update chains, if it is the primary; return what changes once that is stored, None if nothing does."""
        if not self.is_primary(now_s) or not self._is_current or now_s < self._begins_s:
            return None
        changed = self.manager.changes(now_s)
        if not changed:
            return None
        try:
            await self._chains.write(self._name, now_s, self.manager.version + 1, changed)
        except (NotPrimary, StaleManager):
            self._is_current = False
            return None
        return self.manager.apply(changed, now_s)

    async def store_first(self, now_s: float) -> None:
        """Store the chains that a cluster begins with, if none are stored. Raises NotPrimary, TrafficError."""
        if await self._chains.read() is None:
            if not self.is_primary(now_s):
                raise TrafficError(f"{self._name} is not the primary, and stores no first chains; extend its lease")
            await self._chains.write(self._name, now_s, self.manager.version, self.manager.chains)
