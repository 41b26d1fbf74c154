"""What a write makes of a chunk, and what that costs its disk. Pure.

3FS's chunk engine keeps a chunk in a block of one of eleven sizes, 64 KiB to 64 MiB. What is written behind its end
goes into the same block (*in place*), if there is room. What overwrites bytes, or does not fit, has the whole chunk
read and written into a new block (*copy on write*), on every replica; only a write of all of it reads nothing. A
truncation reads what is left, for the checksum of that; a removal costs nothing. (``src/storage/chunk_engine``:
``update_chunk``, ``copy_on_write``, ``safe_write``; what is aligned to 512 bytes there is not here.)

``EXTEND`` fills a chunk with zeros up to a length, and never shortens it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

from traffic.storage.payload import ChunkContent, Raw, Removed, checksum_of, patched, resized

SMALLEST_BLOCK, LARGEST_BLOCK = 64 << 10, 64 << 20


class Action(IntEnum):
    """What an update does to a chunk."""

    WRITE = 0
    TRUNCATE = 1
    EXTEND = 2
    REMOVE = 3


@dataclass(frozen=True)
class Change:
    """An update: ``payload`` from ``offset`` on if it is a write, with its checksum; to ``length`` if it is none."""

    action: Action = Action.WRITE
    offset: int = 0
    length: int = 0
    checksum: int = 0
    payload: ChunkContent = Raw(b"")  # noqa: RUF009 - frozen


class Cost(NamedTuple):
    """What an update reads and writes of a disk, bytes; ``is_copy``: it copies on write."""

    read_bytes: int = 0
    written_bytes: int = 0
    is_copy: bool = False


class Made(NamedTuple):
    """A chunk after an update: its bytes and their checksum, the size of its block, and what that cost."""

    content: ChunkContent
    checksum: int
    block_bytes: int
    cost: Cost


def block_for(size_bytes: int) -> int:
    """Return the size of the block that a chunk needs. Raises ValueError if there is none so large."""
    block = SMALLEST_BLOCK
    while block < size_bytes:
        block *= 2
    if block > LARGEST_BLOCK:
        raise ValueError(f"a chunk of {size_bytes} B, more than {LARGEST_BLOCK} B; divide it")
    return block


def after(change: Change, old: ChunkContent, checksum: int, block_bytes: int) -> Made:
    """Return what an update makes of a chunk's bytes, their checksum and its block. A chunk that is not there, or was
    removed, is ``Removed()`` with a block of 0."""
    size = old.size_bytes
    if change.action is Action.REMOVE:
        return Made(Removed(), 0, 0, Cost())
    if change.action is Action.WRITE:
        return _written(change, old, checksum, block_bytes)
    if change.length > size:
        zeros = Change(Action.WRITE, change.length)
        return _written(zeros, old, checksum, block_bytes)
    if change.action is Action.EXTEND or change.length == size:
        content = Raw(b"") if isinstance(old, Removed) else old
        return Made(content, checksum, block_bytes or SMALLEST_BLOCK, Cost())
    content = resized(old, change.length)
    return Made(content, checksum_of(content.pieces(0, change.length)), block_bytes, Cost(change.length))


def _written(change: Change, old: ChunkContent, checksum: int, block_bytes: int) -> Made:
    """Do so for a write. One without data fills up to where it is."""
    size, end = old.size_bytes, change.offset + change.payload.size_bytes
    content = patched(old, change.offset, change.payload)
    new_size = content.size_bytes
    is_whole = change.offset == 0 and end >= size
    if is_whole:
        new_checksum = change.checksum
    elif change.offset >= size:
        new_checksum = checksum_of(content.pieces(size, new_size - size), checksum)
    else:
        new_checksum = checksum_of(content.pieces(0, new_size))
    if change.offset >= size and end <= block_bytes:
        return Made(content, new_checksum, block_bytes, Cost(0, new_size - size))
    is_copy = size > 0
    return Made(content, new_checksum, block_for(new_size), Cost(0 if is_whole else size, new_size, is_copy))
