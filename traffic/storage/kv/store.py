"""What a store does, so little that others can stand in its place: etcd has revisions, ranges and compared commits."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from fabric.errors import TrafficError

MOST_KEY_BYTES, MOST_VALUE_BYTES, MOST_COMMIT_BYTES = 10_000, 100_000, 10_000_000
"""FoundationDB's limits."""
MOST_RANGE_PAIRS = 10_000


class Conflict(TrafficError):  # noqa: N818 - what happened, as its callers name it
    """What a transaction read has changed since; nothing of it was written. It can be tried again."""


class TooOld(TrafficError):  # noqa: N818
    """The version at which is to be read is no longer kept. A new transaction reads at a newer one."""


class Unreachable(TrafficError):  # noqa: N818
    """The store does not answer. A commit may have been made, or may be yet: who must know reads."""


class Range(NamedTuple):
    """The keys from ``begin`` to before ``end``."""

    begin: bytes
    end: bytes


class Pair(NamedTuple):
    """A key and its value."""

    key: bytes
    value: bytes


def only(key: bytes) -> Range:
    """Return the range that has one key."""
    return Range(key, key + b"\0")


def prefixed(prefix: bytes) -> Range:
    """Return the range of all keys that begin with ``prefix``. Raises ValueError if there is no key behind it."""
    stem = prefix.rstrip(b"\xff")
    if not stem:
        raise ValueError(f"no key is above all that begin with {prefix!r}; give a prefix with a byte below 255")
    return Range(prefix, stem[:-1] + bytes([stem[-1] + 1]))


_STAMP = struct.Struct(">Q")


def stamp(version: int) -> bytes:
    """Return a version as the end of a key: keys so stamped are in the order of their commits."""
    return _STAMP.pack(version)


@dataclass(frozen=True)
class Commit:
    """What a transaction writes: ``sets`` and ``clears``, these first, if nothing in ``reads`` has changed after
    ``read_version``. ``stamped``: pairs to whose keys the commit's version is added (:func:`stamp`)."""

    read_version: int
    reads: tuple[Range, ...] = ()
    clears: tuple[Range, ...] = ()
    sets: tuple[Pair, ...] = ()
    stamped: tuple[Pair, ...] = ()

    def __post_init__(self) -> None:
        for range_ in (*self.reads, *self.clears):
            if range_.begin > range_.end:
                raise ValueError(f"a range from {range_.begin!r} to {range_.end!r}: its end is before it; swap them")
        for pair in (*self.sets, *self.stamped):
            if not 1 <= len(pair.key) <= MOST_KEY_BYTES:
                raise ValueError(f"a key of {len(pair.key)} B; it can have 1 to {MOST_KEY_BYTES}")
            if len(pair.value) > MOST_VALUE_BYTES:
                raise ValueError(
                    f"{pair.key!r}: a value of {len(pair.value)} B, more than {MOST_VALUE_BYTES}; divide it"
                )
        if self.size_bytes > MOST_COMMIT_BYTES:
            raise ValueError(f"a commit of {self.size_bytes} B, more than {MOST_COMMIT_BYTES}; divide it")

    @property
    def size_bytes(self) -> int:
        """The bytes of its keys and values."""
        ranges = sum(len(begin) + len(end) for begin, end in (*self.reads, *self.clears))
        return ranges + sum(len(key) + len(value) for key, value in (*self.sets, *self.stamped))

    @property
    def writes(self) -> bool:
        """Whether it changes anything."""
        return bool(self.clears or self.sets or self.stamped)

    def pairs_at(self, version: int) -> tuple[Pair, ...]:
        """Return what it sets if it is made as a version."""
        return (*self.sets, *(Pair(key + stamp(version), value) for key, value in self.stamped))


class Store(Protocol):
    """A store. Versions grow by at least 1 with each commit that writes. One that is elsewhere raises Unreachable where
    it does not answer."""

    async def read_version(self) -> int:
        """Return the version of the latest commit: whoever reads at it sees all that was committed before."""

    async def get(self, key: bytes, version: int) -> bytes | None:
        """Return the value of a key at a version, or None. Raises TooOld."""

    async def range(self, range_: Range, version: int, limit: int, reverse: bool = False) -> list[Pair]:
        """Return the first pairs of a range at a version, ``limit`` at most, in the order of their keys; with
        ``reverse`` the last ones, the last first. Raises TooOld."""

    async def commit(self, commit: Commit) -> int:
        """Write, and return the version of it. Raises Conflict, and TooOld."""
