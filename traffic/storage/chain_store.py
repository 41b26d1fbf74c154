"""Chains in the store of keys and values, written by the primary of several cluster managers. 3FS: ``MgmtdStore``.

Every write is one transaction that reads the lease and the routing's version. So a manager that has lost its lease,
however late it notices, writes nothing, and no change is lost between two primaries.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass

from fabric.errors import TrafficError
from traffic.storage.chain_states import ChainState, PublicState
from traffic.storage.chains import Target
from traffic.storage.control import Nodes
from traffic.storage.kv.lease import require_lease
from traffic.storage.kv.store import MOST_RANGE_PAIRS, Conflict, Store, prefixed
from traffic.storage.kv.transaction import Transaction

_VERSION_KEY = b"SING/routing"
_CHAIN_PREFIX = b"CHIF/"
_NUMBER = struct.Struct(">I")
_VERSION = struct.Struct("<Q")
_TARGET = struct.Struct("<IBB")


class StaleManager(TrafficError):  # noqa: N818 - what happened, as its callers name it
    """Another manager has written chains since this one read them: it must read them anew."""


@dataclass(frozen=True)
class StoredChains:
    """All chains, and the version of the routing that they make."""

    version: int
    chains: tuple[ChainState, ...]


class ChainStore:
    """The chains of a cluster in a store."""

    def __init__(self, store: Store, nodes: Nodes) -> None:
        self._store = store
        self._nodes = nodes

    async def read(self) -> StoredChains | None:
        """Return what is there, None before the first write. Raises TrafficError if it makes no sense."""
        transaction = Transaction(self._store)
        value = await transaction.get(_VERSION_KEY)
        if value is None:
            return None
        chains: list[ChainState] = []
        range_ = prefixed(_CHAIN_PREFIX)
        while pairs := await transaction.range(range_, MOST_RANGE_PAIRS):
            chains += [self._parse(pair.key, pair.value) for pair in pairs]
            range_ = range_._replace(begin=pairs[-1].key + b"\0")
        return StoredChains(_VERSION.unpack(value)[0], tuple(chains))

    async def write(self, holder: str, now_s: float, version: int, changed: Iterable[ChainState]) -> None:
        """Write chains that make a version of the routing, one above the one that is there, if there is one. Raises
        NotPrimary if the lease is another's or nearly over, StaleManager if another one has written meanwhile."""
        transaction = Transaction(self._store)
        await require_lease(transaction, holder, now_s)
        value = await transaction.get(_VERSION_KEY)
        if value is not None and _VERSION.unpack(value)[0] != version - 1:
            raise StaleManager(f"{holder}: version {version} of the routing after {_VERSION.unpack(value)[0]}; read it")
        transaction.set(_VERSION_KEY, _VERSION.pack(version))
        for chain in changed:
            transaction.set(_CHAIN_PREFIX + _NUMBER.pack(chain.number), self._pack(chain))
        try:
            await transaction.commit()
        except Conflict as conflict:
            raise StaleManager(f"{holder}: version {version} of the routing: {conflict}") from conflict

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
