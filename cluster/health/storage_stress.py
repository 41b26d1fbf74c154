"""A program that writes a file of random bytes to the run's storage, reads it back, and compares.

``python -m cluster.health.storage_stress NODE JOB SIZE`` prints what it measured, or ``why`` not, as JSON.
"""

from __future__ import annotations

import json
import os
import random
import sys
import time

from cluster.health.check_program import CheckError
from cluster.health.storage_check import Speeds
from fabric.errors import FabricError
from traffic.storage.metadata.files import Files
from traffic.storage.metadata.mounting import find_mount_point, mounted
from traffic.storage.wire import event_loop
from traffic.storage.wire.calls import unless

PIECE_BYTES = 256 * 1024


def main(node: str, job: str, size_bytes: int) -> None:
    """Be the program."""
    found: dict[str, object] = {}

    async def be() -> None:
        try:
            found.update((await _stress(node, job or None, size_bytes))._asdict())
        except FabricError as error:
            found["why"] = str(error)

    event_loop.run(be())
    print(json.dumps(found), flush=True)


async def _stress(node: str, job: str | None, size_bytes: int) -> Speeds:
    place, host = find_mount_point(job, node)
    data = random.Random(f"{place.seed}/{node}").randbytes(size_bytes)
    async with mounted(place, host) as (files, failed):
        return await unless(failed, _write_and_read(files, f"/validator-{node}-{os.getpid()}", data))


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
            raise CheckError(f"{path}: bytes from {begin} on are not those that were written")
    read_s = time.monotonic()
    await files.close(file)
    await files.remove(path)
    return Speeds(*(8 * len(data) / max(1e-9, took) for took in (written_s - began_s, read_s - written_s)))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
