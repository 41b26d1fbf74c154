"""A client's calls to metadata servers, tried again until one answers."""

from __future__ import annotations

import asyncio
import itertools
import random
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, Protocol

from fabric.errors import TrafficError
from traffic.storage.metadata import calls
from traffic.storage.metadata.calls import CarriedOutOnce, Request, to_entries, to_inode
from traffic.storage.metadata.config import MetadataConfig
from traffic.storage.metadata.errors import FileError
from traffic.storage.metadata.owners import owner_of
from traffic.storage.metadata.records import ROOT, Entry, Inode, Length
from traffic.storage.metadata.tree import MOST_LISTED

_PAUSE_FIRST_S, _PAUSE_LONGEST_S = 0.01, 1.0


class OutOfReach(TrafficError):  # noqa: N818 - what happened
    """No metadata server answered a request in time."""


class Redirected(TrafficError):  # noqa: N818
    """A server does not do what it is asked, now: another may, or the same one later. ``to``: which; empty: any."""

    def __init__(self, text: str, to: str = "") -> None:
        self.to = to
        super().__init__(text)


class Ask(Protocol):
    """Asks one server by its name."""

    async def __call__(self, server: str, request: Request, timeout_s: float) -> Any:
        """Return the answer. Raises FileError as the server does, Redirected if it does not answer."""


class Call(NamedTuple):
    """A request as a client saw it; times are ``time.monotonic()``. ``name``: of the request, with ``_failed`` if it
    could not be, whatever the error."""

    name: str
    server: str
    started_s: float
    ended_s: float
    retries: int


