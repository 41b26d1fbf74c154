"""Inodes, directory entries and sessions as pairs of keys and values, with 3FS's key prefixes.

============ ===================================== =======================================
prefix       then                                  value
============ ===================================== =======================================
``INOD``     inode (little endian)                 :class:`Inode`
``DENT``     inode of the directory, name          :class:`Entry`
``INOS``     inode, session                        :class:`Session`
``IDEM``     client, number of the request         when it was carried out, and the inode it was about
``META``     ``/servers``, ``/alive/`` and a name  which servers live (:mod:`.owners`)
``SING``     ``/inodes``, ``/clients``             the next number
``CLNT``     client                                when it was heard last
============ ===================================== =======================================

An inode's number is written with its lowest byte first, so keys of inodes that are made one after the other are spread;
that byte is also the shard by which sessions are looked through.
"""

from __future__ import annotations

import random
import struct
from enum import IntEnum
from typing import NamedTuple

from fabric.errors import TrafficError
from traffic.storage.chains import FileLayout
from traffic.storage.kv.store import Range, prefixed

ROOT, GC_ROOT = 0, 1
FIRST_INODE = 0x1000
"""Lower ones are of directories that are always there."""
SESSION_SHARDS = 256
MOST_NAME_BYTES = 255

_ID = struct.Struct("<Q")
_INODE = struct.Struct("<QBIddQQIIIIIQ")
_ENTRY = struct.Struct("<QB")
_SESSION = struct.Struct("<QQId")
_SECONDS = struct.Struct("<d")
_DONE = struct.Struct("<dQ")
_REQUEST = struct.Struct(">IQ")
_TIME = struct.Struct(">Q")


class Kind(IntEnum):
    """What an inode is."""

    FILE = 1
    DIRECTORY = 2


class Length(NamedTuple):
    """A file's length. Within one ``truncate_version`` it never shrinks."""

    size_bytes: int = 0
    truncate_version: int = 0


class Layout(NamedTuple):
    """Where a file's chunks go: over ``stripe`` consecutive ones of ``chains`` chains from ``first`` on, shuffled."""

    chunk_bytes: int
    stripe: int
    chains: int
    first: int
    seed: int

    def placed(self, inode: int, size_bytes: int) -> FileLayout:
        """Return where the chunks of a file of some size are."""
        chains = [(self.first + place) % self.chains for place in range(self.stripe)]
        random.Random(self.seed).shuffle(chains)
        return FileLayout(inode, size_bytes, self.chunk_bytes, tuple(chains))


NO_LAYOUT = Layout(0, 0, 0, 0, 0)


class Inode(NamedTuple):
    """A file or a directory. ``parent``: of a directory, the one that it is in; ``links``: 0 once it is removed.
    Times are of the clock that all programs of a run share, in seconds."""

    id: int
    kind: Kind
    links: int = 1
    created_s: float = 0.0
    changed_s: float = 0.0
    length: Length = Length()
    layout: Layout = NO_LAYOUT
    parent: int = ROOT

    def pack(self) -> bytes:
        """Return it as a value."""
        fields = (self.id, self.kind, self.links, self.created_s, self.changed_s, *self.length, *self.layout)
        return _INODE.pack(*fields, self.parent)

    @classmethod
    def parse(cls, value: bytes) -> Inode:
        """Return it from a value. Raises TrafficError."""
        number, kind, links, created_s, changed_s, *rest = _unpacked(_INODE, value, "inode")
        length, layout, (parent,) = Length(*rest[:2]), Layout(*rest[2:7]), rest[7:]
        return cls(number, Kind(kind), links, created_s, changed_s, length, layout, parent)


