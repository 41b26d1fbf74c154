"""The length of a file that several write: hints of writers, merged in batches by the owner of the inode. Pure.

A writer knows how far it has written, not how far others have. It says so when it synchronises or closes: a *hint*,
with the truncate version that it knows of. The owner of the inode takes all that wait together (3FS:
``src/meta/store/ops/BatchOperation.cc``):

- a hint of the same truncate version that is longer is taken, one that is not longer changes nothing;
- without a hint, with one of another version, or after a truncation, the last chunk is looked for on all chains of the
  file;
- what was looked for is less than the length, or there was a truncation: the truncate version grows by one;
- so within one truncate version a length never shrinks: that would be a bug, and is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from traffic.storage.kv.store import only
from traffic.storage.kv.transaction import Transaction
from traffic.storage.metadata.errors import LengthWentBack
from traffic.storage.metadata.records import Inode, Length, Session, inode_key


class Synced(NamedTuple):
    """What a client says of a file: how long it is at least, whether it was truncated, and which session of its own
    ends; ``hint`` None: it does not know."""

    hint: Length | None = None
    is_truncated: bool = False
    closes: Session | None = None


def needs_query(now: Length, said: Sequence[Synced]) -> bool:
    """Return whether the last chunk must be looked for."""
    return any(
        one.is_truncated or one.hint is None or one.hint.truncate_version != now.truncate_version for one in said
    )


def merged(now: Length, said: Sequence[Synced], queried_bytes: int | None) -> Length:
    """Return the length that comes of what clients say together; ``queried_bytes``: where the last chunk ends, if that
    was asked for. Raises LengthWentBack, and ValueError if it must be asked for."""
    if queried_bytes is None and needs_query(now, said):
        raise ValueError("the length is not known without the last chunk; look for that")
    if queried_bytes is not None:
        is_newer = queried_bytes < now.size_bytes or any(one.is_truncated for one in said)
        found = Length(queried_bytes, now.truncate_version + is_newer)
    else:
        hints = [one.hint.size_bytes for one in said if one.hint is not None]
        found = Length(max(now.size_bytes, *hints), now.truncate_version)
    if found.truncate_version == now.truncate_version and found.size_bytes < now.size_bytes:
        raise LengthWentBack(f"a length of {now} would become {found}: it is a bug")
    return found


def synchronised(
    transaction: Transaction, found: Inode, said: Sequence[Synced], now_s: float, queried_bytes: int | None
) -> Inode:
    """Write the length that comes of it, end sessions, and return the inode, which must not change until the commit."""
    for session in (one.closes for one in said if one.closes is not None):
        transaction.clear(only(session.key))
    length = merged(found.length, said, queried_bytes)
    if length != found.length:
        found = found._replace(length=length, changed_s=now_s)
        transaction.set(inode_key(found.id), found.pack())
    return found
