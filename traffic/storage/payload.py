"""Content of chunks: bytes generated from a small recipe, so that readers check content, not only a checksum, and
services need not store what they can generate.

The checksum is CRC-32 (``zlib.crc32``). 3FS uses CRC-32C; Python's standard library has none, and a slower one in
Python would be the emulation's bottleneck. Both find any burst error of up to 32 bits.
"""

from __future__ import annotations

import random
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from traffic.storage.chains import ChunkId

_STAMP = struct.Struct("<8sQIQI")
_MAGIC = b"ff-chunk"
_NOISE_BYTES = 1 << 20
_MIX = 0x9E3779B97F4A7C15  # 2^64 / golden ratio: spreads neighbouring chunks over the noise.
_noise = memoryview(b"")


def checksum_of(pieces: Sequence[bytes | bytearray | memoryview]) -> int:
    """Return the CRC-32 of the pieces one after the other."""
    checksum = 0
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


@dataclass(frozen=True)
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
    depends on both. ``request`` is the writer's number of the write (0: loaded before the run)."""

    chunk: ChunkId
    request: int
    size_bytes: int

    def _stamp(self) -> bytes:
        stamp = _STAMP.pack(_MAGIC, self.chunk.file, self.chunk.index, self.request, self.size_bytes)
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
        magic, file, index, request, size = _STAMP.unpack_from(data)
        recipe = Recipe(ChunkId(file, index), request, size)
        if magic == _MAGIC and size == len(data) and recipe.matches(data, 0, 0, size):
            return recipe
    return Raw(data)
