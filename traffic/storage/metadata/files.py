"""Files, as a program has them: opened, written and read over chunks, their lengths told to metadata servers."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple

from fabric.errors import TrafficError
from traffic.storage.chains import Extent, FileLayout
from traffic.storage.metadata.chunks import Chunks, cut_file
from traffic.storage.metadata.client import MetadataClient
from traffic.storage.metadata.errors import FileError
from traffic.storage.metadata.records import Entry, Inode, Length
from traffic.storage.wire import event_loop


class ReadAt(NamedTuple):
    """A stretch of a file to read; ``forbids_holes``: one that was never written is an error, not zeros."""

    file: OpenFile
    offset: int
    size_bytes: int
    forbids_holes: bool = False


@dataclass
class OpenFile:
    """A file that a program has open. ``session``: 0 if it is open to read; ``written``: how far this program has
    written since it was told the length last; ``is_unsure``: it was truncated by another meanwhile;
    ``may_be_closed``: nobody answered a close, which may have been carried out."""

    path: str
    inode: Inode
    session: int
    written: int = 0
    is_unsure: bool = False
    is_closed: bool = False
    may_be_closed: bool = False

    @property
    def known_bytes(self) -> int:
        """How long it is, as far as this program knows."""
        return max(self.inode.length.size_bytes, self.written)

    @property
    def hint(self) -> Length | None:
        """What this program can say of the length; None: nothing."""
        return None if self.is_unsure else Length(self.known_bytes, self.inode.length.truncate_version)

    def layout(self, size_bytes: int) -> FileLayout:
        """Return where its chunks are if it has a size."""
        return self.inode.layout.placed(self.inode.id, max(1, size_bytes))


class Files:
    """A file system, as one program has it. Every method raises FileError as a system call would, and TrafficError if
    servers do not answer in time."""

    def __init__(self, metadata: MetadataClient, chunks: Chunks, writes_at_once: int = 32) -> None:
        self.metadata = metadata
        self.chunks = chunks
        self._writes = asyncio.Semaphore(writes_at_once)
        self._written: dict[int, OpenFile] = {}
        """Those that are open for writing, by their sessions."""

    async def create(self, path: str, is_exclusive: bool = True) -> OpenFile:
        """Make a file, and open it for writing."""
        return await self._open(path, writes=True, creates=True, is_exclusive=is_exclusive)

    async def open(self, path: str, writes: bool = False, creates: bool = False, truncates: bool = False) -> OpenFile:
        """Open a file; what is to be emptied must be open for writing."""
        if (truncates or creates) and not writes:
            raise FileError("EINVAL", f"{path}: opened to read, and to be made or emptied; open it for writing")
        return await self._open(path, writes=writes, creates=creates, truncates=truncates)

    async def _open(
        self, path: str, *, writes: bool, creates: bool = False, is_exclusive: bool = False, truncates: bool = False
    ) -> OpenFile:
        inode, session, must_truncate = await self.metadata.open(
            path, writes=writes, creates=creates, is_exclusive=is_exclusive, truncates=truncates
        )
        file = OpenFile(path, inode, session)
        if session:
            self._written[session] = file
        if must_truncate:
            await self.truncate(file, 0)
        return file

    async def write(self, file: OpenFile, offset: int, data: bytes | bytearray | memoryview) -> int:
        """Write bytes; return how many. They are on all replicas then; the length is told by :meth:`fsync`."""
        self._require_open(file, writes=True)
        return await self._write(file, offset, len(data), memoryview(data))

    async def write_made(self, file: OpenFile, offset: int, size_bytes: int) -> int:
        """Write bytes that storage makes of where they are, for a load that does not care: they take no memory."""
        self._require_open(file, writes=True)
        return await self._write(file, offset, size_bytes, None)

    async def _write(self, file: OpenFile, offset: int, size_bytes: int, data: memoryview | None) -> int:
        if offset < 0:
            raise FileError("EINVAL", f"{file.path}: offset {offset} is below 0")
        if not size_bytes:
            return 0
        began_with, ends = file.inode.length.truncate_version, offset + size_bytes
        extents = file.layout(ends).locate(offset, size_bytes)
        pieces = zip(extents, _starts(extents), strict=True)
        await event_loop.all_of(
            [self._write_one(one, None if data is None else data[at : at + one.length]) for one, at in pieces]
        )
        file.written = max(file.written, ends)
        file.is_unsure |= file.inode.length.truncate_version != began_with
        return size_bytes

    async def _write_one(self, extent: Extent, data: memoryview | None) -> None:
        async with self._writes:
            await self.chunks.write(extent, data)

    async def read(self, file: OpenFile, offset: int, size_bytes: int, forbids_holes: bool = False) -> bytes:
        """Read bytes: fewer where the file ends, none behind it. Holes are zeros, or an error."""
        (found,) = await self.read_all([ReadAt(file, offset, size_bytes, forbids_holes)])
        if isinstance(found, FileError):
            raise found
        return found

    async def read_all(self, wanted: Sequence[ReadAt]) -> list[bytes | FileError]:
        """Read several stretches together, as :meth:`read` does each.

        They end where metadata servers say, or where this program has written: what another has written behind that,
        and not told yet, is not there.
        """
        for one in wanted:
            self._require_open(one.file)
            if one.offset < 0 or one.size_bytes < 0:
                where = f"offset {one.offset}, size {one.size_bytes}"
                raise FileError("EINVAL", f"{one.file.path}: {where}: none can be below 0")
        beyond = {id(one.file): one.file for one in wanted if one.offset + one.size_bytes > one.file.known_bytes}
        await event_loop.all_of([self._ask_length(file) for file in beyond.values()])
        clipped = [max(0, min(one.size_bytes, one.file.known_bytes - one.offset)) for one in wanted]
        located = [
            one.file.layout(one.offset + size).locate(one.offset, size) if size else []
            for one, size in zip(wanted, clipped, strict=True)
        ]
        flat = [extent for extents in located for extent in extents]
        found = iter(await self.chunks.read(flat) if flat else [])
        return [
            _whole(one, extents, [next(found) for _ in extents]) for one, extents in zip(wanted, located, strict=True)
        ]

    async def _ask_length(self, file: OpenFile) -> None:
        file.inode = await self.metadata.stat_inode(file.inode.id)

    async def fsync(self, file: OpenFile) -> Inode:
        """Tell the length; return the inode as it is then."""
        self._require_open(file)
        await self._sync(file)
        return file.inode

    async def _sync(self, file: OpenFile, is_truncated: bool = False, session: int = 0) -> None:
        hint, said = None if is_truncated else file.hint, file.written
        file.inode = await self.metadata.sync(file.inode.id, hint, is_truncated, session) or file.inode
        if file.written == said:
            file.written, file.is_unsure = 0, False
        else:  # More was written meanwhile, perhaps before a truncation that this answer tells of.
            file.is_unsure = True

    async def close(self, file: OpenFile) -> None:
        """Tell the length of what was written, and end the session. If servers do not answer, the file stays open: its
        length is told in turns, and it can be closed again."""
        self._require_open(file)
        file.is_closed = True
        if not file.session:
            return
        self._written.pop(file.session, None)
        try:
            await self._sync(file, session=file.session)
        except FileError as error:
            if not (file.may_be_closed and error.name == "ENOENT"):  # Else it was closed, and then collected.
                raise
        except BaseException:
            file.is_closed, file.may_be_closed = False, True
            self._written[file.session] = file
            raise

    async def sync_on(self, playing: asyncio.Event | None = None) -> None:
        """Tell in turns, forever, how far files were written, while a phase plays, if that is said: so that others see
        it, and a program that dies leaves lengths that are not older than a turn."""
        while True:
            await asyncio.sleep(self.metadata.config.sessions.synced_every)
            if playing is not None:
                await playing.wait()
            for file in [file for file in self._written.values() if file.written]:
                with suppress(TrafficError):  # Whoever closes it is told.
                    await self._sync(file)

    async def truncate(self, file: OpenFile, size_bytes: int) -> None:
        """Give a file a length: what is behind it is gone, what it lacks is zeros."""
        self._require_open(file, writes=True)
        if size_bytes < 0:
            raise FileError("EINVAL", f"{file.path}: a length of {size_bytes}")
        await cut_file(self.chunks, file.layout(size_bytes), size_bytes)
        await self._sync(file, is_truncated=True)

    def _require_open(self, file: OpenFile, writes: bool = False) -> None:
        if file.is_closed:
            raise FileError("EBADF", f"{file.path}: it is closed")
        if writes and not file.session:
            raise FileError("EBADF", f"{file.path}: it is open to read")

    async def stat(self, path: str) -> Inode:
        """Return the inode at a path."""
        return await self.metadata.stat(path)

    async def list(self, path: str) -> list[Entry]:
        """Return the entries of a directory, by name."""
        return await self.metadata.list_names(path)

    async def mkdir(self, path: str, makes_parents: bool = False) -> None:
        """Make a directory."""
        await self.metadata.make_directory(path, makes_parents)

    async def rename(self, old: str, new: str) -> None:
        """Give what is at one path another one."""
        await self.metadata.rename(old, new)

    async def remove(self, path: str, is_recursive: bool = False) -> None:
        """Remove a file or a directory."""
        await self.metadata.remove(path, is_recursive)


def _starts(extents: Sequence[Extent]) -> list[int]:
    starts, at = [], 0
    for extent in extents:
        starts.append(at)
        at += extent.length
    return starts


def _whole(wanted: ReadAt, extents: Sequence[Extent], found: Sequence[bytes]) -> bytes | FileError:
    """Return what was read of a stretch, with zeros where nothing was ever written."""
    for extent, one in zip(extents, found, strict=True):
        if len(one) < extent.length and wanted.forbids_holes:
            return FileError("EIO", f"{wanted.file.path}: there is a hole in {extent.chunk}")
    return b"".join(one.ljust(extent.length, b"\0") for extent, one in zip(extents, found, strict=True))
