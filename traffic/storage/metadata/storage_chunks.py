"""Chunks of files on the storage of a fabric, by a client of it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from traffic.storage.chains import ChunkId, ChunkPlace, Extent, FileLayout
from traffic.storage.client.chunk_io import ChunkIo
from traffic.storage.client.library import StorageClient
from traffic.storage.metadata.chunks import LastChunk


class StorageChunks:
    """:class:`traffic.storage.metadata.chunks.Chunks` over a storage client."""

    def __init__(self, client: StorageClient) -> None:
        self.client = client
        self._io = ChunkIo(client)

    async def write(self, extent: Extent, data: memoryview | None) -> None:
        """Write a stretch of a chunk; without ``data`` bytes that are made of its name. Raises TrafficError."""
        if data is None:
            await self.client.write_chunk(extent)
        else:
            await self._io.write(ChunkPlace(extent.chunk, extent.chain), extent.offset, bytes(data))

    async def read(self, extents: Sequence[Extent]) -> list[bytes]:
        """Return stretches of chunks, each as far as its chunk goes. Raises TrafficError."""
        return [one.data for one in await self.client.read_bytes(extents)]

    async def cut(self, chunk: ChunkId, chain: int, size_bytes: int) -> None:
        """Give a chunk a size. Raises TrafficError."""
        await self._io.truncate(ChunkPlace(chunk, chain), size_bytes)

    async def remove(self, chunks: Sequence[tuple[ChunkId, int]]) -> None:
        """Remove chunks side by side: each is an update of its chain. Raises TrafficError."""
        await asyncio.gather(*(self._io.remove(ChunkPlace(chunk, chain)) for chunk, chain in chunks))

    async def last_chunks(self, layout: FileLayout) -> list[LastChunk]:
        """Return the last chunk of a file on each of its chains that has one. Raises TrafficError."""
        chains = dict.fromkeys(layout.chains)
        found = await asyncio.gather(*(self._io.last_of(layout.file, chain) for chain in chains))
        return [LastChunk(one.place, one.size_bytes) for one in found if one is not None]
