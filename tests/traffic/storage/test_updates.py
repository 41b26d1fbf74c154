"""What updates make of a chunk, beside a bytearray; and what they cost a disk."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from traffic.storage.chains import ChunkId
from traffic.storage.payload import ChunkContent, Raw, Recipe, Removed, checksum_of, content_of
from traffic.storage.updates import LARGEST_BLOCK, SMALLEST_BLOCK, Action, Change, Cost, Made, after, block_for

CHUNK = ChunkId(3, 4)
NOTHING = Made(Removed(), 0, 0, Cost())
KIB = 1 << 10


def bytes_of(content: ChunkContent) -> bytes:
    return b"".join(content.pieces(0, content.size_bytes))


def write(offset: int, data: bytes) -> Change:
    return Change(Action.WRITE, offset, len(data), checksum_of([data]), Raw(data))


def made_by(changes: list[Change]) -> Made:
    made = NOTHING
    for change in changes:
        made = after(change, made.content, made.checksum, made.block_bytes)
    return made


def applied_to(model: bytearray | None, change: Change) -> bytearray | None:
    """The same to plain bytes; None: there are none."""
    if change.action is Action.REMOVE:
        return None
    model = bytearray() if model is None else model
    if change.action is Action.WRITE:
        model.extend(bytes(max(0, change.offset - len(model))))
        model[change.offset : change.offset + change.length] = bytes_of(change.payload)
    elif change.length > len(model):
        model.extend(bytes(change.length - len(model)))
    elif change.action is Action.TRUNCATE:
        del model[change.length :]
    return model


@st.composite
def changes(draw: st.DrawFn) -> Change:
    action = draw(st.sampled_from([Action.WRITE] * 4 + list(Action)))
    if action is Action.WRITE:
        return write(draw(st.integers(0, 200)), draw(st.binary(min_size=1, max_size=120)))
    return Change(action, 0, 0 if action is Action.REMOVE else draw(st.integers(0, 250)))


@settings(max_examples=300)
@given(st.lists(changes(), max_size=12), st.integers(0, 300), st.integers(1, 300))
def test_a_chunk_has_the_bytes_that_its_updates_make(updates: list[Change], offset: int, length: int) -> None:
    model: bytearray | None = None
    for change in updates:
        model = applied_to(model, change)
    made = made_by(updates)
    assert isinstance(made.content, Removed) == (model is None)
    right = bytes(model or b"")
    assert bytes_of(made.content) == right
    assert made.content.size_bytes == len(right)
    assert made.checksum == checksum_of([right])
    if offset < len(right):
        stretch = b"".join(made.content.pieces(offset, min(length, len(right) - offset)))
        assert stretch == right[offset : offset + length]


def test_what_an_update_costs() -> None:
    """Section by section: in place, copy on write, a block that is outgrown, truncation, removal."""
    whole = Raw(bytes(40 * KIB))
    found: list[tuple[Change, ChunkContent, int, Cost]] = [
        (write(0, bytes(40 * KIB)), Removed(), 0, Cost(0, 40 * KIB)),
        (write(40 * KIB, bytes(8 * KIB)), whole, SMALLEST_BLOCK, Cost(0, 8 * KIB)),
        (write(40 * KIB, bytes(30 * KIB)), whole, SMALLEST_BLOCK, Cost(40 * KIB, 70 * KIB, True)),
        (write(50 * KIB, bytes(1 * KIB)), whole, SMALLEST_BLOCK, Cost(0, 11 * KIB)),
        (write(4 * KIB, bytes(4 * KIB)), whole, SMALLEST_BLOCK, Cost(40 * KIB, 40 * KIB, True)),
        (write(39 * KIB, bytes(4 * KIB)), whole, SMALLEST_BLOCK, Cost(40 * KIB, 43 * KIB, True)),
        (write(0, bytes(40 * KIB)), whole, SMALLEST_BLOCK, Cost(0, 40 * KIB, True)),
        (Change(Action.TRUNCATE, 0, 10 * KIB), whole, SMALLEST_BLOCK, Cost(10 * KIB)),
        (Change(Action.TRUNCATE, 0, 50 * KIB), whole, SMALLEST_BLOCK, Cost(0, 10 * KIB)),
        (Change(Action.EXTEND, 0, 10 * KIB), whole, SMALLEST_BLOCK, Cost()),
        (Change(Action.REMOVE), whole, SMALLEST_BLOCK, Cost()),
    ]
    for change, old, block, cost in found:
        assert after(change, old, 0, block).cost == cost, change


def test_a_block_is_the_least_that_holds_a_chunk() -> None:
    assert [block_for(size) for size in (1, SMALLEST_BLOCK, SMALLEST_BLOCK + 1)] == [
        SMALLEST_BLOCK,
        SMALLEST_BLOCK,
        2 * SMALLEST_BLOCK,
    ]
    assert block_for(LARGEST_BLOCK) == LARGEST_BLOCK
    with pytest.raises(ValueError, match="a chunk of 67108865 B, more than 67108864 B; divide it"):
        block_for(LARGEST_BLOCK + 1)


def test_a_part_that_a_write_makes_is_known_by_its_place() -> None:
    part = Recipe(CHUNK, 9, 1000, 512)
    data = bytearray(bytes_of(part))
    assert content_of(data) == part
    assert data != bytes_of(Recipe(CHUNK, 9, 1000))
