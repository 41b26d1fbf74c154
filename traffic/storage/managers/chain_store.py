"""Chains in the store of keys and values, written by the primary of several cluster managers. 3FS: ``MgmtdStore``.

Every write is one transaction that reads the lease and the routing's version. So a manager that has lost its lease,
however late it notices, writes nothing, and no change is lost between two primaries. The same transaction adds a line
to a log, under the commit's version: who wrote which chains, by which lease; and so does each that takes the lease. 3FS
has no such log. Here it tells the run how chains have changed when the manager that changed them is dead, and it is
checked (:mod:`traffic.storage.managers.one_writer`).
"""

from __future__ import annotations

import struct
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from fabric.errors import TrafficError
from traffic.storage.chain_states import ChainState, PublicState
from traffic.storage.chains import Target
from traffic.storage.control import Nodes
from traffic.storage.kv.lease import KEY, NOT_TRUSTED_BELOW_S, Lease, require_lease
from traffic.storage.kv.store import Commit, Conflict, Pair, Store, prefixed
from traffic.storage.kv.transaction import Transaction

_VERSION_KEY = b"SING/routing"
_CHAIN_PREFIX = b"CHIF/"
LOG = prefixed(b"LOGC/")
"""Where the log is."""
_NUMBER = struct.Struct(">I")
_VERSION = struct.Struct("<Q")
_TARGET = struct.Struct("<IBB")
_LINE = struct.Struct("<QddHI")
_ENTRY = struct.Struct("<II")


_MOST_CHAINS = 1_000_000


class StaleManager(TrafficError):  # noqa: N818 - what happened, as its callers name it
    """Another manager has written chains since this one read them: it must read them anew."""


@dataclass(frozen=True)
class StoredChains:
    """All chains, and the version of the routing that they make."""

    version: int
    chains: tuple[ChainState, ...]


@dataclass(frozen=True)
class Logged:
    """A write of chains: the version of the routing that they make, when it was made (``time.monotonic()``), by whose
    lease of when (by its clock), and the chains. No chains, and version 0: that lease was taken."""

    version: int
    at_s: float
    holder: str
    since_s: float
    chains: tuple[ChainState, ...]


class ChainStore:
    """The chains of a cluster in a store. ``margin_s``: how much of its lease who writes must have left."""

    def __init__(self, store: Store, nodes: Nodes, margin_s: float = NOT_TRUSTED_BELOW_S) -> None:
        self._store = store
        self._nodes = nodes
        self._margin_s = margin_s

    async def read(self) -> StoredChains | None:
        """Return what is there, None before the first write. Raises TrafficError if it makes no sense."""
        transaction = Transaction(self._store)
        value = await transaction.get(_VERSION_KEY)
        if value is None:
            return None
        pairs = await transaction.range(prefixed(_CHAIN_PREFIX), _MOST_CHAINS)
        chains = tuple(self._parse(pair.key, pair.value) for pair in pairs)
        return StoredChains(_VERSION.unpack(value)[0], chains)

    async def write(self, holder: str, now_s: float, version: int, changed: Iterable[ChainState]) -> None:
        """Write chains that make a version of the routing, one above the one that is there, if there is one. Raises
        NotPrimary if the lease is another's or nearly over, StaleManager if another one has written meanwhile."""
        transaction = Transaction(self._store)
        lease = await require_lease(transaction, holder, now_s, self._margin_s)
        value = await transaction.get(_VERSION_KEY)
        if value is not None and _VERSION.unpack(value)[0] != version - 1:
            raise StaleManager(f"{holder}: version {version} of the routing after {_VERSION.unpack(value)[0]}; read it")
        chains = tuple(changed)
        for pair in self._pairs(version, chains):
            transaction.set(pair.key, pair.value)
        transaction.set_stamped(LOG.begin, self._line(lease, version, chains))
        try:
            await transaction.commit()
        except Conflict as conflict:
            raise StaleManager(f"{holder}: version {version} of the routing: {conflict}") from conflict

    def note_taken(self, transaction: Transaction, lease: Lease) -> None:
        """Add to the log that a lease is taken."""
        transaction.set_stamped(LOG.begin, self._line(lease, 0, ()))

    def first(self, lease: Lease, version: int, chains: Sequence[ChainState]) -> Commit:
        """Return what is in the store of a cluster that begins, with its first primary."""
        line = Pair(LOG.begin, self._line(lease, version, chains))
        return Commit(0, sets=(Pair(KEY, lease.pack()), *self._pairs(version, chains)), stamped=(line,))

    def _pairs(self, version: int, chains: Sequence[ChainState]) -> Iterator[Pair]:
        yield Pair(_VERSION_KEY, _VERSION.pack(version))
        for chain in chains:
            yield Pair(_CHAIN_PREFIX + _NUMBER.pack(chain.number), self._pack(chain))

    def _line(self, lease: Lease, version: int, chains: Sequence[ChainState]) -> bytes:
        holder = lease.holder.encode()
        packed = [(chain.number, self._pack(chain)) for chain in chains]
        head = _LINE.pack(version, time.monotonic(), lease.since_s, len(holder), len(chains))
        return head + holder + b"".join(_ENTRY.pack(number, len(value)) + value for number, value in packed)

    def logged(self, pairs: Iterable[Pair]) -> list[Logged]:
        """Return the lines of the log, by what the store has in :data:`LOG`, oldest first. Raises TrafficError."""
        return [self._parse_line(value) for _, value in sorted(pairs)]

    def _parse_line(self, value: bytes) -> Logged:
        try:
            version, at_s, since_s, name_bytes, count = _LINE.unpack_from(value)
            place = _LINE.size + name_bytes
            holder, chains = value[_LINE.size : place].decode(), []
            for _ in range(count):
                number, size = _ENTRY.unpack_from(value, place)
                place += _ENTRY.size + size
                chains.append(self._parse(_CHAIN_PREFIX + _NUMBER.pack(number), value[place - size : place]))
        except (struct.error, UnicodeDecodeError) as error:
            raise TrafficError(f"storage: a line of the log of chains makes no sense: {error}") from error
        return Logged(version, at_s, holder, since_s, tuple(chains))

    def _pack(self, chain: ChainState) -> bytes:
        return _VERSION.pack(chain.version) + b"".join(
            _TARGET.pack(self._nodes.number(target.node), target.disk, state) for target, state in chain.targets
        )

    def _parse(self, key: bytes, value: bytes) -> ChainState:
        try:
            (number,) = _NUMBER.unpack(key[len(_CHAIN_PREFIX) :])
            (version,) = _VERSION.unpack_from(value)
            targets = [
                (Target(self._nodes.nodes[node], disk), PublicState(state))
                for node, disk, state in _TARGET.iter_unpack(value[_VERSION.size :])
            ]
        except (struct.error, IndexError, ValueError) as error:
            raise TrafficError(f"storage: {key!r} has no chain: {error}; remove the store's file") from error
        return ChainState(number, tuple(targets), version)
