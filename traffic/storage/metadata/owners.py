"""Which metadata servers live, and which is the owner of an inode (3FS: ``src/meta/components/Distributor.cc``).

Each server says in turns that it lives, by a count in a key of its own. Each looks at the others': whose count has not
changed for a while, by the looker's own clock, is taken out of the list of those that live, which is one key. What only
an owner may do reads that key in its transaction, so one that was taken out meanwhile cannot.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection

from traffic.storage.kv.store import prefixed
from traffic.storage.kv.transaction import Transaction
from traffic.storage.metadata.errors import NotOwner

SERVERS = b"META/servers"
_ALIVE = b"META/alive/"
DEAD_AFTER_S = 30.0
SAID_EVERY_S = 5.0
"""3FS's 30 s; how often a server says so is not in its notes."""


def owner_of(inode: int, servers: Collection[str]) -> str:
    """Return the owner of an inode: the server whose hash with it is highest. So if one goes, only what it owned has
    another owner. Empty if there is none."""

    def weight(server: str) -> bytes:
        return hashlib.blake2b(b"%d/%s" % (inode, server.encode()), digest_size=8).digest()

    return max(sorted(servers), key=weight, default="")


async def living(transaction: Transaction, snapshot: bool = False) -> tuple[str, ...]:
    """Return the servers that live, by name; the transaction fails if that changes."""
    value = await transaction.get(SERVERS, snapshot)
    return tuple(value.decode().split("\n")) if value else ()


async def require_owner(transaction: Transaction, server: str, inode: int) -> None:
    """Let a transaction be the owner's. Raises NotOwner."""
    owner = owner_of(inode, await living(transaction))
    if owner != server:
        raise NotOwner(owner)


class Watch:
    """What one server has seen of the others."""

    def __init__(self, name: str, dead_after_s: float = DEAD_AFTER_S) -> None:
        if "\n" in name or not name:
            raise ValueError(f"{name!r} is not a name of a server: it has one line of text")
        self.name = name
        self._dead_after_s = dead_after_s
        self._count = 0
        self._seen: dict[str, tuple[bytes, float]] = {}

    def say(self, transaction: Transaction) -> None:
        """Say that this server lives."""
        self._count += 1
        transaction.set(_ALIVE + self.name.encode(), b"%d" % self._count)

    async def look(self, transaction: Transaction, now_s: float) -> tuple[str, ...]:
        """Write who lives, if that is not what was written, and return it: this server, and of those that were written
        whoever has said so of late. Another one writes itself."""
        written = await living(transaction)
        for key, count in await transaction.range(prefixed(_ALIVE), snapshot=True):
            name = key[len(_ALIVE) :].decode()
            if self._seen.get(name, (b"", 0.0))[0] != count:
                self._seen[name] = (count, now_s)
        late = {name for name in written if now_s - self._seen.get(name, (b"", now_s))[1] >= self._dead_after_s}
        names = tuple(sorted({*written, self.name} - (late - {self.name})))
        if names != written:
            transaction.set(SERVERS, "\n".join(names).encode())
        return names
