from __future__ import annotations

import pytest

from fabric.errors import TrafficError
from traffic.storage.chains import ChunkId
from traffic.storage.wire.messages import (
    HEADER,
    CallKind,
    Frame,
    Io,
    IoResult,
    ReplyStatus,
    header_of,
    pack_all,
    pack_number,
    parse_header,
    parse_ios,
    parse_number,
    parse_results,
)

IO = Io(47, ChunkId(1 << 40, 3), 5, 1 << 20, 0xFFFFFFFF, 1 << 63, 9)


def test_records_come_back_as_they_were() -> None:
    other = Io(0, ChunkId(0, 0), 0, 1)
    assert parse_ios(pack_all([IO, other])) == [IO, other]
    result = IoResult(ReplyStatus.OK, 3, 1 << 40, 0xDEADBEEF, 77, 99)
    assert parse_results(pack_all([result, IoResult(ReplyStatus.PENDING)])) == [result, IoResult(ReplyStatus.PENDING)]
    assert parse_number(pack_number(1 << 50)) == 1 << 50


def test_a_header_comes_back_as_it_was() -> None:
    frame = Frame(CallKind.READ, True, ReplyStatus.BUSY, 12, 3.5, b"meta")
    data = header_of(frame, 1000)
    parsed, meta_bytes, payload_bytes = parse_header(bytearray(data[: HEADER.size]))
    assert (parsed.kind, parsed.is_reply, parsed.status, parsed.number) == (CallKind.READ, True, ReplyStatus.BUSY, 12)
    assert (parsed.deadline_s, meta_bytes, payload_bytes) == (3.5, 4, 1000)
    assert data[HEADER.size :] == b"meta"


def test_messages_are_as_long_as_those_of_3fs() -> None:
    def length(count: int) -> int:
        return len(header_of(Frame(CallKind.READ, False, ReplyStatus.OK, 1, 1, pack_all([IO] * count)), 0))

    assert 150 <= length(1) <= 250
    assert 11_500 <= length(128) <= 12_500
    assert len(header_of(Frame(CallKind.APPLY, False, ReplyStatus.OK, 1, 1, pack_number(1)), 0)) <= 100


@pytest.mark.parametrize("damage", ["magic", "size"])
def test_a_stream_out_of_step_is_named(damage: str) -> None:
    frame = Frame(CallKind.READ, False, ReplyStatus.OK, 1, 1, b"")
    data = bytearray(header_of(frame, 2 << 30 if damage == "size" else 0))
    if damage == "magic":
        data[0] ^= 1
    with pytest.raises(TrafficError, match="out of step"):
        parse_header(data)
