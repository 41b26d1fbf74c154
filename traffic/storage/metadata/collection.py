"""What was removed is collected: its chunks, then its inode (3FS: ``src/meta/components/GcManager.cc``). Pure.

Something removed has a name in the directory of what is to be collected, by the time of its removal. A directory is
taken apart at once: what is in it gets names there of its own. A file waits for a while, and until nobody has it open
for writing; then its chunks are removed, and only once they are, its name there and its inode.

3FS has such a directory for each of its servers; here is one for all, and each server collects what it is the owner of,
so what a dead one leaves is another's at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from traffic.storage.kv.store import only
from traffic.storage.kv.transaction import Transaction
from traffic.storage.metadata.records import (
    ALL_DONE,
    GC_ROOT,
    Entry,
    Inode,
    Kind,
    entries_of,
    inode_key,
    parse_done,
    removed_at_s,
)
from traffic.storage.metadata.sessions import is_open
from traffic.storage.metadata.tree import inode_of, put_away

DELAY_S = 300.0
FILES_AT_ONCE, CHUNKS_A_REQUEST = 32, 32
RETRIED_AFTER_S = 600.0
KEPT_DONE_S = 1800.0
_MOST_SCANNED = 1000
_MOST_MOVED = 256


async def due(
    transaction: Transaction, now_s: float, is_wanted: Callable[[int], bool], delay_s: float = DELAY_S
) -> list[Entry]:
    """Return what may be collected now: of the inodes that are wanted all directories, and the oldest files,
    ``FILES_AT_ONCE`` at most."""
    found: list[Entry] = []
    after = ""
    while len(found) < FILES_AT_ONCE:
        pairs = await transaction.range(entries_of(GC_ROOT, after), _MOST_SCANNED, snapshot=True)
        for entry in (Entry.parse(key, value) for key, value in pairs):
            is_due = entry.kind is Kind.DIRECTORY or removed_at_s(entry.name) + delay_s <= now_s
            if not is_due:
                return found
            if is_wanted(entry.inode):
                found.append(entry)
            after = entry.name
        if len(pairs) < _MOST_SCANNED:
            break
    return found[:FILES_AT_ONCE]


async def collectable(transaction: Transaction, entry: Entry) -> Inode | None:
    """Return the inode of a file whose chunks may go now; None while somebody has it open for writing, or if it is
    gone."""
    if await is_open(transaction, entry.inode):
        return None
    return await inode_of(transaction, entry.inode)


async def forget_file(transaction: Transaction, entry: Entry) -> bool:
    """Remove the inode of a file whose chunks are gone; return whether that was so: not if it has been opened for
    writing meanwhile."""
    if await is_open(transaction, entry.inode):
        return False
    await inode_of(transaction, entry.inode, snapshot=False)
    transaction.clear(only(entry.key))
    transaction.clear(only(inode_key(entry.inode)))
    return True


async def take_apart(transaction: Transaction, entry: Entry, now_s: float) -> bool:
    """Let what is in a removed directory be collected, and remove that once it is empty; return whether it was."""
    pairs = await transaction.range(entries_of(entry.inode), _MOST_MOVED)
    for inside in (Entry.parse(key, value) for key, value in pairs):
        inode = await inode_of(transaction, inside.inode, snapshot=False)
        transaction.clear(only(inside.key))
        if inode is not None:
            put_away(transaction, inode, now_s)
    if len(pairs) == _MOST_MOVED:
        return False
    await inode_of(transaction, entry.inode, snapshot=False)
    transaction.clear(only(entry.key))
    transaction.clear(only(inode_key(entry.inode)))
    return True


async def forget_done(transaction: Transaction, now_s: float, kept_s: float = KEPT_DONE_S) -> int:
    """Forget requests that were carried out long ago, some at a time; return how many. Nobody tries them again."""
    pairs = await transaction.range(ALL_DONE, _MOST_SCANNED, snapshot=True)
    old = [key for key, value in pairs if parse_done(value)[0] + kept_s < now_s]
    for key in old:
        transaction.clear(only(key))
    return len(old)


def batches(indices: Sequence[int], size: int = CHUNKS_A_REQUEST) -> list[Sequence[int]]:
    """Return chunks as requests to remove them."""
    return [indices[start : start + size] for start in range(0, len(indices), size)]
