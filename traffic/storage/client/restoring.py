"""A client's restore: a file read once from one end to the other, in pieces."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from traffic.storage.chains import FileLayout, Striping
from traffic.storage.client.library import GaveUp, Operation, StorageClient
from traffic.storage.client.samples import ReaderPlace
from traffic.storage.load_config import RestoreBegin, RestoreConfig, RestoreOf

FIRST_RESTORED_FILE = 1 << 21
"""Files that are restored are numbered from here; the data set's from 0, checkpoints below."""


def restored_files(config: RestoreConfig, striping: Striping, clients: int) -> tuple[FileLayout, ...]:
    """Return the files that so many clients restore."""
    files = clients if config.of is RestoreOf.OWN else min(1, clients)
    return tuple(striping.layout(FIRST_RESTORED_FILE + number, config.size) for number in range(files))


@dataclass(frozen=True)
class Restored:
    """What a client restores, and its place among those that do."""

    file: FileLayout
    place: ReaderPlace


def pieces(config: RestoreConfig, place: ReaderPlace) -> Iterator[tuple[int, int]]:
    """Yield the offset and the size of each piece, in the order in which a client asks for them."""
    count = -(-config.size // config.piece)
    first = count * place.number // place.readers if config.begin is RestoreBegin.SPREAD else 0
    for number in range(count):
        offset = (first + number) % count * config.piece
        yield offset, min(config.piece, config.size - offset)


async def restore(
    client: StorageClient, config: RestoreConfig, what: Restored, is_stopping: Callable[[], bool]
) -> Operation:
    """Read all of a file; return that as one operation, with what was read of it. It is of kind ``restore``, or
    ``restore_failed`` if a part was out of reach, or ``restore_abandoned`` if it was told to stop before."""
    left, started_s = pieces(config, what.place), time.monotonic()
    read_bytes = 0
    has_failed = False

    async def read_on() -> None:
        nonlocal read_bytes, has_failed
        for offset, size in left:
            if is_stopping():
                return
            try:
                await client.read_chunks(what.file.locate(offset, size))
            except GaveUp:  # The read is among the operations, as failed.
                has_failed = True
                continue
            read_bytes += size

    await asyncio.gather(*(read_on() for _ in range(config.depth)))
    kind = "restore_failed" if has_failed else "restore" if read_bytes == config.size else "restore_abandoned"
    return Operation(kind, "", read_bytes, started_s, time.monotonic())
