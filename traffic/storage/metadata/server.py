"""A metadata server: answers requests by transactions, merges lengths of the inodes that it owns, collects what was
removed, and ends sessions of clients that are gone. Without sockets: :mod:`.program` is what runs in a host."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, TypeVar

from fabric.errors import TrafficError
from traffic.storage.kv.store import Conflict, Store, TooOld
from traffic.storage.kv.transaction import Transaction, transact
from traffic.storage.metadata import collection, sessions, tree
from traffic.storage.metadata.calls import (
    CarriedOutOnce,
    Hear,
    Join,
    ListNames,
    MakeDirectory,
    Open,
    Remove,
    Rename,
    Request,
    Stat,
    StatInode,
    Sync,
    of_entries,
    of_inode,
)
from traffic.storage.metadata.chunks import Chunks, queried_bytes, remove_file
from traffic.storage.metadata.config import MetadataConfig
from traffic.storage.metadata.errors import FileError
from traffic.storage.metadata.lengths import Synced, needs_query, synchronised
from traffic.storage.metadata.once import Try, carried_out_once
from traffic.storage.metadata.owners import Watch, living, owner_of, require_owner
from traffic.storage.metadata.records import NO_LAYOUT, SESSION_SHARDS, Entry, Inode, Kind, Layout, Session

T = TypeVar("T")
_NUMBERS_AT_ONCE = 4096
_FIRST_CLIENT = 1 << 20
"""Clients of a run's jobs have the numbers below."""
Body = Callable[[Transaction], Awaitable[T]]


class Busy(TrafficError):  # noqa: N818 - what happened
    """What was asked cannot be done now; it may be later."""


class LayoutChoice:
    """How new files are laid over chains: one stripe after the other, from a chain drawn by a seed (3FS:
    ``ChainAllocator``)."""

    def __init__(self, chunk_bytes: int, stripe: int, chains: int, seed: str) -> None:
        self._shape = (chunk_bytes, stripe, chains)
        self.rng = random.Random(seed)
        self._next = self.rng.randrange(chains)

    def next(self) -> Layout:
        """Return the layout of the next file."""
        chunk_bytes, stripe, chains = self._shape
        first, self._next = self._next, (self._next + stripe) % chains
        return Layout(chunk_bytes, stripe, chains, first, self.rng.getrandbits(32))


class Numbers:
    """Numbers for new inodes: many are taken at once."""

    def __init__(self) -> None:
        self._next = self._end = 0
        self._taking = asyncio.Lock()

    async def next(self, server: MetadataServer) -> int:
        """Return one that nobody else has."""
        async with self._taking:
            if self._next == self._end:
                take = partial(tree.next_numbers, key=b"SING/inodes", count=_NUMBERS_AT_ONCE)
                self._next = await server.done(take)
                self._end = self._next + _NUMBERS_AT_ONCE
            number, self._next = self._next, self._next + 1
            return number


class Merger:
    """What waits to be said of the lengths of one server's inodes: while one batch of an inode is under way, the next
    one gathers."""

    def __init__(self, merge: Callable[[int, list[Synced]], Awaitable[Inode]], most: int) -> None:
        self._merge = merge
        self._most = most
        self._waiting: dict[int, list[tuple[Synced, asyncio.Future[Inode]]]] = {}
        self._serving: set[asyncio.Task[None]] = set()

    async def say(self, inode: int, said: Synced) -> Inode:
        """Say something of an inode; return it as it is then. Raises what the merge raises."""
        answer: asyncio.Future[Inode] = asyncio.get_running_loop().create_future()
        is_first = inode not in self._waiting
        self._waiting.setdefault(inode, []).append((said, answer))
        if is_first:  # In a task of its own: whoever is first may be cancelled, and others wait, too.
            task = asyncio.ensure_future(self._serve(inode))
            self._serving.add(task)
            task.add_done_callback(self._serving.discard)
        return await answer

    async def _serve(self, inode: int) -> None:
        while batch := self._waiting[inode][: self._most]:
            try:
                found = await self._merge(inode, [said for said, _ in batch])
            except Exception as error:  # Each that waits gets it.
                for _, answer in batch:
                    if not answer.done():
                        answer.set_exception(error)
            else:
                for _, answer in batch:
                    if not answer.done():
                        answer.set_result(found)
            del self._waiting[inode][: len(batch)]
        del self._waiting[inode]


