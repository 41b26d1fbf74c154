"""What processes of a load do with files: fio's reads and writes, mdtest's phases. The run orders step after step, so a
step begins once all processes have ended the one before, as with mdtest's barriers."""

from __future__ import annotations

import asyncio
import itertools
import random
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import NamedTuple

from fabric.errors import TrafficError
from traffic.storage.client.library import ChainLost, GaveUp
from traffic.storage.metadata.client import OutOfReach
from traffic.storage.metadata.errors import FileError
from traffic.storage.metadata.files import Files, OpenFile
from traffic.storage.metadata.load_config import FioConfig, MdtestConfig, Phase


class Done(NamedTuple):
    """An operation of a load; times are ``time.monotonic()``. One that failed has ``_failed`` in its name, and no
    bytes."""

    operation: str
    server: str
    size_bytes: int
    started_s: float
    ended_s: float
    retries: int


class StepResult(NamedTuple):
    """What one process did in a step, and from when to when, without items that failed."""

    items: int
    size_bytes: int
    started_s: float
    ended_s: float


class LoadProcess:
    """One process of a load. ``rank``: its number among all ``ranks`` of them; ``top``: the folder of its job;
    ``stopping``: it ends what it does, and begins nothing more."""

    def __init__(self, files: Files, rank: int, ranks: int, top: str, seed: int) -> None:
        self.files = files
        self.rank = rank
        self.ranks = ranks
        self.top = top
        self.done: list[Done] = []
        self.stopping = asyncio.Event()
        self.rng = random.Random(f"{seed}/load/{rank}")
        self.plays = 0

    def begin(self, step: str, iteration: int, steps: Sequence[str]) -> None:
        """Begin a step of so many. The first one begins to play anew, with names of its own: what an earlier time has
        left is in nobody's way, and each begins with files that are not there."""
        self.plays += (step, iteration) == (steps[0], 0)

    def named(self, what: str, number: int) -> str:
        """Return the path of something of this time that it plays. All are as deep: a server looks up name by name."""
        return f"{self.top}/{what}.{number}" if self.plays <= 1 else f"{self.top}/{what}.{self.plays}.{number}"

    async def counted(self, operation: str, work: Callable[[], Awaitable[int]]) -> int | None:
        """Do something and note it; return how many bytes it moved, None if it failed, which is noted."""
        metadata = self.files.metadata
        started, before = time.monotonic(), metadata.retries
        try:
            size_bytes = await work()
        except TrafficError as error:
            self._note(f"{operation}_failed", 0, started, metadata.retries - before)
            if not isinstance(error, FileError) and not _is_of_the_network(error):
                raise
            return None
        self._note(operation, size_bytes, started, metadata.retries - before)
        return size_bytes

    def _note(self, operation: str, size_bytes: int, started: float, retries: int) -> None:
        self.done.append(Done(operation, "", size_bytes, started, time.monotonic(), retries))

    async def step(self, work: Callable[[], Awaitable[tuple[int, int]]]) -> StepResult:
        """Return what a step came to."""
        started = time.monotonic()
        items, size_bytes = await work()
        return StepResult(items, size_bytes, started, time.monotonic())


def _is_of_the_network(error: TrafficError) -> bool:
    """Return whether an operation failed since servers did not answer in time; else it is a bug, or wrong data."""
    return isinstance(error, GaveUp | OutOfReach | ChainLost)


# fio.


def fio_steps(config: FioConfig) -> tuple[str, ...]:
    """Return the steps of a load like fio's: files that are read are laid out before."""
    return ("layout", "fio") if config.rw.reads else ("fio",)


