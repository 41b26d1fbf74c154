"""What clients ask metadata servers, and what these answer: small messages in the lane of control traffic.

A request is a list in JSON: what is asked, then its fields. An answer is a value in JSON; an error's is its name and
text. The name of a request is that of its class. Those with ``is_again`` are carried out once; it says that they may
have been tried before.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple, get_type_hints

from fabric.errors import TrafficError
from traffic.storage.metadata.errors import FileError
from traffic.storage.metadata.lengths import Synced
from traffic.storage.metadata.records import ROOT, Entry, Inode, Kind, Layout, Length, Session


class Join(NamedTuple):
    """A client that has no number asks for one: [number, server, ...]."""


class Hear(NamedTuple):
    """A client says that it lives; it is told which servers do."""

    client: int


class Stat(NamedTuple):
    """The inode at a path. In all requests ``base`` is the inode of the directory from which on a path goes: the root,
    or one that the client knows."""

    path: str
    base: int = ROOT


class StatInode(NamedTuple):
    """An inode by its number."""

    inode: int


class ListNames(NamedTuple):
    """Entries of a directory behind a name."""

    path: str
    after: str
    limit: int
    base: int = ROOT


class MakeDirectory(NamedTuple):
    """A directory; with ``makes_parents``, those on the way, too, and none of it need be new."""

    client: int
    request: int
    path: str
    makes_parents: bool
    base: int = ROOT
    is_again: bool = False


class Open(NamedTuple):
    """A file; ``session`` 0: to read. Answer: [inode, whether it must be truncated]."""

    client: int
    session: int
    path: str
    creates: bool
    is_exclusive: bool
    truncates: bool
    base: int = ROOT
    is_again: bool = False


class Sync(NamedTuple):
    """What a client says of a file's length, see :class:`.lengths.Synced`; ``session`` 0: it goes on. A hint of -1:
    none."""

    client: int
    inode: int
    hint_bytes: int
    hint_version: int
    is_truncated: bool
    session: int

    @property
    def said(self) -> Synced:
        """It as a value."""
        hint = None if self.hint_bytes < 0 else Length(self.hint_bytes, self.hint_version)
        closes = Session(self.inode, self.session, self.client, 0.0) if self.session else None
        return Synced(hint, self.is_truncated, closes)


class Remove(NamedTuple):
    """A file or a directory."""

    client: int
    request: int
    path: str
    is_recursive: bool
    base: int = ROOT
    is_again: bool = False


class Rename(NamedTuple):
    """Another path for what is at one."""

    client: int
    request: int
    old: str
    new: str
    old_base: int = ROOT
    new_base: int = ROOT
    is_again: bool = False


CarriedOutOnce = MakeDirectory | Open | Remove | Rename
Request = Join | Hear | Stat | StatInode | ListNames | MakeDirectory | Open | Sync | Remove | Rename
_KINDS: dict[str, type[Any]] = {
    one.__name__: one for one in (Join, Hear, Stat, StatInode, ListNames, MakeDirectory, Open, Sync, Remove, Rename)
}


def pack_request(request: Request) -> bytes:
    """Return a request."""
    return json.dumps([type(request).__name__, *request], separators=(",", ":")).encode()


def parse_request(meta: bytes) -> Request:
    """Return it. Raises TrafficError."""
    try:
        name, *fields = json.loads(meta)
        kind = _KINDS[name]
        hints = get_type_hints(kind)
        if [type(field) for field in fields] != list(hints.values()):
            raise ValueError(f"{name} has {', '.join(hints)}")
        found: Request = kind(*fields)
        return found
    except (ValueError, KeyError, TypeError) as error:
        raise TrafficError(f"metadata: no request: {meta[:80]!r}: {error}; the stream is damaged") from error


def pack_value(value: object) -> bytes:
    """Return an answer."""
    return json.dumps(value, separators=(",", ":")).encode()


def parse_value(meta: bytes) -> Any:
    """Return it. Raises TrafficError."""
    try:
        return json.loads(meta)
    except ValueError as error:
        raise TrafficError(f"metadata: no answer: {meta[:80]!r}: {error}; the stream is damaged") from error


def pack_error(error: FileError) -> bytes:
    """Return the answer that something cannot be."""
    return pack_value([error.name, error.what])


def parse_error(meta: bytes) -> FileError:
    """Return it. Raises TrafficError."""
    try:
        name, text = parse_value(meta)
        return FileError(name, text)
    except (ValueError, TypeError) as error:
        raise TrafficError(f"metadata: no error: {meta[:80]!r}: {error}; the stream is damaged") from error


def of_inode(inode: Inode) -> list[float]:
    """Return an inode for an answer."""
    fields = [inode.id, inode.kind.value, inode.links, inode.created_s, inode.changed_s]
    return [*fields, *inode.length, *inode.layout, inode.parent]


def to_inode(value: Sequence[Any]) -> Inode:
    """Return an inode from an answer. Raises TrafficError."""
    try:
        number, kind, links, created_s, changed_s, *rest = value
        length, layout, (parent,) = Length(*rest[:2]), Layout(*rest[2:7]), rest[7:]
        return Inode(number, Kind(kind), links, created_s, changed_s, length, layout, parent)
    except (ValueError, TypeError) as error:
        raise TrafficError(f"metadata: {value!r} is not an inode: {error}; the stream is damaged") from error


def of_entries(entries: Sequence[Entry]) -> list[list[Any]]:
    """Return entries for an answer."""
    return [[one.parent, one.name, one.inode, one.kind.value] for one in entries]


def to_entries(value: Sequence[Sequence[Any]]) -> list[Entry]:
    """Return entries from an answer. Raises TrafficError."""
    try:
        return [Entry(parent, name, inode, Kind(kind)) for parent, name, inode, kind in value]
    except (ValueError, TypeError) as error:
        raise TrafficError(f"metadata: {value!r} are not entries: {error}; the stream is damaged") from error
