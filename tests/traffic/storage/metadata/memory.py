"""Storage and servers in memory, in time that jumps: metadata servers and clients are those that run in hosts."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any

from fabric.errors import TrafficError
from traffic.storage.chains import ChunkId, Extent, FileLayout
from traffic.storage.kv.sqlite_store import SqliteStore
from traffic.storage.kv.store import Commit, Pair, Range
from traffic.storage.kv.transaction import Transaction
from traffic.storage.metadata.calls import Request, pack_request, pack_value, parse_request, parse_value
from traffic.storage.metadata.chunks import LastChunk
from traffic.storage.metadata.client import MetadataClient, Redirected
from traffic.storage.metadata.config import MetadataConfig
from traffic.storage.metadata.errors import FileError, NotOwner
from traffic.storage.metadata.files import Files
from traffic.storage.metadata.records import (
    GC_ROOT,
    ROOT,
    Entry,
    Inode,
    Kind,
    Session,
    inode_key,
)
from traffic.storage.metadata.server import LayoutChoice, MetadataServer

CHUNK_BYTES, STRIPE, CHAINS = 64, 3, 5


class MemoryChunks:
    """Chunks in a dict; each call takes some time, so that others come in between."""

    def __init__(self, rng: random.Random | None = None) -> None:
        self.held: dict[ChunkId, bytearray] = {}
        self.rng = rng or random.Random(0)
        self.fails = False

    async def _pass(self) -> None:
        await asyncio.sleep(self.rng.uniform(0.001, 0.01))
        if self.fails:
            raise TrafficError("storage is out of reach")

    async def write(self, extent: Extent, data: memoryview | None) -> None:
        await self._pass()
        data = memoryview(b"m" * extent.length) if data is None else data
        chunk = self.held.setdefault(extent.chunk, bytearray())
        chunk.extend(bytes(max(0, extent.offset - len(chunk))))
        chunk[extent.offset : extent.offset + len(data)] = data

    async def read(self, extents: Sequence[Extent]) -> list[bytes]:
        await self._pass()
        return [bytes(self.held.get(one.chunk, b"")[one.offset : one.offset + one.length]) for one in extents]

    async def cut(self, chunk: ChunkId, chain: int, size_bytes: int) -> None:
        await self._pass()
        held = self.held.setdefault(chunk, bytearray())
        del held[size_bytes:]
        held.extend(bytes(size_bytes - len(held)))

    async def remove(self, chunks: Sequence[tuple[ChunkId, int]]) -> None:
        await self._pass()
        for chunk, _ in chunks:
            self.held.pop(chunk, None)

    async def last_chunks(self, layout: FileLayout) -> list[LastChunk]:
        await self._pass()
        return [LastChunk(one.index, len(data)) for one, data in self.held.items() if one.file == layout.file]

    def ends(self, layout: FileLayout) -> int:
        """Where the last byte of a file is."""
        found = (
            one.index * layout.chunk_bytes + len(data) for one, data in self.held.items() if one.file == layout.file
        )
        return max(found, default=0)


class SlowStore:
    """A store whose calls take some time, so that transactions run into each other."""

    def __init__(self, store: SqliteStore, rng: random.Random) -> None:
        self.store = store
        self.rng = rng
        self.is_cut = False

    async def _pass(self) -> None:
        await asyncio.sleep(self.rng.uniform(0.001, 0.03))
        if self.is_cut:
            raise TrafficError("the store is out of reach")

    async def read_version(self) -> int:
        await self._pass()
        return await self.store.read_version()

    async def get(self, key: bytes, version: int) -> bytes | None:
        await self._pass()
        return await self.store.get(key, version)

    async def range(self, range_: Range, version: int, limit: int, reverse: bool = False) -> list[Pair]:
        await self._pass()
        return await self.store.range(range_, version, limit, reverse)

    async def commit(self, commit: Commit) -> int:
        await self._pass()
        found = await self.store.commit(commit)
        await self._pass()
        return found


@dataclass
class FileSystem:
    """Servers ``m0``, ``m1``, ... and clients over one store and one storage. ``dead``: servers that do not answer."""

    servers: int = 2
    seed: int = 0
    config: MetadataConfig = field(default_factory=MetadataConfig)
    dead: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)
        self.database = SqliteStore()
        self.chunks = MemoryChunks(self.rng)
        self.all: dict[str, MetadataServer] = {}
        self.lost_answers = 0.0
        self._tasks: list[asyncio.Task[Any]] = []
        self._stores: dict[str, SlowStore] = {}
        self.beats: dict[int, asyncio.Task[Any]] = {}
        """What says of clients that they live, by number."""

    async def start(self) -> None:
        """Begin."""
        for number in range(self.servers):
            await self.start_server(f"m{number}")

    async def start_server(self, name: str) -> None:
        """Begin one server, anew if it was killed."""
        self.dead.discard(name)
        self._stores[name] = SlowStore(self.database, self.rng)
        layouts = LayoutChoice(CHUNK_BYTES, STRIPE, CHAINS, f"{self.seed}/{name}")
        server = MetadataServer(name, self._stores[name], self.chunks, self.config, layouts)
        await server.begin()
        server.playing.set()
        self.all[name] = server
        self.spawn(server.go_on())

    def kill_server(self, name: str) -> None:
        """Let a server neither answer nor write any more."""
        self.dead.add(name)
        self._stores[name].is_cut = True

    def spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Do something beside."""
        self._tasks.append(asyncio.ensure_future(work))
        return self._tasks[-1]

    async def client(self, number: int) -> Files:
        """Return a client that says that it lives."""
        metadata = MetadataClient(number, [f"m{one}" for one in range(self.servers)], self.ask, self.config, self.rng)
        await metadata.say_alive()
        files = Files(metadata, self.chunks)
        self.beats[number] = self.spawn(metadata.go_on())
        return files

    async def ask(self, server: str, request: Request, timeout_s: float) -> Any:
        """Ask a server; some answers are lost."""
        await asyncio.sleep(self.rng.uniform(0.0001, 0.001))
        if server in self.dead:
            await asyncio.sleep(timeout_s)
            raise Redirected(f"{server} is dead")
        try:
            answer = await self.all[server].answer(parse_request(pack_request(request)))
        except FileError:
            raise
        except NotOwner as error:
            raise Redirected(str(error), error.owner) from error
        except TrafficError as error:
            raise Redirected(str(error)) from error
        if server in self.dead or self.rng.random() < self.lost_answers:
            await asyncio.sleep(timeout_s)
            raise Redirected(f"{server}: the answer was lost")
        return parse_value(pack_value(answer))

    # What is so.

    async def tree(self) -> dict[str, Inode]:
        """Return all paths and their inodes. Raises AssertionError if something is reached twice, or has no inode."""
        found: dict[str, Inode] = {}
        seen: set[int] = set()

        async def walk(path: str, inode: Inode) -> None:
            assert inode.id not in seen, f"{path}: inode {inode.id} has two names"
            seen.add(inode.id)
            found[path or "/"] = inode
            if inode.kind is Kind.DIRECTORY:
                for entry in entries.get(inode.id, []):
                    assert entry.inode in inodes, f"{path}/{entry.name} has no inode"
                    child = inodes[entry.inode]
                    assert child.kind is entry.kind
                    if child.kind is Kind.DIRECTORY:
                        assert child.parent == inode.id, f"{path}/{entry.name} has parent {child.parent}"
                    await walk(f"{path}/{entry.name}", child)

        inodes, entries = await self.records()
        await walk("", inodes[ROOT])
        removed = {entry.inode for entry in entries.get(GC_ROOT, [])}
        below = self._below(removed, entries)
        orphans = set(inodes) - seen - below - {GC_ROOT}
        assert not orphans, f"inodes without a name that nobody collects: {orphans}"
        assert not seen & below, "something has a name and is to be collected"
        return found

    @staticmethod
    def _below(removed: set[int], entries: dict[int, list[Entry]]) -> set[int]:
        found, todo = set(), list(removed)
        while todo:
            inode = todo.pop()
            assert inode not in found, f"inode {inode} is collected twice"
            found.add(inode)
            todo += [entry.inode for entry in entries.get(inode, [])]
        return found

    async def records(self) -> tuple[dict[int, Inode], dict[int, list[Entry]]]:
        """Return all inodes by number and all entries by directory."""
        inodes, entries = {}, dict[int, list[Entry]]()
        for key, value in await self._pairs(b"INOD"):
            inode = Inode.parse(value)
            assert inode_key(inode.id) == key
            inodes[inode.id] = inode
        for key, value in await self._pairs(b"DENT"):
            entry = Entry.parse(key, value)
            entries.setdefault(entry.parent, []).append(entry)
        return inodes, entries

    async def sessions(self) -> list[Session]:
        """Return all sessions."""
        return [Session.parse(value) for _, value in await self._pairs(b"INOS")]

    async def _pairs(self, prefix: bytes) -> list[Pair]:
        transaction = Transaction(self.database)
        return await transaction.range(Range(prefix, prefix + b"\xff" * 300), snapshot=True)

    async def require_sound(self) -> dict[str, Inode]:
        """Raise AssertionError if an invariant does not hold; return all paths."""
        found = await self.tree()
        inodes, _ = await self.records()
        without = {chunk for chunk in self.chunks.held if chunk.file not in inodes}
        assert not without, f"chunks without an inode: {without}"
        return found

    async def until(self, holds: Callable[[], Coroutine[Any, Any, bool]], patience_s: float = 5000) -> None:
        """Wait until something is so."""
        ends_s = time.monotonic() + patience_s
        while not await holds():
            assert time.monotonic() < ends_s, f"not so within {patience_s} s"
            await asyncio.sleep(1)

    async def until_collected(self) -> None:
        """Wait until nothing is left to collect."""

        async def is_empty() -> bool:
            return not (await self.records())[1].get(GC_ROOT)

        await self.until(is_empty)
