"""One of several cluster managers: it is the primary while it holds the lease, and goes by what is stored else.

Who is not a primary changes nothing, and answers nobody. Who becomes it reads the chains, waits until every service has
had time to be heard, and goes on from there. 3FS: ``MgmtdLeaseExtender``, ``doAsPrimary``, and its 2 minutes in which
no chain changes are those of chains that are new to a manager (``new_chain_bootstrap_interval``); what it calls
``bootstrapping_length`` is told to others only.
"""

from __future__ import annotations

import asyncio
import time

from fabric.errors import TrafficError
from traffic.storage.chains import TableChange
from traffic.storage.kv.lease import LENGTH_S, NOT_TRUSTED_BELOW_S, Lease, NotPrimary, extend_lease
from traffic.storage.kv.store import Conflict, Store, TooOld, Unreachable
from traffic.storage.managers.chain_store import ChainStore, StaleManager, StoredChains
from traffic.storage.managers.manager import ClusterManager, Transition
from traffic.storage.managers.one_writer import Trusted


class Primary:
    """A manager's part among several. ``bootstrap_s``: how long a new primary changes nothing. Times are of the
    manager's clock. ``transitions``: how chains changed, as it learned of them (``time.monotonic()``); ``trusted``:
    when it trusted its lease."""

    def __init__(
        self,
        name: str,
        manager: ClusterManager,
        store: Store,
        chains: ChainStore,
        bootstrap_s: float,
        lease_s: tuple[float, float] = (LENGTH_S, NOT_TRUSTED_BELOW_S),
    ) -> None:
        self.manager = manager
        self.transitions: list[Transition] = []
        self.trusted: list[Trusted] = []
        self.name = name
        self._store = store
        self._chains = chains
        self._bootstrap_s = bootstrap_s
        self._lease_s = lease_s
        self._lease: Lease | None = None
        self._begins_s = 0.0
        self._is_current = False
        self._turn = asyncio.Lock()

    def begin_with(self, lease: Lease) -> None:
        """Hold a lease from the start, with the chains that all begin with: the cluster was there before."""
        self._go_by(lease, lease.since_s)
        self._is_current = True

    def is_primary(self, now_s: float) -> bool:
        """Whether it holds the lease, and trusts it; who asks acts by the answer."""
        is_it = self._lease is not None and self._lease.is_trusted(self.name, now_s, self._lease_s[1])
        if is_it and self.trusted and now_s > self.trusted[-1].end_s:
            self.trusted[-1] = self.trusted[-1]._replace(end_s=now_s)  # Which cannot be; so it is checked.
        return is_it

    def may_answer(self, now_s: float) -> bool:
        """Whether it is the primary, and knows the chains."""
        return self.is_primary(now_s) and self._is_current

    def other_primary(self, now_s: float) -> str | None:
        """Who else holds the lease, as it was looked at last; None: nobody that is known."""
        if self._lease is None or self._lease.holder == self.name or self._lease.until_s < now_s:
            return None
        return self._lease.holder

    @property
    def holder(self) -> str | None:
        """Who held the lease when it was looked at last."""
        return self._lease.holder if self._lease else None

    async def extend(self, now_s: float) -> None:
        """Take the lease if it is free, or extend it; read the chains anew after taking it. A store that does not
        answer changes nothing: what is left of the lease runs out by itself."""
        async with self._turn:
            try:
                before, note = self._lease, self._chains.note_taken
                lease = await extend_lease(self._store, self.name, now_s, self._lease_s[0], note)
                is_new = before is None or (before.holder, before.since_s) != (lease.holder, lease.since_s)
                self._go_by(lease, now_s)
                if lease.holder != self.name:
                    self._is_current = False
                elif is_new:
                    self._is_current = False
                    await self._begin(now_s)
                elif not self._is_current:
                    await self._catch_up(now_s)
            except (Conflict, TooOld, Unreachable):
                return  # There is a next turn.

    def _go_by(self, lease: Lease, now_s: float) -> None:
        """Know of a lease, and when it is trusted by it."""
        self._lease = lease
        last = self.trusted[-1] if self.trusted else None
        if lease.is_trusted(self.name, now_s, self._lease_s[1]):
            is_going_on = last is not None and last.end_s >= now_s
            begin_s = last.begin_s if last is not None and is_going_on else now_s
            self.trusted[len(self.trusted) - is_going_on :] = [Trusted(begin_s, lease.until_s - self._lease_s[1])]
        elif last is not None and last.end_s > now_s:
            self.trusted[-1] = last._replace(end_s=now_s)

    async def _begin(self, now_s: float) -> None:
        """Go by what is stored, after taking the lease."""
        stored = await self._chains.read()
        if stored is not None:
            self._note(stored)
            self.manager.take_over(stored.version, stored.chains, now_s)
            self._begins_s = now_s + self._bootstrap_s
        self._is_current = True

    async def _catch_up(self, now_s: float) -> None:
        """Go by what is stored, within a lease: what it wrote itself without having been told."""
        stored = await self._chains.read()
        if stored is not None:
            self._note(stored)
            self.manager.catch_up(stored.version, stored.chains, now_s)
        self._is_current = True

    def _note(self, stored: StoredChains) -> None:
        known = self.manager.chains
        news = [chain for chain in stored.chains if chain != known[chain.number]]
        self.transitions += [Transition(time.monotonic(), chain) for chain in news]

    async def look(self, now_s: float) -> TableChange | None:
        """Update chains, if it is the primary; return what changes once that is stored, None if nothing does."""
        async with self._turn:
            if not self.may_answer(now_s) or now_s < self._begins_s:
                return None
            changed = self.manager.changes(now_s)
            if not changed:
                return None
            try:
                await self._chains.write(self.name, now_s, self.manager.version + 1, changed)
            except (NotPrimary, StaleManager, TooOld, Unreachable):
                self._is_current = False  # It may have been written: who goes on must read.
                return None
            self.transitions += [Transition(time.monotonic(), chain) for chain in changed]
            return self.manager.apply(changed, now_s)

    async def store_first(self, now_s: float) -> None:
        """Store the chains that a cluster begins with, if none are stored. Raises NotPrimary, TrafficError."""
        if await self._chains.read() is None:
            if not self.is_primary(now_s):
                raise TrafficError(f"{self.name} is not the primary, and stores no first chains; extend its lease")
            await self._chains.write(self.name, now_s, self.manager.version, self.manager.chains)
