"""Requests that are carried out once, however often they are tried (3FS: ``src/meta/store/Idempotent.h``). Pure.

A removal whose answer was lost would, tried again, find nothing, or what another has put there meanwhile; an open for
writing would leave a second session. So what was done is written in the same transaction, under the client and its
number of the request. One that failed wrote nothing, and fails again, or finds what it needs. 3FS does so for removals.

Only a try that is not the first reads what is written there. The first one says that it must not change, which costs no
round trip: of two tries at the same time at two servers one conflicts, and is not the first any more.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import NamedTuple

from traffic.storage.kv.store import only
from traffic.storage.kv.transaction import Transaction
from traffic.storage.metadata.records import done_key, pack_done, parse_done


class Try(NamedTuple):
    """A try of a request: whose, its number, and whether it may have been tried before."""

    client: int
    request: int
    is_again: bool


async def carried_out_once(
    transaction: Transaction, one: Try, now_s: float, work: Callable[[], Awaitable[int]]
) -> int | None:
    """Do some work unless it was done before: then return None, or the number that came of it if that is not 0. Raises
    FileError as the work does."""
    key = done_key(one.client, one.request)
    if one.is_again:
        value = await transaction.get(key)
        if value is not None:
            return parse_done(value)[1] or None
    else:
        transaction.add_read(only(key))
    transaction.set(key, pack_done(now_s, await work()))
    return None
