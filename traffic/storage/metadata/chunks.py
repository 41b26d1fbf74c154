"""What files need of storage: stretches of chunks written and read, chunks cut, removed, and where the last one ends.

:class:`Chunks` is all that this package knows of the storage client; tests have one in memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from traffic.storage.chains import ChunkId, Extent, FileLayout


@dataclass(frozen=True)
class LastChunk:
    """The last chunk of a file on some chains: its place in the file, and how many bytes it has."""

    index: int
    size_bytes: int


class Chunks(Protocol):
    """Chunks of files. All raise TrafficError if it cannot be done in time."""

    async def write(self, extent: Extent, data: memoryview | None) -> None:
        """Write a stretch of a chunk; return once all replicas have it. What is before it and was never written is
        zeros. ``data`` None: bytes that are made of the chunk's name and the write's number, and verified when they
        are read, so that nobody need keep them."""

    async def read(self, extents: Sequence[Extent]) -> list[bytes]:
        """Return stretches of chunks, each as far as its chunk goes: none of a chunk that is not there."""

    async def cut(self, chunk: ChunkId, chain: int, size_bytes: int) -> None:
        """Give a chunk a size: what is behind it is gone, what it lacks is zeros."""

    async def remove(self, chunks: Sequence[tuple[ChunkId, int]]) -> None:
        """Remove chunks, each on its chain; one that is not there is no error."""

    async def last_chunks(self, layout: FileLayout) -> list[LastChunk]:
        """Return the last chunk of a file on each of its chains that has one."""


async def queried_bytes(chunks: Chunks, layout: FileLayout) -> int:
    """Return where the last chunk of a file ends, by what storage has."""
    found = [one.index * layout.chunk_bytes + one.size_bytes for one in await chunks.last_chunks(layout)]
    return max(found, default=0)


async def cut_file(chunks: Chunks, layout: FileLayout, size_bytes: int) -> None:
    """Cut or extend a file to a size. Chunks in front of its last one that were never written stay holes."""
    last_index, within = divmod(max(0, size_bytes - 1), layout.chunk_bytes)
    found = await chunks.last_chunks(layout)
    highest = max((one.index for one in found), default=-1)
    first_gone = last_index + 1 if size_bytes else 0
    gone = [(ChunkId(layout.file, index), layout.chain_of(index)) for index in range(first_gone, highest + 1)]
    if gone:
        await chunks.remove(gone)
    if size_bytes:
        await chunks.cut(ChunkId(layout.file, last_index), layout.chain_of(last_index), within + 1)


async def remove_file(chunks: Chunks, layout: FileLayout, at_once: int) -> int:
    """Remove all chunks of a file that storage has, ``at_once`` in a request; return how many."""
    highest = max((one.index for one in await chunks.last_chunks(layout)), default=-1)
    for start in range(0, highest + 1, at_once):
        indices = range(start, min(start + at_once, highest + 1))
        await chunks.remove([(ChunkId(layout.file, index), layout.chain_of(index)) for index in indices])
    return highest + 1
