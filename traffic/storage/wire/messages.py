"""Messages of the storage service: kinds, statuses and fixed-size records, as long as 3FS's.

A frame is a header of 80 bytes (3FS: uuid, flags, version and eight timestamps), records, then payload. A call bears
the time until which its caller waits (``time.monotonic()``, which all programs of a world share), so that nobody works
for a caller that has given up. A record of a
read or a write is 92 bytes, since 3FS's carry an RDMA buffer's keys: a read of one chunk asks with 172 bytes, of 128
with 12 KB; leave to send is asked for with 88.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from enum import IntEnum
from typing import NamedTuple

from fabric.errors import TrafficError
from traffic.storage.chains import ChunkId
from traffic.storage.updates import Action

MAGIC = b"FF3S"
HEADER = struct.Struct("<4sBBHQdII48x")
_IO = struct.Struct("<IQIIIIQIIBB46x")
IO_BYTES = _IO.size
_RESULT = struct.Struct("<HIQIIIIBx")
_FOUND = struct.Struct("<III")
_QUERY = struct.Struct("<IIQIII")
_NUMBER = struct.Struct("<Q")
REQUEST_BITS = 32
"""A write's number: its client's above these bits, then the client's count of its writes."""
NO_CHECKSUM = 0
"""In place of the checksum of a part of a chunk: its reader knows every byte that it must hold."""
RELAXED, MAY_BE_SHORT = 1, 2
"""Flags of a read: it may get a version that is pending (3FS: ``ALLOW_READ_UNCOMMITTED``); it may get fewer bytes than
it asks for, or none, where the chunk ends."""
MAX_META_BYTES = 1 << 20
MAX_PAYLOAD_BYTES = 64 << 20


def client_of(request: int) -> int:
    """Return the number of the client that a write is of."""
    return request >> REQUEST_BITS


class CallKind(IntEnum):
    """What a call asks."""

    HELLO = 1
    KV = 32
    """A read of the store of keys and values, or a commit: see traffic.storage.kv.calls."""
    READ = 2
    APPLY = 3
    """A service asks a client for leave to send what the client read (request-to-send)."""
    WRITE = 4
    UPDATE = 5
    """A write on its way down the chain."""
    PULL = 6
    """The receiver of a WRITE, UPDATE or RESYNC_WRITE asks for its data."""
    RESYNC_START = 7
    """A predecessor asks a target that has come back what it has."""
    RESYNC_WRITE = 8
    """A whole chunk that such a target lacks."""
    RESYNC_REMOVE = 9
    """A chunk that it has and its predecessor has not."""
    RESYNC_DONE = 10
    HEARTBEAT = 11
    """A service tells the cluster manager the states of its targets."""
    ROUTING = 12
    """Whoever it is asks the cluster manager for chains that are newer than those it knows."""
    QUERY = 20
    """A client asks which chunks of a file there are on a chain, and how long they are."""
    METADATA = 40
    """A client asks a metadata server (:mod:`traffic.storage.metadata.calls`)."""


class ReplyStatus(IntEnum):
    """How a call went."""

    OK = 0
    STALE_CHAIN = 1
    """The caller goes by an older version of the chain."""
    UNKNOWN_CHAIN = 2
    """The caller goes by a newer version of the chain."""
    PENDING = 3
    NOT_HEAD = 4
    NOT_PRIMARY = 32
    """Another cluster manager is the primary; the reply says which, if that is known."""
    BUSY = 5
    WITHDRAWN = 6
    NOT_FOUND = 7
    WRONG_CHECKSUM = 8
    WRONG_REQUEST = 9
    DISK_ERROR = 10
    """A failure has made the disk fail."""
    NOT_SERVING = 11
    """The target is not up to date, or does not know whether it is."""

    @property
    def may_pass(self) -> bool:
        """Whether the same call can succeed later, perhaps by a newer chain."""
        return self in _PASSING

    @property
    def is_of_now(self) -> bool:
        """Whether the server has answered that the same call can succeed soon: 3FS's client waits less then."""
        return self in (ReplyStatus.STALE_CHAIN, ReplyStatus.UNKNOWN_CHAIN, ReplyStatus.PENDING)


_KINDS = {kind.value: kind for kind in CallKind}
_STATUSES = {status.value: status for status in ReplyStatus}
"""By value: to look them up in an enumeration takes as long as to unpack the header that has both."""
_PASSING = {
    ReplyStatus.STALE_CHAIN,
    ReplyStatus.UNKNOWN_CHAIN,
    ReplyStatus.PENDING,
    ReplyStatus.NOT_HEAD,
    ReplyStatus.BUSY,
    ReplyStatus.WITHDRAWN,
    ReplyStatus.DISK_ERROR,
    ReplyStatus.NOT_SERVING,
}


class Frame(NamedTuple):
    """One message. ``number`` is the caller's number of the call; a reply bears that of its call. ``deadline_s``: until
    when the caller waits; 0 in replies."""

    kind: CallKind
    is_reply: bool
    status: ReplyStatus
    number: int
    deadline_s: float
    meta: bytes
    payload: bytes | bytearray = b""


def header_of(frame: Frame, payload_bytes: int) -> bytes:
    """Return a frame's header and records, to be followed by ``payload_bytes`` of payload."""
    return (
        HEADER.pack(
            MAGIC,
            frame.kind,
            frame.is_reply,
            frame.status,
            frame.number,
            frame.deadline_s,
            len(frame.meta),
            payload_bytes,
        )
        + frame.meta
    )


