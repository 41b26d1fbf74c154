"""Who is the primary of several cluster managers: a lease, kept as a key (3FS: ``MgmtdStore::extendLease``).

A manager reads the key and, in the same transaction, takes the lease if it has ended or extends it if it is its own. A
later transaction of the primary reads the key again, so that one that has lost the lease cannot write. Times are of the
manager's own clock; a lease is no longer trusted when little of it is left, so clocks may differ by less than that.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import NamedTuple

from fabric.errors import TrafficError
from traffic.storage.kv.store import Store
from traffic.storage.kv.transaction import Transaction, transact

KEY = b"SING/lease"
LENGTH_S = 60.0
NOT_TRUSTED_BELOW_S = 20.0
"""3FS's values; it extends a lease every 10 s."""
_LAYOUT = struct.Struct("<dd")


class NotPrimary(TrafficError):  # noqa: N818 - what happened, as its callers name it
    """A manager that is not the primary is asked for what only the primary does."""


class Lease(NamedTuple):
    """Who is the primary, and from when to when by its clock."""

    holder: str
    since_s: float
    until_s: float

    def is_trusted(self, holder: str, now_s: float, margin_s: float = NOT_TRUSTED_BELOW_S) -> bool:
        """Whether a manager may act as the primary: ``margin_s`` at least is left of it."""
        return self.holder == holder and now_s + margin_s <= self.until_s

    def pack(self) -> bytes:
        """Return it as a value."""
        return _LAYOUT.pack(self.since_s, self.until_s) + self.holder.encode()

    @classmethod
    def parse(cls, value: bytes) -> Lease:
        """Return it from a value. Raises TrafficError if it is none."""
        try:
            since_s, until_s = _LAYOUT.unpack_from(value)
            return cls(value[_LAYOUT.size :].decode(), since_s, until_s)
        except (struct.error, UnicodeDecodeError) as error:
            raise TrafficError(f"{KEY!r} has {value!r}, which is not a lease: {error}; remove the key") from error


async def read_lease(transaction: Transaction) -> Lease | None:
    """Return the lease that there is; the transaction fails if it changes."""
    value = await transaction.get(KEY)
    return Lease.parse(value) if value is not None else None


async def extend_lease(
    store: Store,
    holder: str,
    now_s: float,
    length_s: float = LENGTH_S,
    note: Callable[[Transaction, Lease], None] = lambda transaction, lease: None,
) -> Lease:
    """Take the lease if it has ended, extend it if it is one's own, and return whose it is; ``note`` adds to the
    transaction that takes it. Raises Conflict if others were faster at each try."""

    async def body(transaction: Transaction) -> Lease:
        found = await read_lease(transaction)
        if found is not None and found.holder != holder and found.until_s >= now_s:
            return found
        is_mine = found is not None and found.holder == holder and found.until_s >= now_s
        since_s = found.since_s if found is not None and is_mine else now_s
        taken = Lease(holder, since_s, max(now_s + length_s, found.until_s if found and is_mine else now_s))
        transaction.set(KEY, taken.pack())
        if not is_mine:
            note(transaction, taken)
        return taken

    return await transact(store, body)


async def require_lease(
    transaction: Transaction, holder: str, now_s: float, margin_s: float = NOT_TRUSTED_BELOW_S
) -> Lease:
    """Let a transaction be the primary's: it fails if the lease changes before its commit. Return the lease. Raises
    NotPrimary.

    3FS asks at a write that the lease has not ended, and for the margin only before it begins; here both at both.
    """
    found = await read_lease(transaction)
    if found is None or not found.is_trusted(holder, now_s, margin_s):
        whose = f"{found.holder} until {found.until_s:.3f} s" if found else "nobody"
        raise NotPrimary(f"{holder} at {now_s:.3f} s: the lease is held by {whose}")
    return found
