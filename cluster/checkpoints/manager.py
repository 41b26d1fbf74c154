"""Writes checkpoints to a file system and restores them: a directory per step, a file per writer, the index last.

::

    manager = CheckpointManager(files, "/llama", Keeping(last=2))
    plan = plan_write(step, tensors, replicated(tensors, nodes), chunk_bytes)    # The same on all nodes.
    await manager.prepare(step)                             # By one node, before the others write.
    copied = await manager.copy(plan, node, tensor_bytes)   # From the GPUs; then the next step may begin.
    checksums = await manager.write(plan, node, copied)     # Beside it, or before it.
    await manager.commit(plan, all_checksums)               # By one node, once all have written.

    index = await manager.index(step)                       # Of the latest(), as a rule.
    parts = await manager.restore(index, ranges)            # By any number of nodes, of all or some tensors.

A checkpoint is there once its index has its name, which a rename gives it: whoever dies before that leaves what
:meth:`CheckpointManager.tidy` removes. The index is the first thing of a checkpoint to go, too.
"""

from __future__ import annotations

import asyncio
import hashlib
import zlib
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from cluster.checkpoints.generations import INDEX, UNFINISHED_INDEX, Generations, Keeping, generations
from cluster.checkpoints.index import Index
from cluster.checkpoints.restoring import Read, WrongDataError, placed, plan_restore, verify_chunk
from cluster.checkpoints.tensors import Range
from cluster.checkpoints.writing import WritePlan
from fabric.errors import ConfigError, TrafficError
from traffic.storage.metadata.errors import FileError
from traffic.storage.metadata.files import Files, OpenFile, ReadAt
from traffic.storage.metadata.records import Kind
from traffic.storage.wire import event_loop

DEVICE_TO_HOST_BPS = 27e9
"""Bytes per second from a GPU to its node's memory, over PCIe 4.0 x16 (arXiv 2408.14158, IV-D)."""
Buffer = bytes | bytearray | memoryview


@dataclass(frozen=True)
class Copied:
    """What a node is to write, in its memory: the bytes of each of its chunks."""

    chunks: Mapping[int, bytes]

    @property
    def size_bytes(self) -> int:
        """How many bytes these are."""
        return sum(map(len, self.chunks.values()))


@dataclass
class Part:
    """Bytes of a tensor that were restored, from ``begin`` on."""

    begin: int
    data: bytearray = field(default_factory=bytearray)


