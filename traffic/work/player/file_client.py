"""A rank's reads and writes of files: a client of the fabric's storage, in a thread with an event loop of its own."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any

from fabric.errors import TrafficError
from traffic.stepped_job import START_TIMEOUT_S
from traffic.storage.client.library import Operation, StorageClient
from traffic.storage.wire import event_loop
from traffic.storage.wire.calls import Tasks
from traffic.work.files import FileAccess
from traffic.work.operations import FileRead, FileWrite
from traffic.work.player.links import Event, Events

WRITES_AT_ONCE = 4
"""Chunks of a write that are in flight at once, as checkpoints of storage jobs have by default."""
_CLOSE_TIMEOUT_S = 5.0


class FileClient:
    """Carries out a rank's operations on files, and tells of their ends by events. Raises TrafficError if the services
    cannot be reached."""

    def __init__(self, name: str, access: FileAccess, events: Events) -> None:
        self._name, self._access, self._events = name, access, events
        self._connected: Future[None] = Future()
        self._stop: asyncio.Event | None = None
        self._client: StorageClient | None = None
        self._tasks: Tasks | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        try:
            self._connected.result(START_TIMEOUT_S)
        except TimeoutError as error:
            raise TrafficError(f"{name}: no link to the storage services within {START_TIMEOUT_S:g} s") from error

    def _run(self) -> None:
        try:
            event_loop.run(self._serve())
        except BaseException as error:
            if not self._connected.done():
                self._connected.set_exception(error)
            else:
                self._tell(-1, error)

    async def _serve(self) -> None:
        access = self._access
        self._stop = asyncio.Event()
        self._tasks = tasks = Tasks()
        client = StorageClient(
            access.host, access.number, access.table, access.config, tasks, access.transport, access.seed
        )
        holding = {
            node
            for layout in access.layouts.values()
            for chain in layout.chains
            for node in access.table.chains[chain].nodes
        }
        await client.connect(access.services, access.source, holding)
        self._client = client
        self._connected.set_result(None)
        stopping: asyncio.Future[Any] = tasks.loop.create_task(self._stop.wait())
        failed: asyncio.Future[Any] = tasks.failed
        await asyncio.wait([stopping, failed], return_when=asyncio.FIRST_COMPLETED)
        if failed.done():
            await failed

    def start(self, place: int, operation: FileRead | FileWrite) -> bool:
        """Begin an operation; return whether it has ended already, which has nothing to do."""
        if not operation.size_bytes:
            return True
        assert self._tasks is not None, "connected"
        carry_out = self._read(operation) if isinstance(operation, FileRead) else self._write(operation)
        asyncio.run_coroutine_threadsafe(self._told(place, carry_out), self._tasks.loop)
        return False

    async def _told(self, place: int, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except Exception as error:
            self._tell(place, error)
        else:
            self._tell(place)

    def _tell(self, place: int, error: BaseException | None = None) -> None:
        self._events.put(Event(place, time.monotonic(), error))

    async def _read(self, operation: FileRead) -> None:
        assert self._client is not None
        layout = self._access.layouts[operation.path]
        await self._client.read_chunks(layout.locate(operation.offset_bytes, operation.size_bytes))

    async def _write(self, operation: FileWrite) -> None:
        client = self._client
        assert client is not None
        left = iter(self._access.layouts[operation.path].locate(operation.offset_bytes, operation.size_bytes))

        async def writer() -> None:
            for extent in left:
                await client.write_chunk(extent)

        await asyncio.gather(*(writer() for _ in range(WRITES_AT_ONCE)))

    def taken_operations(self) -> list[Operation]:
        """Return what the client did since it was last asked, each request by itself."""
        if self._client is None:
            return []
        found, self._client.operations[:] = list(self._client.operations), []
        return found

    def close(self) -> None:
        """End the client."""
        if self._stop is not None and self._tasks is not None and self._thread.is_alive():
            self._tasks.loop.call_soon_threadsafe(self._stop.set)
            self._thread.join(_CLOSE_TIMEOUT_S)