class FioProcess(LoadProcess):
    """A job of fio: a file of its own, ``iodepth`` IOs under way."""

    def __init__(self, files: Files, rank: int, ranks: int, top: str, seed: int, config: FioConfig) -> None:
        super().__init__(files, rank, ranks, top, seed)
        self.config = config

    async def carry_out(self, step: str, iteration: int) -> StepResult:
        """Carry out a step."""
        self.begin(step, iteration, fio_steps(self.config))
        work = self._lay_out if step == "layout" else self._move
        return await self.step(work)

    @property
    def path(self) -> str:
        """Its file."""
        return self.named("fio", self.rank)

    async def _lay_out(self) -> tuple[int, int]:
        await self.files.mkdir(self.top, makes_parents=True)
        file = await self.files.open(self.path, writes=True, creates=True, truncates=True)
        await self._side_by_side(lambda offset: self._write(file, offset, "layout"), self._in_turn(None))
        await self.files.close(file)
        return 0, 0

    async def _move(self) -> tuple[int, int]:
        config = self.config
        if not config.rw.reads:
            await self.files.mkdir(self.top, makes_parents=True)
        file = await self.files.open(self.path, writes=config.rw.writes, creates=config.rw.writes)
        writes = itertools.count(1)

        async def one(offset: int) -> int | None:
            if config.rw.reads and (not config.rw.writes or self.rng.randrange(100) < config.rwmixread):
                moved = await self.counted("read", lambda: self._read(file, offset))
            else:
                moved = await self._write(file, offset, "write")
                if config.fsync and next(writes) % config.fsync == 0:
                    await self.counted("fsync", lambda: self._fsync(file))
            if config.thinktime:
                await asyncio.sleep(config.thinktime)
            return moved

        found = await self._side_by_side(one, self._in_turn(config.runtime))
        await self.files.close(file)
        return found

    def _in_turn(self, runtime_s: float | None) -> Iterator[int]:
        """Yield where IOs begin: once over the file, or again and again for a time. The last place is shorter if ``bs``
        is not a part of ``size``."""
        config = self.config
        places = -(-config.size // config.bs)
        until_s = None if runtime_s is None else time.monotonic() + runtime_s
        for number in itertools.count():
            is_over = number >= places if until_s is None else time.monotonic() >= until_s
            if is_over or self.stopping.is_set():
                return
            yield (self.rng.randrange(places) if config.rw.is_random else number % places) * config.bs

    async def _side_by_side(
        self, one: Callable[[int], Awaitable[int | None]], offsets: Iterator[int]
    ) -> tuple[int, int]:
        items = size_bytes = 0

        async def worker() -> None:
            nonlocal items, size_bytes
            for offset in offsets:
                moved = await one(offset)
                if moved is not None:
                    items, size_bytes = items + 1, size_bytes + moved

        await asyncio.gather(*(worker() for _ in range(self.config.iodepth)))
        return items, size_bytes

    def _size_at(self, offset: int) -> int:
        return min(self.config.bs, self.config.size - offset)

    async def _read(self, file: OpenFile, offset: int) -> int:
        found = await self.files.read(file, offset, self._size_at(offset))
        if len(found) != self._size_at(offset):
            raise TrafficError(f"{file.path}: {len(found)} B came at {offset}, {self._size_at(offset)} were written")
        return len(found)

    async def _write(self, file: OpenFile, offset: int, operation: str) -> int | None:
        return await self.counted(operation, lambda: self.files.write_made(file, offset, self._size_at(offset)))

    async def _fsync(self, file: OpenFile) -> int:
        await self.files.fsync(file)
        return 0


# mdtest.

_NO_STEP = ("directory", Phase.READ)


def mdtest_steps(config: MdtestConfig) -> tuple[str, ...]:
    """Return the steps of one iteration of a load like mdtest's."""
    files = tuple(f"file_{phase.value}" for phase in config.phases)
    if not config.write:
        files = tuple(step for step in files if step != "file_read")
    directories = tuple(f"directory_{phase.value}" for phase in config.phases if phase is not Phase.READ)
    ends = ("tree_remove",) if Phase.REMOVE in config.phases else ()
    return ("tree_create", *(directories if config.directories else ()), *files, *ends)


FILE_STEPS, DIRECTORY_STEPS = (
    {f"{kind}_{phase.value}": (kind, phase.value) for phase in Phase if (kind, phase) != _NO_STEP}
    for kind in ("file", "directory")
)
"""Kind of item and phase of each of mdtest's steps with items."""
_TREE_STEPS = ("tree_create", "tree_remove")
FILE_STEP_NAMES = (*FILE_STEPS, *DIRECTORY_STEPS, *_TREE_STEPS)
"""What mdtest's steps can be called, those that say the most of a load first."""


def tree_of(config: MdtestConfig) -> list[str]:
    """Return the directories of a tree below its topmost one, whose path is empty, each after the one that it is in."""
    found = [""]
    level = [""]
    for _ in range(config.depth):
        level = [f"{above}/d{number}" for above in level for number in range(config.branch)]
        found += level
    return found


class MdtestProcess(LoadProcess):
    """A process of mdtest, with files of its own."""

    def __init__(self, files: Files, rank: int, ranks: int, top: str, seed: int, config: MdtestConfig) -> None:
        super().__init__(files, rank, ranks, top, seed)
        self.config = config
        self._tree = tree_of(config)

    async def carry_out(self, step: str, iteration: int) -> StepResult:
        """Carry out a step. Those that make and remove trees are of the first process, if there is one tree for all."""
        self.begin(step, iteration, mdtest_steps(self.config))
        top = self.named("mdtest", iteration)
        if step in _TREE_STEPS:
            return await self.step(lambda: self._tree_step(step, top))
        kind, phase = (FILE_STEPS | DIRECTORY_STEPS)[step]
        is_others = phase in ("stat", "read")
        rank = (self.rank + self.config.shift) % self.ranks if is_others else self.rank
        return await self.step(lambda: self._each(kind, phase, top, rank))

    def _root(self, top: str, rank: int) -> str:
        return f"{top}/p{rank}" if self.config.unique else f"{top}/shared"

    async def _tree_step(self, step: str, top: str) -> tuple[int, int]:
        if self.rank and not self.config.unique:
            return 0, 0
        root, made = self._root(top, self.rank), 0
        if step == "tree_create":
            await self.files.mkdir(root, makes_parents=True)
        for directory in self._tree[1:] if step == "tree_create" else self._tree[::-1]:
            path = f"{root}{directory}"
            work = self._make(path) if step == "tree_create" else self._remove(path)
            made += await self.counted(step, work) is not None
        return made, 0

    async def _each(self, kind: str, phase: str, top: str, rank: int) -> tuple[int, int]:
        items = size_bytes = 0
        for path in self._paths(kind, self._root(top, rank), rank):
            if self.stopping.is_set():
                break
            moved = await self.counted(f"{kind}_{phase}", self._work(kind, phase, path))
            if moved is not None:
                items, size_bytes = items + 1, size_bytes + moved
        return items, size_bytes

    def _paths(self, kind: str, root: str, rank: int) -> Iterator[str]:
        """Yield the paths of a process's items: as many in each directory, the rest in the first ones."""
        each, rest = divmod(self.config.files, len(self._tree))
        for place, directory in enumerate(self._tree):
            for number in range(each + (place < rest)):
                yield f"{root}{directory}/{kind}.{rank}.{number}"

    def _work(self, kind: str, phase: str, path: str) -> Callable[[], Awaitable[int]]:
        if phase == "create":
            return self._make(path) if kind == "directory" else lambda: self._create(path)
        if phase == "read":
            return lambda: self._read(path)
        return self._remove(path) if phase == "remove" else lambda: self._stat(path)

    def _make(self, path: str) -> Callable[[], Awaitable[int]]:
        async def work() -> int:
            await self.files.mkdir(path)
            return 0

        return work

    def _remove(self, path: str) -> Callable[[], Awaitable[int]]:
        async def work() -> int:
            await self.files.remove(path)
            return 0

        return work

    async def _stat(self, path: str) -> int:
        await self.files.stat(path)
        return 0

    async def _create(self, path: str) -> int:
        file = await self.files.create(path)
        written = await self.files.write_made(file, 0, self.config.write or 0)
        if self.config.sync:
            await self.files.fsync(file)
        await self.files.close(file)
        return written

    async def _read(self, path: str) -> int:
        file = await self.files.open(path)
        found = await self.files.read(file, 0, self.config.write or 0)
        await self.files.close(file)
        if len(found) != (self.config.write or 0):
            raise TrafficError(f"{path}: {len(found)} B came, {self.config.write} were written")
        return len(found)


def together(results: Sequence[StepResult]) -> StepResult:
    """Return what all processes did in a step: from when the first began to when the last ended, as mdtest counts."""
    return StepResult(
        sum(one.items for one in results),
        sum(one.size_bytes for one in results),
        min(one.started_s for one in results),
        max(one.ended_s for one in results),
    )
