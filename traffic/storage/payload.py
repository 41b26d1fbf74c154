"""Content of chunks: bytes generated from a small recipe, so that readers check content, not only a checksum, and
services need not store what they can generate.

The checksum is CRC-32 (``zlib.crc32``). 3FS uses CRC-32C; Python's standard library has none, and a slower one in
Python would be the emulation's bottleneck. Both find any burst error of up to 32 bits.

A chunk that was written in parts is a patchwork of their contents.
"""

from __future__ import annotations

import random
import struct
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Protocol

from traffic.storage.chains import ChunkId

_STAMP = struct.Struct("<8sQIQII")
_MAGIC = b"ff-chunk"
_NOISE_BYTES = 1 << 20
_MIX = 0x9E3779B97F4A7C15  # 2^64 / golden ratio: spreads neighbouring chunks over the noise.
_noise = memoryview(b"")
_ZEROS = memoryview(bytes(1 << 20))


def checksum_of(pieces: Sequence[bytes | bytearray | memoryview], checksum: int = 0) -> int:
    """Return the CRC-32 of the pieces one after the other, behind bytes that have ``checksum``."""
    for piece in pieces:
        checksum = zlib.crc32(piece, checksum)
    return checksum


class ChunkContent(Protocol):
    """A chunk's bytes, kept or made when asked for."""

    @property
    def size_bytes(self) -> int:
        """How many bytes there are."""

    def pieces(self, offset: int, length: int) -> list[memoryview]:
        """Return the bytes of a stretch, in one or more views."""


@dataclass(frozen=True, slots=True)
class Raw:
    """Bytes as they came."""

    data: bytes | bytearray

    @property
    def size_bytes(self) -> int:
        """How many bytes there are."""
        return len(self.data)

    def pieces(self, offset: int, length: int) -> list[memoryview]:
        """Return the bytes of a stretch."""
        return [memoryview(self.data)[offset : offset + length]]


@dataclass(frozen=True)
class Recipe:
    """Bytes made of a chunk's name and the write that made them: a stamp that says so, then noise from a place that
    depends on both. ``request`` is the writer's number of the write (0: loaded before the run); ``at``: where in the
    chunk they begin."""

    chunk: ChunkId
    request: int
    size_bytes: int
    at: int = 0

    def _stamp(self) -> bytes:
        stamp = _STAMP.pack(_MAGIC, self.chunk.file, self.chunk.index, self.request, self.size_bytes, self.at)
        return stamp[: self.size_bytes]

    def pieces(self, offset: int, length: int) -> list[memoryview]:
        """Return the bytes of a stretch."""
        end = min(offset + length, self.size_bytes)
        found = [memoryview(self._stamp())[offset:end]] if offset < _STAMP.size else []
        if end > _STAMP.size:
            start = (self.chunk.file * 1_000_003 + self.chunk.index * 8191 + self.request) * _MIX % _NOISE_BYTES
            noise = _noise_of(self.size_bytes)
            found.append(noise[start + max(offset, _STAMP.size) : start + end])
        return found

    def matches(self, data: bytes | bytearray, start: int, offset: int, length: int) -> bool:
        """Return whether ``data`` from ``start`` is the stretch of ``length`` bytes at ``offset``."""
        for piece in self.pieces(offset, length):
            # startswith is a memcmp; comparing memoryviews goes byte by byte.
            if not data.startswith(piece, start):
                return False
            start += len(piece)
        return True


@dataclass(frozen=True)
class Zeros:
    """Bytes that nobody has written: what lies between the end of a chunk and a write behind it."""

    size_bytes: int

    def pieces(self, offset: int, length: int) -> list[memoryview]:
        """Return the bytes of a stretch."""
        length = min(length, self.size_bytes - offset)
        found = [_ZEROS] * (length // len(_ZEROS))
        return [*found, _ZEROS[: length % len(_ZEROS)]]


@dataclass(frozen=True, slots=True)
class Removed:
    """What a chunk has that was removed: nothing."""

    size_bytes: int = 0

    def pieces(self, offset: int, length: int) -> list[memoryview]:
        """Return nothing."""
        return []


class Stretch(NamedTuple):
    """``length`` bytes of a content, from ``within`` it."""

    content: ChunkContent
    within: int
    length: int


@dataclass(frozen=True)
class Patchwork:
    """Bytes of several writes: stretches of their data, one after the other."""

    stretches: tuple[Stretch, ...]

    @cached_property
    def size_bytes(self) -> int:
        """How many bytes there are."""
        return sum(stretch.length for stretch in self.stretches)

    def pieces(self, offset: int, length: int) -> list[memoryview]:
        """Return the bytes of a stretch."""
        found: list[memoryview] = []
        for content, within, size in cut(self, offset, length):
            found += content.pieces(within, size)
        return found


def cut(content: ChunkContent, offset: int, length: int) -> Iterator[Stretch]:
    """Yield what a stretch of a content consists of."""
    if not isinstance(content, Patchwork):
        if length > 0:
            yield Stretch(content, offset, length)
        return
    for stretch in content.stretches:
        taken = min(length, stretch.length - offset)
        if taken > 0 and offset >= 0:
            yield Stretch(stretch.content, stretch.within + offset, taken)
            length -= taken
            offset = 0
        else:
            offset -= stretch.length
        if length <= 0:
            return


def patched(old: ChunkContent, offset: int, new: ChunkContent) -> ChunkContent:
    """Return a chunk's bytes after ``new`` was written at ``offset``; zeros lie between its end and that."""
    end = offset + new.size_bytes
    if offset == 0 and end >= old.size_bytes:
        return new
    gap = offset - old.size_bytes
    stretches = [*cut(old, 0, min(offset, old.size_bytes))]
    if gap > 0:
        stretches.append(Stretch(Zeros(gap), 0, gap))
    stretches += [*cut(new, 0, new.size_bytes), *cut(old, end, old.size_bytes - end)]
    return Patchwork(tuple(stretches))


def resized(old: ChunkContent, length: int) -> ChunkContent:
    """Return a chunk's bytes cut off at ``length``, or filled with zeros up to there."""
    if length == old.size_bytes:
        return old
    if length > old.size_bytes:
        return patched(old, old.size_bytes, Zeros(length - old.size_bytes))
    return Patchwork(tuple(cut(old, 0, length)))


def _noise_of(size_bytes: int) -> memoryview:
    """Return at least ``_NOISE_BYTES + size_bytes`` bytes, the same in every process, periodic in ``_NOISE_BYTES``."""
    global _noise
    if len(_noise) < _NOISE_BYTES + size_bytes:
        period = random.Random(0x3F5).randbytes(_NOISE_BYTES)
        _noise = memoryview(period * (1 + -(-size_bytes // _NOISE_BYTES)))
    return _noise


def content_of(data: bytes | bytearray) -> ChunkContent:
    """Return ``data`` as a recipe if, byte for byte, it is what that recipe makes; else as it is."""
    if len(data) >= _STAMP.size:
        magic, file, index, request, size, at = _STAMP.unpack_from(data)
        recipe = Recipe(ChunkId(file, index), request, size, at)
        if magic == _MAGIC and size == len(data) and recipe.matches(data, 0, 0, size):
            return recipe
    return Raw(data)