class Entry(NamedTuple):
    """A name in a directory."""

    parent: int
    name: str
    inode: int
    kind: Kind

    @property
    def key(self) -> bytes:
        """Its key."""
        return entry_key(self.parent, self.name)

    def pack(self) -> bytes:
        """Return it as a value."""
        return _ENTRY.pack(self.inode, self.kind)

    @classmethod
    def parse(cls, key: bytes, value: bytes) -> Entry:
        """Return it from a pair. Raises TrafficError."""
        inode, kind = _unpacked(_ENTRY, value, "entry")
        (parent,) = _ID.unpack_from(key, len(b"DENT"))
        return cls(parent, key[len(b"DENT") + _ID.size :].decode(), inode, Kind(kind))


class Session(NamedTuple):
    """Who has a file open for writing: a client's number for it, of its own, and since when."""

    inode: int
    number: int
    client: int
    opened_s: float

    @property
    def key(self) -> bytes:
        """Its key."""
        return b"INOS" + _ID.pack(self.inode) + _ID.pack(self.number)

    def pack(self) -> bytes:
        """Return it as a value."""
        return _SESSION.pack(*self)

    @classmethod
    def parse(cls, value: bytes) -> Session:
        """Return it from a value. Raises TrafficError."""
        return cls(*_unpacked(_SESSION, value, "session"))


def _unpacked(layout: struct.Struct, value: bytes, what: str) -> tuple[int, ...]:
    try:
        return layout.unpack(value)
    except struct.error as error:
        raise TrafficError(f"{value!r} is not a {what} of a file system: {error}; the store is damaged") from error


def inode_key(inode: int) -> bytes:
    """Return the key of an inode."""
    return b"INOD" + _ID.pack(inode)


def entry_key(parent: int, name: str) -> bytes:
    """Return the key of a name in a directory."""
    return b"DENT" + _ID.pack(parent) + name.encode()


def entries_of(parent: int, after: str = "") -> Range:
    """Return the keys of all names in a directory, or of those behind one."""
    everything = prefixed(b"DENT" + _ID.pack(parent))
    return Range(entry_key(parent, after) + b"\0", everything.end) if after else everything


def sessions_of(inode: int) -> Range:
    """Return the keys of the sessions of an inode."""
    return prefixed(b"INOS" + _ID.pack(inode))


def sessions_in(shard: int) -> Range:
    """Return the keys of the sessions in one of ``SESSION_SHARDS`` shards."""
    return prefixed(b"INOS" + bytes([shard]))


def client_key(client: int) -> bytes:
    """Return the key that says when a client was heard last."""
    return b"CLNT" + _REQUEST.pack(client, 0)


def pack_time(time_s: float) -> bytes:
    """Return a time as a value."""
    return _SECONDS.pack(time_s)


def parse_time(value: bytes) -> float:
    """Return it. Raises TrafficError."""
    return float(_unpacked(_SECONDS, value, "time")[0])


def done_key(client: int, request: int) -> bytes:
    """Return the key of a request that is carried out once."""
    return b"IDEM" + _REQUEST.pack(client, request)


ALL_DONE = prefixed(b"IDEM")


def pack_done(at_s: float, inode: int) -> bytes:
    """Return what is kept of a request that was carried out; ``inode`` 0: it was about none."""
    return _DONE.pack(at_s, inode)


def parse_done(value: bytes) -> tuple[float, int]:
    """Return when it was carried out, and the inode it was about. Raises TrafficError."""
    at_s, inode = _unpacked(_DONE, value, "request that was done")
    return float(at_s), inode


def removed_name(kind: Kind, removed_s: float, inode: int) -> str:
    """Return the name that something removed has in the directory of what is to be collected: directories first, then
    files, each by the time of their removal."""
    stamp = _TIME.pack(max(0, round(removed_s * 1e6))).hex()
    return f"{'d' if kind is Kind.DIRECTORY else 'f'}-{stamp}-{inode:016x}"


def removed_at_s(name: str) -> float:
    """Return when it was removed. Raises TrafficError if the name is none of these."""
    try:
        _, stamp, _ = name.split("-")
        return int(stamp, 16) / 1e6
    except ValueError as error:
        raise TrafficError(f"{name!r} is not a name of something that was removed; the store is damaged") from error