def parse_header(data: bytearray | memoryview, start: int = 0) -> tuple[Frame, int, int]:
    """Return a frame without its records and payload, and their sizes, by the header that begins at ``start``. Raises
    TrafficError if it is none."""
    magic, kind, is_reply, status, number, deadline_s, meta_bytes, payload_bytes = HEADER.unpack_from(data, start)
    if magic != MAGIC or meta_bytes > MAX_META_BYTES or payload_bytes > MAX_PAYLOAD_BYTES:
        raise TrafficError(
            f"storage: no frame's header: magic {magic!r}, {meta_bytes} B of records (limit {MAX_META_BYTES}),"
            f" {payload_bytes} B of payload (limit {MAX_PAYLOAD_BYTES}); the stream is out of step"
        )
    if kind not in _KINDS or status not in _STATUSES:
        raise TrafficError(f"storage: no frame's header: kind {kind}, status {status}; the stream is out of step")
    frame = Frame(_KINDS[kind], bool(is_reply), _STATUSES[status], number, deadline_s, b"")
    return frame, meta_bytes, payload_bytes


class Io(NamedTuple):
    """One stretch of a chunk to read, or to write. ``version`` is 0 where the head is to choose it;
    ``request`` is the writer's number of the write, the same at every try; ``chain_version`` is the version of the
    chain that the caller goes by; ``action``: what an update does, of which a truncation has ``length`` alone;
    ``flags``: ``RELAXED``, ``MAY_BE_SHORT``."""

    chain: int
    chunk: ChunkId
    offset: int
    length: int
    checksum: int = 0
    request: int = 0
    version: int = 0
    chain_version: int = 0
    action: int = Action.WRITE
    flags: int = 0

    @property
    def has_payload(self) -> bool:
        """Whether an update brings data."""
        return self.action == Action.WRITE and self.length > 0

    def pack(self) -> bytes:
        """Return the record."""
        chunk = self.chunk
        return _IO.pack(
            self.chain,
            chunk.file,
            chunk.index,
            self.offset,
            self.length,
            self.checksum,
            self.request,
            self.version,
            self.chain_version,
            self.action,
            self.flags,
        )


def parse_ios(meta: bytes) -> list[Io]:
    """Return the records of a READ, WRITE or UPDATE. Raises TrafficError if they are cut short."""
    if len(meta) % _IO.size:
        raise TrafficError(f"storage: {len(meta)} B of records; they are of {_IO.size} B each: the stream is damaged")
    return [Io(chain, ChunkId(file, index), *rest) for chain, file, index, *rest in _IO.iter_unpack(meta)]


class IoResult(NamedTuple):
    """What came of one read or write: the version, the write that made it, a checksum, how many bytes are sent, the
    size of the whole chunk, and the version of the chain under which it was committed.

    The checksum is that of the whole chunk, if all of it was asked for or written; that of what is sent of it, if not;
    none of what is sent if ``is_made``: then the whole chunk is what that write makes.
    """

    status: ReplyStatus
    version: int = 0
    request: int = 0
    checksum: int = 0
    length: int = 0
    chunk_bytes: int = 0
    chain_version: int = 0
    is_made: int = 0

    def pack(self) -> bytes:
        """Return the record."""
        return _RESULT.pack(*self)


def pack_all(records: Iterable[Io] | Iterable[IoResult]) -> bytes:
    """Return records one after the other."""
    return b"".join(record.pack() for record in records)


def parse_results(meta: bytes) -> list[IoResult]:
    """Return the records of a reply. Raises TrafficError if one has no status of ours."""
    try:
        return [IoResult(_STATUSES[status], *rest) for status, *rest in _RESULT.iter_unpack(meta)]
    except KeyError as unknown:
        raise TrafficError(f"storage: a result's status is {unknown}; the stream is damaged") from unknown


def pack_number(number: int) -> bytes:
    """Return the record that names another call: of APPLY the read, of PULL the write."""
    return _NUMBER.pack(number)


def parse_number(meta: bytes) -> int:
    """Return the call that an APPLY or a PULL names."""
    number: int = _NUMBER.unpack(meta)[0]
    return number


class Query(NamedTuple):
    """Which chunks of a file a chain has, of those from ``begin`` to before ``end``: the last ``most``, last first."""

    chain: int
    chain_version: int
    file: int
    begin: int
    end: int
    most: int

    def pack(self) -> bytes:
        """Return the record."""
        return _QUERY.pack(*self)


class FoundChunk(NamedTuple):
    """A chunk that is there: its place in its file, its length, and its version."""

    place: int
    size_bytes: int
    version: int


def parse_query(meta: bytes) -> Query:
    """Return the record of a QUERY. Raises TrafficError if it is damaged."""
    if len(meta) != _QUERY.size:
        raise TrafficError(f"storage: a query of {len(meta)} B instead of {_QUERY.size}: the stream is damaged")
    return Query(*_QUERY.unpack(meta))


def pack_found(chunks: Iterable[FoundChunk]) -> bytes:
    """Return what a QUERY has found."""
    return b"".join(_FOUND.pack(*chunk) for chunk in chunks)


def parse_found(meta: bytes) -> list[FoundChunk]:
    """Return it. Raises TrafficError if it is cut short."""
    if len(meta) % _FOUND.size:
        raise TrafficError(f"storage: {len(meta)} B of chunks, of {_FOUND.size} B each: the stream is damaged")
    return [FoundChunk(*found) for found in _FOUND.iter_unpack(meta)]
