"""Transactions: reads at one version that see their own writes, and a commit that may conflict.

::

    async def count(txn: Transaction) -> int:
        value = int(await txn.get(b"count") or b"0") + 1
        txn.set(b"count", b"%d" % value)
        return value

    await transact(store, count)
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import TypeVar

from traffic.storage.kv.store import MOST_RANGE_PAIRS, Commit, Conflict, Pair, Range, Store, TooOld, only

T = TypeVar("T")
MOST_TRIES = 10
LONGEST_PAUSE_S = 1.0
_FIRST_PAUSE_S = 0.01


class Transaction:
    """One try of a transaction. All reads are at the version of the first one.

    What is read by :meth:`get` and :meth:`range` must not change until the commit; what is read with ``snapshot`` may,
    unless :meth:`add_read` says otherwise. Nothing is written before :meth:`commit`.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._version: int | None = None
        self._reads: list[Range] = []
        self._clears: list[Range] = []
        self._sets: dict[bytes, bytes] = {}
        self._stamped: list[Pair] = []
        self._is_over = False

    async def read_version(self) -> int:
        """Return the version that is read at."""
        if self._version is None:
            self._version = await self._store.read_version()
        return self._version

    async def get(self, key: bytes, snapshot: bool = False) -> bytes | None:
        """Return the value of a key, or None. Raises TooOld."""
        if key in self._sets:
            return self._sets[key]
        if any(begin <= key < end for begin, end in self._clears):
            return None
        if not snapshot:
            self.add_read(only(key))
        return await self._store.get(key, await self.read_version())

    async def range(
        self, range_: Range, limit: int = MOST_RANGE_PAIRS, reverse: bool = False, snapshot: bool = False
    ) -> list[Pair]:
        """Return the first pairs of a range, ``limit`` at most; with ``reverse`` the last ones, the last first. What
        must not change is the range up to the last one that is returned. Raises TooOld, and ValueError."""
        if limit < 1:
            raise ValueError(f"a limit of {limit} pairs; ask for one at least")
        found: list[Pair] = []
        left, seen, is_all = range_, range_, False
        while not is_all and len(found) < limit:
            page = await self._store.range(left, await self.read_version(), min(limit, MOST_RANGE_PAIRS), reverse)
            is_all = len(page) < min(limit, MOST_RANGE_PAIRS)
            covered = left if is_all else _up_to(left, page[-1].key, reverse)
            found += self._own_view(covered, page, reverse)
            left = left if is_all else _behind(left, page[-1].key, reverse)
        if len(found) >= limit:
            found = found[:limit]
            seen = _up_to(range_, found[-1].key, reverse)
        if not snapshot:
            self.add_read(seen)
        return found

    def _own_view(self, range_: Range, there: list[Pair], reverse: bool) -> list[Pair]:
        """Return what a range has, by what the store has there and by what is cleared and set here."""
        seen = {key: value for key, value in there if not any(begin <= key < end for begin, end in self._clears)}
        seen |= {key: value for key, value in self._sets.items() if range_.begin <= key < range_.end}
        return [Pair(key, seen[key]) for key in sorted(seen, reverse=reverse)]

    def add_read(self, range_: Range) -> None:
        """Let the commit fail if something in a range changes before it."""
        self._reads.append(range_)

    def set(self, key: bytes, value: bytes) -> None:
        """Write a value at the commit."""
        Commit(0, sets=(Pair(key, value),))  # Which verifies it.
        self._sets[key] = value

    def set_stamped(self, prefix: bytes, value: bytes) -> None:
        """Write a value at the commit, under a prefix and the commit's version. It is not read before."""
        Commit(0, stamped=(Pair(prefix, value),))
        self._stamped.append(Pair(prefix, value))

    def clear(self, range_: Range) -> None:
        """Remove what is in a range at the commit; :func:`traffic.storage.kv.store.only` makes a range of a key."""
        for key in [key for key in self._sets if range_.begin <= key < range_.end]:
            del self._sets[key]
        self._clears.append(range_)

    async def commit(self) -> int:
        """Write; return the version. Raises Conflict, TooOld, and ValueError if it was committed before."""
        if self._is_over:
            raise ValueError("a transaction is committed once; begin another one")
        self._is_over = True
        sets = tuple(Pair(key, value) for key, value in self._sets.items())
        version = await self.read_version()
        # What only reads has seen one version of the store, which is as if it had been done then.
        reads = tuple(dict.fromkeys(self._reads)) if sets or self._clears or self._stamped else ()
        return await self._store.commit(Commit(version, reads, tuple(self._clears), sets, tuple(self._stamped)))


def _up_to(range_: Range, key: bytes, reverse: bool) -> Range:
    """Return the part of a range up to a key that was seen, from the side that is read from."""
    return Range(key, range_.end) if reverse else Range(range_.begin, key + b"\0")


def _behind(range_: Range, key: bytes, reverse: bool) -> Range:
    """Return the rest of it."""
    return Range(range_.begin, key) if reverse else Range(key + b"\0", range_.end)


async def transact(
    store: Store,
    body: Callable[[Transaction], Awaitable[T]],
    tries: int = MOST_TRIES,
    rng: random.Random | None = None,
) -> T:
    """Return what a body returns once its transaction is committed; it is run anew after each conflict (3FS: ten times,
    with up to a second between). Raises Conflict or TooOld after the last try, and Unreachable at once: whether that
    commit was made is not known, and a body need not be one that can be done twice."""
    chance = rng or random.Random()
    pause_s = _FIRST_PAUSE_S
    for left in range(tries - 1, -1, -1):
        transaction = Transaction(store)
        try:
            result = await body(transaction)
            await transaction.commit()
            return result
        except (Conflict, TooOld):
            if not left:
                raise
        await asyncio.sleep(pause_s * chance.uniform(0.5, 1))
        pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
    raise ValueError(f"{tries} tries of a transaction; give it one at least")
