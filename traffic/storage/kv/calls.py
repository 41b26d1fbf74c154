"""What calls of the store of keys and values carry, between a program that has one and programs that use it.

A call is its kind, a byte, and what belongs to it; an answer is its outcome, a byte, and what was asked for, or words.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from enum import IntEnum
from typing import NamedTuple

from fabric.errors import TrafficError
from traffic.storage.kv.store import Commit, Conflict, Pair, Range, TooOld

MOST_ANSWER_BYTES = 512 << 10
"""A range is answered in parts of about this size: frames have a limit."""
MOST_CALL_BYTES = 512 << 10
"""A commit of more is pulled, as data of writes is."""
_KIND = struct.Struct("<B")
_VERSION = struct.Struct("<Q")
_RANGE = struct.Struct("<QIBI")
_COMMIT = struct.Struct("<QIIII")
_SIZES = struct.Struct("<II")


class Ask(IntEnum):
    """What is asked of a store."""

    READ_VERSION = 1
    GET = 2
    RANGE = 3
    COMMIT = 4
    PULLED_COMMIT = 5
    """A commit whose data is to be pulled."""


class Outcome(IntEnum):
    """How that went."""

    DONE = 0
    CONFLICT = 1
    TOO_OLD = 2
    WRONG = 3


class RangeAsked(NamedTuple):
    """A range that is asked for."""

    range: Range
    version: int
    limit: int
    reverse: bool


def pack_get(key: bytes, version: int) -> bytes:
    """Return the call that asks for a key's value."""
    return _KIND.pack(Ask.GET) + _VERSION.pack(version) + key


def parse_get(data: bytes) -> tuple[bytes, int]:
    """Return the key and the version, of what follows the kind."""
    return data[_VERSION.size :], _VERSION.unpack_from(data)[0]


def pack_range(asked: RangeAsked) -> bytes:
    """Return the call that asks for a range."""
    begin, end = asked.range
    head = _RANGE.pack(asked.version, asked.limit, asked.reverse, len(begin))
    return _KIND.pack(Ask.RANGE) + head + begin + end


def parse_range(data: bytes) -> RangeAsked:
    """Return what is asked for, of what follows the kind."""
    version, limit, reverse, size = _RANGE.unpack_from(data)
    keys = data[_RANGE.size :]
    return RangeAsked(Range(keys[:size], keys[size:]), version, limit, bool(reverse))


def pack_commit(commit: Commit) -> bytes:
    """Return a commit."""
    parts: tuple[tuple[Pair | Range, ...], ...] = (commit.reads, commit.clears, commit.sets, commit.stamped)
    return _COMMIT.pack(commit.read_version, *map(len, parts)) + b"".join(map(pack_pairs, parts))


def parse_commit(data: bytes) -> Commit:
    """Return it."""
    version, reads, clears, sets, stamped = _COMMIT.unpack_from(data)
    found = parse_pairs(data[_COMMIT.size :])
    if len(found) != reads + clears + sets + stamped:
        raise TrafficError(f"storage: a commit of {len(found)} pairs, not {reads + clears + sets + stamped}")
    ranges = tuple(Range(*pair) for pair in found[: reads + clears])
    pairs = tuple(found[reads + clears :])
    return Commit(version, ranges[:reads], ranges[reads:], pairs[:sets], pairs[sets:])


def pack_pairs(pairs: Iterable[Pair | Range]) -> bytes:
    """Return pairs of byte strings."""
    return b"".join(_SIZES.pack(len(one), len(other)) + one + other for one, other in pairs)


def parse_pairs(data: bytes) -> list[Pair]:
    """Return them."""
    found, place = [], 0
    while place < len(data):
        first, second = _SIZES.unpack_from(data, place)
        place += _SIZES.size
        if place + first + second > len(data):
            raise TrafficError("storage: pairs are cut short; the stream is damaged")
        found.append(Pair(data[place : place + first], data[place + first : place + first + second]))
        place += first + second
    return found


def pack_version(version: int) -> bytes:
    """Return a version."""
    return _VERSION.pack(version)


def parse_version(data: bytes) -> int:
    """Return it."""
    return int(_VERSION.unpack(data)[0])


def fitting(pairs: list[Pair]) -> list[Pair]:
    """Return the first pairs of a range that one answer can carry: one at least, if there is one."""
    size = 0
    for place, pair in enumerate(pairs):
        size += _SIZES.size + len(pair.key) + len(pair.value)
        if place and size > MOST_ANSWER_BYTES:
            return pairs[:place]
    return pairs


def raise_outcome(outcome: Outcome, text: str) -> None:
    """Raise what an answer says that was not done."""
    if outcome is Outcome.CONFLICT:
        raise Conflict(text)
    if outcome is Outcome.TOO_OLD:
        raise TooOld(text)
    if outcome is Outcome.WRONG:
        raise ValueError(text)
