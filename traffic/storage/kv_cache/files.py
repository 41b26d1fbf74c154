"""The index of a client's part of the cache: which blocks are files that can be read, and which are to be removed. In
memory, without a message: 3FS-KV is not published, and its users are told to keep metadata wherever they like.

A block is found once all of its file is written. What the cache would have found, had writes taken no time, is said
beside it. A file that is removed is out of the index at once; its chunks go later, and not while it is read.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import NamedTuple

from traffic.storage.kv_cache.cache import PrefixCache
from traffic.storage.kv_cache.trace import Request


@dataclass
class BlockFile:
    """A block as a file. ``is_whole``: all of it is written; ``readers``: requests that read it; ``removed_s``: when it
    was taken out of the index, None while it is there."""

    block: int
    number: int
    is_whole: bool = False
    is_written_to: bool = False
    readers: int = 0
    removed_s: float | None = None

    @property
    def is_in_use(self) -> bool:
        """Whether it is read or written."""
        return self.readers > 0 or self.is_written_to


class Found(NamedTuple):
    """What a request found: files of its longest prefix that can be read, which it holds until :meth:`BlockFiles.end`;
    the files that it is to write; and how many blocks it would have found if writes took no time."""

    files: tuple[BlockFile, ...]
    missing: tuple[BlockFile, ...]
    in_theory: int


class BlockFiles:
    """The index. ``first_number``: of its files, which count from there. Times of the trace are in requests; others are
    ``time.monotonic()``."""

    def __init__(self, cache: PrefixCache, first_number: int) -> None:
        self._cache = cache
        self._next_number = first_number
        self._files: dict[int, BlockFile] = {}
        self._garbage: deque[BlockFile] = deque()
        self.removed = 0
        """How many files were taken out of the index so far."""

    def __len__(self) -> int:
        return len(self._files)

    def hold(self, block: int, used_s: float) -> None:
        """Have a block that was written before, as the next file."""
        self._cache.hold(block, used_s)
        self._add(block).is_whole = True

    def new_file(self, block: int) -> BlockFile:
        """Return the next file, for a block that the index does not have: nobody asks for it."""
        file = BlockFile(block, self._next_number)
        self._next_number += 1
        return file

    def begin(self, request: Request, now_s: float) -> Found:
        """Look a request up: what it finds it reads, what it does not it is to write."""
        served = self._cache.serve(request)
        files: list[BlockFile] = []
        for block in request.blocks[: served.hit_blocks]:
            if not self._files[block].is_whole:
                break
            files.append(self._files[block])
        for file in files:
            file.readers += 1
        missing = tuple(map(self._add, served.written))
        for file in missing:
            file.is_written_to = True
        self._remove((*served.expired, *served.evicted), now_s)
        return Found(tuple(files), missing, served.hit_blocks)

    def end(self, found: Found) -> None:
        """Let go of what a request has read."""
        for file in found.files:
            file.readers -= 1

    def written(self, file: BlockFile, is_whole: bool) -> None:
        """Know that a file is written, or that it could not be: then its block is there no longer."""
        file.is_written_to, file.is_whole = False, is_whole
        if not is_whole and file.removed_s is None:
            self._cache.drop(file.block)
            self._files.pop(file.block, None)

    def expire(self, now_s: float, trace_s: float) -> None:
        """Remove the blocks whose time to live is over, by the trace's time."""
        self._remove(self._cache.expire(trace_s), now_s)

    def due(self, until_s: float, most: int) -> list[BlockFile]:
        """Return files that were removed up to a time and nobody uses, the first removed first; they are garbage no
        longer, but their caller's."""
        found: list[BlockFile] = []
        passed: list[BlockFile] = []
        while self._garbage and len(found) < most and (self._garbage[0].removed_s or 0.0) <= until_s:
            file = self._garbage.popleft()
            (passed if file.is_in_use else found).append(file)
        self._garbage.extendleft(reversed(passed))
        return found

    @property
    def garbage(self) -> int:
        """How many files wait for the removal of their chunks."""
        return len(self._garbage)

    def _add(self, block: int) -> BlockFile:
        self._files[block] = file = self.new_file(block)
        return file

    def _remove(self, blocks: tuple[int, ...], now_s: float) -> None:
        for block in blocks:
            file = self._files.pop(block)
            file.removed_s = now_s
            self._garbage.append(file)
            self.removed += 1
