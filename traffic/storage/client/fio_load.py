"""Reads and writes of files in fio's words. A client's load."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Coroutine, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from traffic.storage.chains import FileLayout, Striping
from traffic.storage.client.library import GaveUp, StorageClient
from traffic.storage.fio_config import ChunkIoConfig

FIRST_FIO_FILE = 1 << 24
"""Its files are numbered from here: behind those of data sets and checkpoints."""


_FILES_A_PLAY = 1 << 32
"""More than all clients' jobs have."""


def fio_files(config: ChunkIoConfig, striping: Striping, client: int, play: int = 0) -> tuple[FileLayout, ...]:
    """Return the files of a client's jobs. Those that are not there before are others on the same chains each time that
    the load plays (``play``, from 0): so that each appends to them first."""
    first = FIRST_FIO_FILE + client * config.numjobs
    layouts = (striping.layout(first + job, config.size) for job in range(config.numjobs))
    later = 0 if config.are_there else play * _FILES_A_PLAY
    return tuple(replace(layout, file=layout.file + later) for layout in layouts)


def places(config: ChunkIoConfig, rng: random.Random) -> Iterator[tuple[bool, int]]:
    """Yield, forever, whether to read or to write, and from which byte on. The last of a file's places is shorter if
    ``bs`` is not a part of ``size``."""
    count = -(-config.size // config.bs)
    for number in itertools.count():
        reads = config.rw.reads
        if reads and config.rw.writes:
            reads = rng.uniform(0, 100) < config.rwmixread
        place = rng.randrange(count) if config.rw.is_random else number % count
        yield reads, place * config.bs


async def play(
    config: ChunkIoConfig,
    client: StorageClient,
    files: Sequence[FileLayout],
    rng: random.Random,
    stopping: asyncio.Event,
) -> None:
    """Read and write until it is to stop."""
    jobs = [_job(config, client, layout, random.Random(rng.random()), stopping) for layout in files]
    await asyncio.gather(*jobs)


def _job(
    config: ChunkIoConfig, client: StorageClient, layout: FileLayout, rng: random.Random, stopping: asyncio.Event
) -> Coroutine[Any, Any, Any]:
    """Return one of its jobs: as many at once as are to be in flight, each with the next place."""
    following = places(config, rng)

    async def go_on() -> None:
        while not stopping.is_set():
            reads, offset = next(following)
            extents = layout.locate(offset, min(config.bs, config.size - offset))
            with suppress(GaveUp):  # It is among the operations, as failed.
                if reads:
                    await client.read_chunks(extents, is_relaxed=config.relaxed)
                else:
                    await asyncio.gather(*map(client.write_chunk, extents))

    async def all_at_once() -> None:
        await asyncio.gather(*(go_on() for _ in range(config.iodepth)))

    return all_at_once()
