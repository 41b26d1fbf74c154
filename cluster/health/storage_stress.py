"""The storage check: a node writes a file of random bytes to the run's storage, reads it back, and compares."""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections.abc import Awaitable
from typing import Any, NamedTuple, TypeVar

from fabric.errors import FabricError, TrafficError
from traffic.storage.metadata.files import Files
from traffic.storage.metadata.mounting import find_mount_point, mounted

T = TypeVar("T")
PIECE_BYTES = 256 * 1024


class StressError(TrafficError):
    """The storage does not answer, or returns other bytes than were written."""


class Speeds(NamedTuple):
    """Payload in bit/s."""

    write_bps: float
    read_bps: float


async def stress(node: str, job: str | None, size_bytes: int, timeout_s: float) -> Speeds:
    """Return how fast a node wrote and read ``size_bytes`` of the file system of a job (None: the only one). Raises
    StressError, with the reason, if bytes are wrong or it takes longer than ``timeout_s``."""
    try:
        return await asyncio.wait_for(_stress(node, job, size_bytes), timeout_s)
    except asyncio.TimeoutError:
        raise StressError(f"{size_bytes} B were not written and read within {timeout_s:g} s") from None
    except StressError:
        raise
    except FabricError as error:
        raise StressError(str(error)) from error


async def _stress(node: str, job: str | None, size_bytes: int) -> Speeds:
    place, host = find_mount_point(job, node)
    data = random.Random(f"{place.seed}/{node}").randbytes(size_bytes)
    async with mounted(place, host) as (files, failed):
        return await _unless(failed, _write_and_read(files, f"/validator-{node}-{os.getpid()}", data))


async def _write_and_read(files: Files, path: str, data: bytes) -> Speeds:
    began_s = time.monotonic()
    file = await files.create(path)
    for begin in range(0, len(data), PIECE_BYTES):
        await files.write(file, begin, data[begin : begin + PIECE_BYTES])
    await files.close(file)
    written_s = time.monotonic()
    file = await files.open(path)
    for begin in range(0, len(data), PIECE_BYTES):
        wanted = data[begin : begin + PIECE_BYTES]
        if await files.read(file, begin, len(wanted), forbids_holes=True) != wanted:
            raise StressError(f"{path}: bytes from {begin} on are not those that were written")
    read_s = time.monotonic()
    await files.close(file)
    await files.remove(path)
    return Speeds(*(8 * len(data) / max(1e-9, took) for took in (written_s - began_s, read_s - written_s)))


async def _unless(failed: asyncio.Future[None], work: Awaitable[T]) -> T:
    """Return what comes of work, unless what carries it fails before."""
    task = asyncio.ensure_future(work)
    try:
        either: set[asyncio.Future[Any]] = {task, failed}
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            failed.result()
        return await task
    finally:
        task.cancel()