class MetadataServer:
    """One of several. ``counts``: what it did, by name: requests, ``merged`` of lengths in ``batches``, ``queries`` of
    last chunks, ``conflicts``, ``collected`` files with ``collected_chunks``, ``sessions_ended``."""

    def __init__(self, name: str, store: Store, chunks: Chunks, config: MetadataConfig, layouts: LayoutChoice) -> None:
        self.name = name
        self.config = config
        self.counts: Counter[str] = Counter()
        self.playing = asyncio.Event()
        """Whether a phase plays: between phases the file system stands still."""
        self.store = store
        self.chunks = chunks
        self.layouts = layouts
        self._watch = Watch(name, config.dead_after)
        self._numbers = Numbers()
        self._merger = Merger(self._merge, config.batch)
        self._not_before: dict[int, float] = {}

    async def done(self, body: Body[T]) -> T:
        """Return what a transaction returns. Raises Busy if others were faster each time, and what the body raises."""
        tries = 0

        async def counted(transaction: Transaction) -> T:
            nonlocal tries
            tries += 1
            return await body(transaction)

        try:
            return await transact(self.store, counted, rng=self.layouts.rng)
        except (Conflict, TooOld) as error:
            raise Busy(f"{self.name}: {error}") from error
        finally:
            self.counts["conflicts"] += max(0, tries - 1)

    # Requests.

    async def answer(self, request: Request) -> Any:
        """Return the answer to a request. Raises FileError if it cannot be, NotOwner if another server must be asked,
        Busy if it can be later."""
        self.counts[type(request).__name__] += 1
        answers: dict[type[Any], Callable[[Any], Awaitable[Any]]] = {
            Join: self._join,
            Hear: self._hear,
            Stat: self._stat,
            StatInode: self._stat_inode,
            ListNames: self._list,
            MakeDirectory: self._make_directory,
            Open: self._open,
            Sync: self._sync,
            Remove: self._remove,
            Rename: self._rename,
        }
        return await answers[type(request)](request)

    async def _join(self, _: Join) -> list[Any]:
        take = partial(tree.next_numbers, key=b"SING/clients", count=1, first=_FIRST_CLIENT)
        number = await self.done(take)
        return [number, *await self._hear(Hear(number))]

    async def _hear(self, request: Hear) -> list[str]:
        async def body(transaction: Transaction) -> list[str]:
            sessions.hear(transaction, request.client, time.monotonic())
            return list(await living(transaction, snapshot=True))

        return await self.done(body)

    async def _stat(self, request: Stat) -> list[float]:
        return of_inode(await self.done(partial(tree.stat, path=request.path, base=request.base)))

    async def _stat_inode(self, request: StatInode) -> list[float]:
        inode = await self.done(partial(tree.inode_of, inode=request.inode))
        if inode is None:
            raise FileError("ENOENT", f"inode {request.inode:#x}")
        return of_inode(inode)

    async def _list(self, request: ListNames) -> list[list[Any]]:
        limit = max(1, min(request.limit, tree.MOST_LISTED))
        body = partial(tree.list_names, path=request.path, after=request.after, limit=limit, base=request.base)
        return of_entries(await self.done(body))

    async def _make_directory(self, request: MakeDirectory) -> None:
        if not request.makes_parents:
            number = await self._numbers.next(self)
            await self._once(
                request, partial(tree.make_directory, path=request.path, new_inode=number, base=request.base)
            )
            return
        parts = tree.parts_of(request.path)
        for depth in range(1, len(parts) + 1):
            await self._make_if_missing("/" + "/".join(parts[:depth]))

    async def _make_if_missing(self, path: str) -> None:
        number = await self._numbers.next(self)
        make = partial(tree.make_directory, path=path, new_inode=number, now_s=time.monotonic())
        try:
            await self.done(make)
        except FileError as error:
            if error.name != "EEXIST":
                raise

    async def _open(self, request: Open) -> list[Any]:
        makes = request.creates or request.truncates
        number = await self._numbers.next(self) if makes else 0
        layout = self.layouts.next() if makes else NO_LAYOUT
        now_s = time.monotonic()
        session = Session(0, request.session, request.client, now_s) if request.session else None
        how = tree.Opening(now_s, number, layout, session, request.creates, request.is_exclusive, request.truncates)
        opened = tree.Opened(Inode(0, Kind.FILE))

        async def open_it(transaction: Transaction, now_s: float) -> int:
            nonlocal opened
            opened = await tree.open_file(transaction, request.path, how, request.base)
            return opened.inode.id

        if session is None:
            await self.done(partial(open_it, now_s=now_s))
        elif found := await self._once(request, open_it):
            opened = await self.done(partial(tree.opened_before, inode=found, how=how))
        return [of_inode(opened.inode), opened.must_truncate]

    async def _sync(self, request: Sync) -> list[float]:
        return of_inode(await self._merger.say(request.inode, request.said))

    async def _merge(self, inode: int, said: list[Synced]) -> Inode:
        """Merge what is said of an inode, as its owner."""
        self.counts["batches"] += 1
        self.counts["merged"] += len(said)

        async def body(transaction: Transaction) -> Inode:
            await require_owner(transaction, self.name, inode)
            found = await tree.inode_of(transaction, inode, snapshot=False)
            if found is None:
                raise FileError("ENOENT", f"inode {inode:#x}")
            queried = None
            if needs_query(found.length, said):
                self.counts["queries"] += 1
                queried = await queried_bytes(self.chunks, found.layout.placed(inode, 0))
            return synchronised(transaction, found, said, time.monotonic(), queried)

        return await self.done(body)

    async def _remove(self, request: Remove) -> None:
        path, is_recursive, base = request.path, request.is_recursive, request.base
        await self._once(request, partial(tree.remove, path=path, is_recursive=is_recursive, base=base))

    async def _rename(self, request: Rename) -> None:
        bases = request.old_base, request.new_base
        await self._once(request, partial(tree.rename, old=request.old, new=request.new, bases=bases))

    async def _once(self, request: CarriedOutOnce, work: Callable[..., Awaitable[object]]) -> int | None:
        """Carry out a request, whose work has a time and may return an inode's number, once; return that number if it
        was carried out before."""
        number = request.session if isinstance(request, Open) else request.request
        one = Try(request.client, number, request.is_again)

        async def body(transaction: Transaction) -> int | None:
            nonlocal one
            now_s, this = time.monotonic(), one
            one = one._replace(is_again=True)

            async def carry_out() -> int:
                found = await work(transaction, now_s=now_s)
                return found if isinstance(found, int) else 0

            return await carried_out_once(transaction, this, now_s, carry_out)

        return await self.done(body)

    # What it does in turns.

    async def begin(self) -> None:
        """Be one of the servers."""
        await self.done(tree.format_store)
        await self.say_and_look()

    async def say_and_look(self) -> None:
        """Say that it lives, and see who else does."""

        async def body(transaction: Transaction) -> None:
            self._watch.say(transaction)
            await self._watch.look(transaction, time.monotonic())

        await self.done(body)

    async def _servers(self) -> tuple[str, ...]:
        return await self.done(partial(living, snapshot=True))

    async def collect(self) -> int:
        """Collect what is due of what it owns, some at once; return how many names went."""
        servers = await self._servers()
        now_s = time.monotonic()
        self._not_before = {inode: at_s for inode, at_s in self._not_before.items() if at_s > now_s}

        def is_wanted(inode: int) -> bool:
            return owner_of(inode, servers) == self.name and inode not in self._not_before

        body = partial(collection.due, now_s=now_s, is_wanted=is_wanted, delay_s=self.config.removal.delay)
        entries = await self.done(body)
        return sum(await asyncio.gather(*(self._collect_sound(entry) for entry in entries)))

    async def _collect_sound(self, entry: Entry) -> bool:
        """Collect something; try it again later if that fails."""
        try:
            is_gone = await self._collect_one(entry)
        except TrafficError:
            self.counts["collections_failed"] += 1
            is_gone = False
        if not is_gone and entry.kind is Kind.FILE:
            self._not_before[entry.inode] = time.monotonic() + self.config.removal.retry
        return is_gone

    async def _collect_one(self, entry: Entry) -> bool:
        if entry.kind is Kind.DIRECTORY:
            return await self.done(partial(collection.take_apart, entry=entry, now_s=time.monotonic()))
        inode = await self.done(partial(collection.collectable, entry=entry))
        if inode is None:
            return False
        layout = inode.layout.placed(inode.id, 0)
        removed = await remove_file(self.chunks, layout, collection.CHUNKS_A_REQUEST)
        is_gone = await self.done(partial(collection.forget_file, entry=entry))
        self.counts["collected"] += is_gone
        self.counts["collected_chunks"] += removed
        return is_gone

    async def end_sessions(self) -> int:
        """End sessions of clients that are gone, if this is the first of the servers that live; return how many."""
        if (await self._servers())[:1] != (self.name,):
            return 0
        ended = 0
        silent_s = self.config.sessions.silent_for
        for shard in range(SESSION_SHARDS):
            stale = await self.done(partial(sessions.stale, shard=shard, now_s=time.monotonic(), silent_s=silent_s))
            if stale:
                prune = partial(sessions.prune, sessions=stale, now_s=time.monotonic(), silent_s=silent_s)
                ended += await self.done(prune)
        self.counts["sessions_ended"] += ended
        return ended

    async def forget_done(self) -> None:
        """Forget requests that nobody tries again."""
        while await self.done(partial(collection.forget_done, now_s=time.monotonic())):
            continue

    async def go_on(self) -> None:
        """Do all of it in turns, forever, while a phase plays."""
        config = self.config
        turns = [
            self._turns(config.alive_every, self.say_and_look),
            self._turns(config.removal.every, self.collect),
            self._turns(config.sessions.every, self.end_sessions),
            self._turns(config.sessions.every, self.forget_done),
        ]
        await asyncio.gather(*turns)

    async def _turns(self, every_s: float, work: Callable[[], Awaitable[object]]) -> None:
        while True:
            await self.playing.wait()
            try:
                await work()
            except TrafficError:
                self.counts["turns_failed"] += 1
            await asyncio.sleep(every_s)