class MetadataClient:
    """The metadata servers, as a client has them. ``number``: its own among all clients, below 2^32.

    Every method raises FileError if what is asked cannot be, OutOfReach if nobody answers in time.
    """

    def __init__(
        self, number: int, servers: Sequence[str], ask: Ask, config: MetadataConfig, rng: random.Random
    ) -> None:
        self.number = number
        self.config = config
        self.retries = 0
        """Tries of its calls that did not succeed."""
        self.on_call: Callable[[Call], None] = lambda call: None
        self._known = tuple(servers)
        self._living = tuple(servers)
        self._ask = ask
        self._rng = rng
        self._server = servers[rng.randrange(len(servers))]
        self._requests = itertools.count(1)
        self._seen: dict[str, tuple[float, Inode]] = {}

    def next_number(self) -> int:
        """Return a number that no other request or session of any client has."""
        return self.number << 32 | next(self._requests)

    async def join(self) -> None:
        """Ask for a number of its own."""
        self.number, *servers = await self._asked(calls.Join())
        self._hear(servers)

    async def say_alive(self) -> None:
        """Say that it lives."""
        self._hear(await self._asked(calls.Hear(self.number)))

    def _hear(self, servers: Sequence[str]) -> None:
        self._living = tuple(name for name in servers if name in self._known) or self._known

    async def go_on(self, playing: asyncio.Event | None = None) -> None:
        """Say so in turns, forever, while a phase plays, if that is said."""
        while True:
            if playing is not None:
                await playing.wait()
            with suppress(OutOfReach):  # The next turn may fare better.
                await self.say_alive()
            await asyncio.sleep(self.config.sessions.heard_every)

    # What can be asked.

    async def stat(self, path: str) -> Inode:
        """Return the inode at a path, as it is or was within ``lookup_caching``."""
        if (seen := self._fresh(path)) is not None:
            return seen
        inode = to_inode(await self._at(path, lambda base, rest: calls.Stat(rest, base)))
        self._see(path, inode)
        return inode

    async def stat_inode(self, inode: int) -> Inode:
        """Return an inode."""
        return to_inode(await self._asked(calls.StatInode(inode)))

    async def list_names(self, path: str) -> list[Entry]:
        """Return all entries of a directory, by name; those that come or go meanwhile may be among them or not."""
        found: list[Entry] = []
        while True:
            after = found[-1].name if found else ""
            page = to_entries(await self._asked(calls.ListNames(path, after, MOST_LISTED)))
            found += page
            if len(page) < MOST_LISTED:
                return found

    async def make_directory(self, path: str, makes_parents: bool = False) -> None:
        """Make a directory."""
        client, number = self.number, self.next_number()
        if makes_parents:
            await self._asked(calls.MakeDirectory(client, number, path, makes_parents))
        else:
            await self._at(path, lambda base, rest: calls.MakeDirectory(client, number, rest, False, base))

    async def open(
        self, path: str, *, writes: bool, creates: bool = False, is_exclusive: bool = False, truncates: bool = False
    ) -> tuple[Inode, int, bool]:
        """Open a file; return its inode, the session (0: to read) and whether it must be truncated by the caller."""
        client, session = self.number, self.next_number() if writes else 0

        def request(base: int, rest: str) -> Request:
            return calls.Open(client, session, rest, creates, is_exclusive, truncates, base)

        value, must_truncate = await self._at(path, request)
        inode = to_inode(value)
        self._seen.pop(path, None)
        if not writes:  # One that is written changes.
            self._see(path, inode)
        return inode, session, must_truncate

    async def sync(self, inode: int, hint: Length | None, is_truncated: bool = False, session: int = 0) -> Inode | None:
        """Say what is known of a file's length, and end a session unless that is 0; return the inode. None: an earlier
        try has ended the session, and the file, which was removed, has been collected since."""
        size_bytes, version = (-1, 0) if hint is None else hint
        request = calls.Sync(self.number, inode, size_bytes, version, is_truncated, session)
        try:
            return to_inode(await self._asked(request, inode))
        except FileError as error:
            if session and error.name == "ENOENT" and error.retries:
                return None
            raise

    async def remove(self, path: str, is_recursive: bool = False) -> None:
        """Remove a file or a directory."""
        client, number = self.number, self.next_number()
        self._forget(path)
        await self._at(path, lambda base, rest: calls.Remove(client, number, rest, is_recursive, base))

    async def rename(self, old: str, new: str) -> None:
        """Give what is at a path another one."""
        self._forget(old)
        self._forget(new)
        await self._asked(calls.Rename(self.number, self.next_number(), old, new))

    # What it has seen.

    def _fresh(self, path: str) -> Inode | None:
        seen = self._seen.get(path)
        return seen[1] if seen is not None and seen[0] > time.monotonic() else None

    def _see(self, path: str, inode: Inode) -> None:
        if self.config.lookup_caching:
            self._seen[path] = (time.monotonic() + self.config.lookup_caching, inode)

    def _forget(self, path: str) -> None:
        """What it has seen of a path, and of what is below it, holds no longer."""
        self._seen.pop(path, None)
        for seen in [seen for seen in self._seen if seen.startswith(path + "/")]:
            del self._seen[seen]

    async def _at(self, path: str, request: Callable[[int, str], Request]) -> Any:
        """Ask for something at a path: from its directory on, if it may keep what it has seen of that (as a kernel does
        in front of 3FS's FUSE client), else from the root on. What it has seen may not be so any more: then from the
        root on, again."""
        above, _, name = path.rpartition("/")
        if not self.config.lookup_caching or not above or not name:
            return await self._asked(request(ROOT, path))
        try:
            directory = await self.stat(above)
            return await self._asked(request(directory.id, f"/{name}"))
        except FileError as error:
            self._forget(above)
            if error.name not in ("ENOENT", "ENOTDIR"):
                raise FileError(error.name, path) from error
            return await self._asked(request(ROOT, path))

    # How it is asked.

    async def _asked(self, request: Request, inode: int | None = None) -> Any:
        """Return what a server answers: the owner of an inode, if one is named; else the one that answered last."""
        started, retries, pause_s = time.monotonic(), 0, _PAUSE_FIRST_S
        server = self._server if inode is None else owner_of(inode, self._living)
        name = type(request).__name__
        while True:
            try:
                answer = await self._ask(server, request, self.config.call_timeout)
            except FileError as error:
                error.retries = retries
                self.on_call(Call(f"{name}_failed", server, started, time.monotonic(), retries))
                raise
            except Redirected as error:
                if time.monotonic() + pause_s > started + self.config.operation_timeout:
                    self.on_call(Call(f"{name}_failed", server, started, time.monotonic(), retries))
                    what = f"{name} was not answered within {self.config.operation_timeout:g} s; last: {error}"
                    raise OutOfReach(f"metadata: {what}") from error
                server = error.to if error.to in self._known else self._another(server)
                await asyncio.sleep(pause_s * self._rng.uniform(0.5, 1.0))
                self.retries += 1
                retries, pause_s = retries + 1, min(2 * pause_s, _PAUSE_LONGEST_S)
                if isinstance(request, CarriedOutOnce):
                    request = request._replace(is_again=True)
                continue
            if inode is None:
                self._server = server
            self.on_call(Call(name, server, started, time.monotonic(), retries))
            return answer

    def _another(self, server: str) -> str:
        return self._known[(self._known.index(server) + 1) % len(self._known)]
