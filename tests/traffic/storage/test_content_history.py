"""The checker of the bytes of versions: by examples."""

from __future__ import annotations

import re

import pytest

from traffic.storage.chains import ChunkId
from traffic.storage.content_history import Undecided, content_faults
from traffic.storage.history import MAYBE, Event, Kind, Seen
from traffic.storage.payload import Raw, checksum_of
from traffic.storage.updates import Action, Change

CHUNK = ChunkId(0, 0)


def write(version: int | None, change: Change | None, request: int | None = None) -> Event:
    when = 1.0, 2.0 if version is not None else MAYBE
    return Event(Kind.WRITE, CHUNK, request or version or 99, version, *when, change=change)


def part(offset: int, data: bytes) -> Change:
    return Change(Action.WRITE, offset, len(data), 0, Raw(data))


def read(version: int, data: bytes, of: bytes | None = None, offset: int = 0, request: int | None = None) -> Event:
    whole = data if of is None else of
    seen = Seen(offset, len(data), checksum_of([data]), len(whole))
    number = version if request is None else request
    return Event(Kind.READ, CHUNK, number, version, 3.0, 4.0, seen=seen)


def test_histories_whose_bytes_fit() -> None:
    first, second = write(1, part(0, b"abcdef")), write(2, part(2, b"XY"))
    removed = write(3, Change(Action.REMOVE))
    for history in [
        [first, second, read(1, b"abcdef"), read(2, b"abXYef"), read(2, b"XYe", b"abXYef", 2)],
        [first, second, removed, read(3, b""), write(4, part(2, b"z")), read(4, b"\0\0z")],
        [first, write(2, Change(Action.TRUNCATE, 0, 3)), read(2, b"abc"), read(0, b"", request=0)],
        [first, write(2, part(6, b"gh")), read(2, b"abcdefgh"), read(2, b"gh", b"abcdefgh", 6)],
        # Whose bytes were never asked for, and what follows a write of which nothing is known.
        [first, write(2, None), read(2, b"whatever"), write(3, part(0, b"q")), read(3, b"who knows")],
        [first, read(1, b"abcdef")._replace(seen=None)],
    ]:
        assert content_faults(history) == []


def test_a_read_of_other_bytes_is_named() -> None:
    first, second = write(1, part(0, b"abcdef")), write(2, part(2, b"XY"))
    for history, fault in [
        ([first, second, read(2, b"abcdef")], "read 0x2 .*: checksum .* at 0, instead of"),
        ([first, second, read(2, b"abXY")], "of 4 B, instead of 6"),
        ([first, second, read(1, b"abXYef")], "read 0x1 .*: checksum"),
        ([first, write(2, Change(Action.REMOVE)), read(2, b"abcdef")], "of 6 B, instead of 0"),
        ([read(1, b"", request=7), read(3, b"")], "version 2 is nobody's write|version 1 is nobody's"),
    ]:
        (found,) = content_faults(history)
        assert found.startswith("chunk 0 of file 0: ")
        assert re.search(fault, found), found


def test_writes_that_nobody_answered_are_tried_where_a_version_has_none() -> None:
    lost = [write(None, part(0, data), request) for request, data in ((50, b"P"), (51, b"Q"), (52, b"R"))]
    known = [write(1, part(0, b"abc")), write(4, part(2, b"!"), 4)]
    for seen, fits in ((b"Qb!", True), (b"Rb!", True), (b"ab!", False), (b"Sb!", False)):
        history = [*known, *lost, read(4, seen)]
        assert (content_faults(history) == []) is fits, seen
    # A read names the write of its version, which then is not another's.
    history = [*known, *lost, read(3, b"Qbc", request=51), read(4, b"Rb!")]
    assert content_faults(history) != []


def test_what_cannot_be_decided_is_an_error() -> None:
    lost = [write(None, part(number, b"P"), 100 + number) for number in range(12)]
    with pytest.raises(Undecided, match="12 writes were not answered; shorten the history"):
        content_faults([*lost, write(13, part(0, b"z"), 13), read(13, b"never")])


def test_what_was_there_before_is_told() -> None:
    read_before = read(1, b"abc", request=0)
    history = [read_before, write(2, part(3, b"d")), read(2, b"abcd")]
    assert content_faults(history, {CHUNK: Raw(b"abc")}) == []
    assert content_faults(history, {CHUNK: Raw(b"abx")}) != []
