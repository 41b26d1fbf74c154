"""A client's load, against a client that only says what it is asked."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from traffic.storage.chains import Extent, Striping
from traffic.storage.client.library import GaveUp, StorageClient
from traffic.storage.client.workloads import FIRST_CHECKPOINT_FILE, ClientLoad
from traffic.storage.orders import ClientArguments, LoadPart
from traffic.storage.wire.calls import Tasks
from traffic.transport.connection import Transport

from .conftest import config_of, run

CHUNKS = 4


class FailingClient:
    """In place of a client: gives the writes up whose count is among ``failing``, ends the load after the last."""

    def __init__(self, failing: set[int], last: int) -> None:
        self.files: list[int] = []
        self.failing = failing
        self.last = last
        self.done = asyncio.Event()

    async def write_chunk(self, extent: Extent) -> None:
        self.files.append(extent.chunk.file)
        count = len(self.files)
        if count >= self.last:
            self.done.set()
            await asyncio.sleep(0.01)
        await asyncio.sleep(0)
        if count in self.failing:
            raise GaveUp("out of reach")


def _arguments() -> ClientArguments:
    config = config_of({"checkpoint": {"share": 1.0, "size": CHUNKS << 16, "depth": 2}, "chunk_size": 1 << 16})
    striping = Striping(1 << 16, 16, 48, 1)
    part = LoadPart(writes=True)
    rest: Any = {"services": {}, "table": None, "striping": striping, "dataset": (), "part": part}
    return ClientArguments(0, "", config=config, seed=1, transport=cast(Transport, None), **rest)


def test_a_checkpoint_never_goes_over_the_only_whole_one() -> None:
    async def scene() -> list[int]:
        # The third checkpoint gets a hole, and so does the second try of it.
        client = FailingClient({2 * CHUNKS + 1, 3 * CHUNKS + 3}, 6 * CHUNKS)
        tasks = Tasks()
        load = ClientLoad(cast(StorageClient, client), _arguments(), tasks)
        load.begin()
        await client.done.wait()
        await load.end()
        assert not tasks.failed.done()
        return client.files[: 6 * CHUNKS]

    files = run(scene())
    first, second = FIRST_CHECKPOINT_FILE, FIRST_CHECKPOINT_FILE + 1
    assert files[::CHUNKS] == [first, second, first, first, first, second]
    assert all(files[at] == files[at - at % CHUNKS] for at in range(len(files)))
