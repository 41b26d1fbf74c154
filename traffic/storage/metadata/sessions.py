"""Sessions of writers whose clients are gone are ended (3FS: ``src/meta/components/SessionManager.cc``). Pure.

A client is heard in turns, as of 3FS's cluster manager. A session is ended if it is older than a minute and its client
is not known, or was silent for too long. The length of its file stays what it is: 3FS has a key to look for it
(``sync_on_prune_session``), which is off as shipped.
"""

from __future__ import annotations

from collections.abc import Sequence

from traffic.storage.kv.store import only
from traffic.storage.kv.transaction import Transaction
from traffic.storage.metadata.records import (
    SESSION_SHARDS,
    Session,
    client_key,
    pack_time,
    parse_time,
    sessions_in,
    sessions_of,
)

SCANNED_EVERY_S = 300.0
SILENT_FOR_S = 310.0
"""Five minutes without a word, and ten seconds."""
YOUNG_FOR_S = 60.0
_MOST_SCANNED = 1000


def hear(transaction: Transaction, client: int, now_s: float) -> None:
    """Note that a client lives."""
    transaction.set(client_key(client), pack_time(now_s))


async def is_open(transaction: Transaction, inode: int) -> bool:
    """Return whether somebody has a file open for writing; nobody may open it until the commit."""
    return bool(await transaction.range(sessions_of(inode), 1))


async def stale(transaction: Transaction, shard: int, now_s: float, silent_s: float = SILENT_FOR_S) -> list[Session]:
    """Return the sessions of a shard, from 0 to ``SESSION_SHARDS`` - 1, whose clients are gone."""
    if not 0 <= shard < SESSION_SHARDS:
        raise ValueError(f"shard {shard} of sessions; they are 0 to {SESSION_SHARDS - 1}")
    found = []
    heard: dict[int, float | None] = {}
    for _, value in await transaction.range(sessions_in(shard), _MOST_SCANNED, snapshot=True):
        session = Session.parse(value)
        if session.client not in heard:
            word = await transaction.get(client_key(session.client), snapshot=True)
            heard[session.client] = None if word is None else parse_time(word)
        last_s = heard[session.client]
        is_gone = last_s is None or now_s - last_s > silent_s
        if is_gone and now_s - session.opened_s > YOUNG_FOR_S:
            found.append(session)
    return found


async def prune(
    transaction: Transaction, sessions: Sequence[Session], now_s: float, silent_s: float = SILENT_FOR_S
) -> int:
    """End sessions whose clients are gone still; return how many. A client that was heard meanwhile keeps its own."""
    ended = 0
    for session in sessions:
        word = await transaction.get(client_key(session.client))
        if word is None or now_s - parse_time(word) > silent_s:
            transaction.clear(only(session.key))
            ended += 1
    return ended