class CheckpointManager:
    """Checkpoints below a directory. ``in_flight``: chunks that a node writes, or reads that it asks for, at once;
    ``copy_Bps``: how fast bytes come from its GPUs (None: at once).

    Methods raise TrafficError if storage does not do it in time, and FileError as system calls do.
    """

    def __init__(
        self,
        files: Files,
        top: str,
        keeping: Keeping | None = None,
        in_flight: int = 32,
        copy_Bps: float | None = DEVICE_TO_HOST_BPS,  # noqa: N803 - bytes, not bits
    ) -> None:
        if in_flight < 1:
            raise ConfigError("checkpoints", [f"in_flight: {in_flight}; a node writes 1 chunk or more at once"])
        self.files, self.top, self.keeping = files, top.rstrip("/"), keeping or Keeping()
        self._in_flight, self._copy_Bps = in_flight, copy_Bps

    def _path(self, step: int, name: object = "") -> str:
        return f"{self.top}/{step}/{name}".rstrip("/")

    # Writing.

    async def prepare(self, step: int) -> None:
        """Make the directory of a checkpoint. One node does it: of several that made it at once, all but one would try
        their transactions again, and wait longer each time, for as long as the data takes."""
        await self.files.mkdir(self._path(step), makes_parents=True)

    async def copy(
        self, plan: WritePlan, node: int, tensors: Mapping[str, Buffer], base: Mapping[str, int] | None = None
    ) -> Copied:
        """Return the bytes that a node writes, taken from its tensors as they are now; ``base``: the first byte that a
        buffer has of its tensor. The time that the GPUs take for it is over then, and tensors may change."""
        first = base or {}
        chunks = {}
        for chunk in plan.chunks_of.get(node, ()):
            found = []
            for piece in plan.pieces_of(chunk):
                at = first.get(piece.what.tensor, 0)
                found.append(memoryview(tensors[piece.what.tensor])[piece.what.begin - at : piece.what.end - at])
            chunks[chunk] = b"".join(found)
        copied = Copied(chunks)
        if self._copy_Bps is not None:
            await asyncio.sleep(copied.size_bytes / self._copy_Bps)
        return copied

    async def write(self, plan: WritePlan, node: int, copied: Copied) -> dict[int, int]:
        """Write a node's chunks, many at once, and tell the length of its file; return their CRC-32, which
        :meth:`commit` needs of all. Raises FileError: EEXIST if another writes the same checkpoint, ENOENT if nobody
        has prepared it."""
        step = plan.index.step
        if not copied.chunks:
            return {}
        first, _ = plan.index.place_of(min(copied.chunks))
        file = await self.files.create(self._path(step, first))
        try:
            limit = asyncio.Semaphore(self._in_flight)

            async def one(chunk: int, data: bytes) -> None:
                async with limit:
                    await self.files.write(file, plan.index.place_of(chunk)[1], data)

            await event_loop.all_of([one(chunk, data) for chunk, data in copied.chunks.items()])
        except BaseException:
            with suppress(TrafficError):  # What made the writes fail is told instead.
                await self.files.close(file)
            raise
        await self.files.close(file)
        return {chunk: zlib.crc32(data) for chunk, data in copied.chunks.items()}

    async def commit(
        self, plan: WritePlan, checksums: Mapping[int, int], hashes: Mapping[str, str] | None = None
    ) -> Index:
        """Make a checkpoint complete, once all nodes have written: by one of them. ``hashes``: SHA-256 of tensors,
        by whoever has all of one. Raises ConfigError for a chunk of which no checksum is there: nobody has written
        it."""
        count = len(plan.index.chunk_sizes)
        if missing := [chunk for chunk in range(count) if chunk not in checksums]:
            named = ", ".join(map(str, missing[:5]))
            raise ConfigError(
                f"checkpoint of step {plan.index.step}", [f"{len(missing)} of {count} chunks are not written: {named}"]
            )
        index = replace(
            plan.index,
            checksums=tuple(checksums[chunk] for chunk in range(count)),
            hashes=tuple(hashes.get(one.name, "") for one in plan.index.tensors) if hashes else (),
        )
        unfinished = self._path(index.step, UNFINISHED_INDEX)
        # Another's, who died before its rename, may be longer.
        file = await self.files.open(unfinished, writes=True, creates=True, truncates=True)
        await self.files.write(file, 0, index.to_json().encode())
        await self.files.close(file)
        await self.files.rename(unfinished, self._path(index.step, INDEX))
        return index

    async def tidy(self, writing: Iterable[int] = ()) -> tuple[int, ...]:
        """Remove checkpoints that are not kept, and those that were begun and are not in ``writing``; return their
        steps. One node does it."""
        gone = (await self.generations()).removable(self.keeping, writing)
        for step in gone:
            await self.remove(step)
        return gone

    async def remove(self, step: int) -> None:
        """Remove a checkpoint. Raises FileError (ENOENT) if there is nothing of it."""
        with suppress(FileError):  # It has no index, if it was interrupted.
            await self.files.remove(self._path(step, INDEX))
        await self.files.remove(self._path(step), is_recursive=True)

    async def generations(self) -> Generations:
        """Return which checkpoints there are."""
        try:
            steps = await self.files.list(self.top or "/")
        except FileError as error:
            if error.name == "ENOENT":
                return Generations()
            raise
        names = []
        for step in steps:
            if step.kind is not Kind.DIRECTORY:
                names.append(step.name)
                continue
            try:
                inside = await self.files.list(f"{self.top}/{step.name}")
            except FileError as error:
                if error.name != "ENOENT":  # Removed meanwhile.
                    raise
                continue
            names += [f"{step.name}/{one.name}" for one in inside] or [f"{step.name}/"]
        return generations(names)

    # Restoring.

    async def index(self, step: int) -> Index:
        """Return the index of a complete checkpoint. Raises FileError (ENOENT) without one, ConfigError if what is
        there is none."""
        path = self._path(step, INDEX)
        file = await self.files.open(path)
        size_bytes = (await self.files.stat(path)).length.size_bytes
        text = await self.files.read(file, 0, size_bytes)
        await self.files.close(file)
        try:
            return Index.from_json(text.decode(), path)
        except UnicodeDecodeError as error:
            raise ConfigError(path, [f"is not an index of a checkpoint ({error})"]) from None

    async def restore(self, index: Index, wanted: Sequence[Range]) -> dict[str, Part]:
        """Return bytes of tensors by their names: of each from the first to the last byte that is wanted. Reads are
        asked for many at once. Raises WrongDataError if what came is not what was written: chunks that are read whole
        are compared with their checksums, tensors with their hashes if they are known."""
        parts = {name: _part(name, wanted) for name in dict.fromkeys(one.tensor for one in wanted)}
        into = {name: part.data for name, part in parts.items()}
        base = {name: part.begin for name, part in parts.items()}
        reads = plan_restore(index, {0: wanted})[0]
        opened: dict[int, OpenFile] = {}
        for first in sorted({index.place_of(read.chunk)[0] for read in reads}):
            opened[first] = await self.files.open(self._path(index.step, first))
        limit = asyncio.Semaphore(self._in_flight)

        async def one(read: Read) -> None:
            first, start = index.place_of(read.chunk)
            at = ReadAt(opened[first], start + read.offset, read.size_bytes, forbids_holes=True)
            async with limit:
                (data,) = await self.files.read_all([at])
            if isinstance(data, FileError):
                raise WrongDataError(f"checkpoint of step {index.step}: {data}") from data
            if read.offset == 0 and read.size_bytes == index.chunk_sizes[read.chunk]:
                verify_chunk(index, read.chunk, data)
            placed(read, data, into, base)

        try:
            await event_loop.all_of([one(read) for read in reads])
        finally:
            for file in opened.values():
                await self.files.close(file)
        _verify_hashes(index, parts)
        return parts


def _part(name: str, wanted: Sequence[Range]) -> Part:
    mine = [one for one in wanted if one.tensor == name]
    begin, end = min(one.begin for one in mine), max(one.end for one in mine)
    return Part(begin, bytearray(end - begin))


def _verify_hashes(index: Index, parts: Mapping[str, Part]) -> None:
    """Raise WrongDataError if a tensor that is there as a whole is not what was written."""
    for one, known in zip(index.tensors, index.hashes, strict=False):
        part = parts.get(one.name)
        if part is None or not known or len(part.data) != one.size_bytes:
            continue
        if hashlib.sha256(part.data).hexdigest() != known:
            raise WrongDataError(
                f"checkpoint of step {index.step}: {one.name} is not what was written; take an older checkpoint"
            )
