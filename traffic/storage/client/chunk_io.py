"""Chunks as files use them: bytes in, bytes out. Calls are retried and data verified as in
:mod:`traffic.storage.client.library`.

::

    chunks = ChunkIo(client)
    place = layout.place(3)                            # The chunk and its chain.
    await chunks.write(place, 4096, b"...")            # From byte 4096 on; zeros lie between the end and that.
    await chunks.append(place, b"...")                 # At its end, as it is then: no other may write it meanwhile.
    read = await chunks.read(place, 0, 1 << 20)        # Fewer bytes where the chunk ends; none if it is not there.
    await chunks.truncate(place, 100)
    await chunks.extend(place, 4096)
    await chunks.remove(place)
    last = await chunks.last_of(file, chain)           # None if the file has no chunk there.

Every update gives the chunk its next version, on all replicas, before it returns: :class:`ChunkUpdate`. An update that
is tried again is applied once. All raise as the methods of :class:`traffic.storage.client.library.StorageClient` do:
``GaveUp`` if they do not succeed in time (an update may take effect all the same), ``ChainLost``, ``TrafficError``.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from fabric.model.identity import NodeId
from traffic.storage.chains import ChunkId, ChunkPlace, FileLayout
from traffic.storage.client.library import Acknowledged, ReadChunk, StorageClient
from traffic.storage.payload import Raw, checksum_of
from traffic.storage.updates import LARGEST_BLOCK, Action, Change
from traffic.storage.wire.messages import FoundChunk

_ALL = range(1 << 31)


class ChunkUpdate(NamedTuple):
    """What came of an update: the chunk's version and its length, bytes. Version 0: a removal of what was never
    there."""

    version: int
    chunk_bytes: int


class ChunkData(NamedTuple):
    """What was read of a chunk: bytes, the version that they are of, and the length of the whole chunk. Version 0 or a
    length of 0: it is not there, or empty."""

    data: bytes
    version: int
    chunk_bytes: int


@dataclass(frozen=True)
class ChunkIo:
    """Reads and updates of chunks, by a client."""

    client: StorageClient

    async def write(self, place: ChunkPlace, offset: int, data: bytes) -> ChunkUpdate:
        """Write bytes from ``offset`` on. Raises ValueError if there are none, or the chunk would be too long."""
        if not data or offset < 0 or offset + len(data) > LARGEST_BLOCK:
            raise ValueError(f"{place.chunk}: {len(data)} B at {offset}; write 1 B or more, below {LARGEST_BLOCK} B")
        return await self._update(place, Change(Action.WRITE, offset, len(data), checksum_of([data]), Raw(data)))

    async def append(self, place: ChunkPlace, data: bytes) -> ChunkUpdate:
        """Write bytes where the chunk ends. As in 3FS the client says where that is, so it is two operations: who else
        writes the chunk in between is overwritten."""
        return await self.write(place, (await self.length(place)) or 0, data)

    async def read(self, place: ChunkPlace, offset: int, length: int, relaxed: bool = False) -> ChunkData:
        """Read bytes; ``relaxed``: of a version that may still be pending."""
        (found,) = await self.read_all([(place, offset, length)], relaxed)
        return found

    async def read_all(
        self, parts: Sequence[tuple[ChunkPlace, int, int]], relaxed: bool = False, server: NodeId | None = None
    ) -> list[ChunkData]:
        """Read several stretches (place, offset, length), in batches to the nodes that hold them; ``server``: from this
        replica only."""
        extents = [place.extent(offset, length) for place, offset, length in parts]
        found: list[ReadChunk] = await self.client.read_bytes(extents, server, relaxed)
        return [ChunkData(one.data, one.version, one.chunk_bytes) for one in found]

    async def read_file(self, layout: FileLayout, offset: int, length: int, relaxed: bool = False) -> bytes:
        """Read bytes of a file across its chunks; holes are zeros."""
        extents = layout.locate(offset, length)
        found = await self.client.read_bytes(extents, None, relaxed)
        return b"".join(one.data.ljust(extent.length, b"\0") for one, extent in zip(found, extents, strict=True))

    async def write_file(self, layout: FileLayout, offset: int, data: bytes) -> None:
        """Write bytes of a file across its chunks, all at once."""
        extents = layout.locate(offset, len(data))
        starts = [0]
        for extent in extents:
            starts.append(starts[-1] + extent.length)
        work = (
            self.write(ChunkPlace(extent.chunk, extent.chain), extent.offset, data[start : start + extent.length])
            for extent, start in zip(extents, starts, strict=False)
        )
        await asyncio.gather(*work)

    async def truncate(self, place: ChunkPlace, length: int) -> ChunkUpdate:
        """Cut the chunk off at ``length``, or fill it with zeros up to there."""
        return await self._resize(place, Action.TRUNCATE, length)

    async def extend(self, place: ChunkPlace, length: int) -> ChunkUpdate:
        """Fill the chunk with zeros up to ``length``; one that is longer stays as it is."""
        return await self._resize(place, Action.EXTEND, length)

    async def _resize(self, place: ChunkPlace, action: Action, length: int) -> ChunkUpdate:
        if not 0 <= length <= LARGEST_BLOCK:
            raise ValueError(f"{place.chunk}: a length of {length} B; it can have 0 to {LARGEST_BLOCK} B")
        return await self._update(place, Change(action, 0, length))

    async def remove(self, place: ChunkPlace) -> ChunkUpdate:
        """Remove the chunk; one that is not there is no error."""
        return await self._update(place, Change(Action.REMOVE))

    async def _update(self, place: ChunkPlace, change: Change) -> ChunkUpdate:
        done: Acknowledged = await self.client.update(place.chunk, place.chain, change)
        return ChunkUpdate(done.version, done.chunk_bytes)

    async def length(self, place: ChunkPlace) -> int | None:
        """Return the chunk's length, bytes, or None if it is not there."""
        index = place.chunk.index
        found = await self.client.find_chunks(place.chain, place.chunk.file, range(index, index + 1))
        return found[0].size_bytes if found else None

    async def last_of(self, file: int, chain: int) -> FoundChunk | None:
        """Return the last chunk of a file that is there on a chain (3FS: ``queryLastChunk``), or None."""
        found = await self.client.find_chunks(chain, file, _ALL)
        return found[0] if found else None

    async def chunks_of(self, file: int, chain: int, most: int = sys.maxsize) -> list[FoundChunk]:
        """Return the chunks of a file that are there on a chain, the last ``most`` of them, the last first."""
        return await self.client.find_chunks(chain, file, _ALL, min(most, 10_000))

    async def remove_file(self, file: int, chains: Sequence[int], at_once: int = 32) -> int:
        """Remove the chunks of a file from its chains, ``at_once`` at a time; return how many there were."""
        removed = 0
        for chain in dict.fromkeys(chains):
            while found := await self.chunks_of(file, chain, at_once):
                places = [ChunkPlace(ChunkId(file, one.place), chain) for one in found]
                await asyncio.gather(*map(self.remove, places))
                removed += len(places)
        return removed
