"""The file system for programs without an event loop: a file system's calls, and USRBIO's (3FS: ``hf3fs_usrbio``).

::

    from traffic.storage.metadata.usrbio import mount

    with mount() as fs:
        fd = fs.create("/ckpt/rank0")
        fs.write(fd, 0, b"...")
        fs.fsync(fd)
        fs.close(fd)

        fd = fs.reg_fd(fs.open("/ckpt/rank0"))
        iov = fs.iovcreate(1 << 20)
        ior = fs.iorcreate(entries=64, for_read=True, io_depth=-8, timeout_s=0.001)
        for place in range(8):
            at = place * 4096
            fs.prep_io(ior, iov[at : at + 4096], fd, at, userdata=place)
        fs.submit_ios(ior)
        for cqe in fs.wait_for_ios(ior, most=8, least=8):
            print(cqe.userdata, cqe.result)

A mount's calls may come from several threads, those of one ring from one at a time (as in 3FS, ``prep_io`` is not
thread-safe). Memory of an iov is the program's own: RDMA's shared memory has no equivalent over sockets.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import itertools
import threading
from collections.abc import Coroutine, Sequence
from types import TracebackType
from typing import Any, TypeVar

from fabric.errors import TrafficError, UsageError
from traffic.storage.metadata.errors import FileError
from traffic.storage.metadata.files import Files, OpenFile
from traffic.storage.metadata.mounting import MountPoint, find_mount_point, mounted
from traffic.storage.metadata.records import Entry, Inode
from traffic.storage.metadata.ring import Cqe, Flags, Ring, RingIo
from traffic.storage.wire import event_loop

T = TypeVar("T")
MOST_IOV_BYTES = 1 << 32
_START_TIMEOUT_S, _STOP_TIMEOUT_S = 60.0, 10.0

__all__ = ["Cqe", "FileError", "FileSystem", "Flags", "Ior", "Iov", "mount"]


class Iov:
    """Memory for IOs, shared by rings."""

    def __init__(self, size_bytes: int) -> None:
        if not 1 <= size_bytes <= MOST_IOV_BYTES:
            raise UsageError(f"an iov of {size_bytes} B; give it 1 to {MOST_IOV_BYTES}")
        self.memory = memoryview(bytearray(size_bytes))

    def __getitem__(self, part: slice) -> memoryview:
        """Return a part of it, for an IO. Raises UsageError if it is not within."""
        begin, end, step = part.start or 0, len(self.memory) if part.stop is None else part.stop, part.step or 1
        if step != 1 or not 0 <= begin < end <= len(self.memory):
            raise UsageError(f"{part} of an iov of {len(self.memory)} B; take a part that is inside, of 1 B or more")
        return self.memory[begin:end]


class Ior:
    """A ring, of one mount."""

    def __init__(self, ring: Ring) -> None:
        self.ring = ring


class FileSystem:
    """A mounted file system. Methods raise FileError, which has an error number, as system calls would; TrafficError if
    servers do not answer in time; UsageError for calls that cannot be."""

    def __init__(self, place: MountPoint, host: str) -> None:
        self._started = threading.Event()
        self._failure: BaseException | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._over: asyncio.Event | None = None
        self._files: Files | None = None
        self._fds: dict[int, OpenFile] = {}
        self._next_fd = itertools.count(3)
        self._thread = threading.Thread(target=self._run, args=(place, host), name="storage", daemon=True)
        self._thread.start()
        if not self._started.wait(_START_TIMEOUT_S):
            raise TrafficError(f"{host}: the file system is not mounted within {_START_TIMEOUT_S:g} s")
        if self._failure is not None:
            raise TrafficError(f"{host}: cannot mount the file system: {self._failure}") from self._failure

    def _run(self, place: MountPoint, host: str) -> None:
        event_loop.run(self._serve(place, host))

    async def _serve(self, place: MountPoint, host: str) -> None:
        self._loop, self._over = asyncio.get_running_loop(), asyncio.Event()
        try:
            async with mounted(place, host) as (self._files, failed):
                self._started.set()
                over = asyncio.ensure_future(self._over.wait())
                either: set[asyncio.Future[Any]] = {over, failed}
                await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
                over.cancel()
                if failed.done():
                    failed.result()
        except Exception as error:
            self._failure = error
            self._started.set()

    def __enter__(self) -> FileSystem:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.unmount()

    def unmount(self) -> None:
        """End the connections. Files that are open for writing stay so for servers, until they find the client gone."""
        if self._loop is not None and self._over is not None and self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._over.set)
            self._thread.join(_STOP_TIMEOUT_S)

    def _do(self, work: Coroutine[Any, Any, T]) -> T:
        """Return what is done in the loop's thread."""
        begun = self.begin(work)
        try:
            return begun.result()
        except concurrent.futures.CancelledError:
            raise self._gone() from self._failure

    def _gone(self) -> TrafficError:
        why = "it was unmounted" if self._failure is None else str(self._failure)
        return TrafficError(f"the file system is not mounted any more: {why}")

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Return what a coroutine over :attr:`files` returns, carried out in the mount's own loop. Raises as it does,
        and TrafficError if the mount has ended."""
        return self._do(work)

    def begin(self, work: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
        """Have a coroutine over :attr:`files` carried out in the mount's own loop, and do not wait for it. Raises
        TrafficError if the mount has ended."""
        if self._loop is None or not self._thread.is_alive():
            work.close()
            raise self._gone()
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    @property
    def files(self) -> Files:
        """The files, for coroutines in the mount's own loop."""
        assert self._files is not None, "it was mounted"
        return self._files

    def _file(self, fd: int) -> OpenFile:
        try:
            return self._fds[fd]
        except KeyError:
            raise FileError("EBADF", f"file descriptor {fd}") from None

    def _keep(self, file: OpenFile) -> int:
        fd = next(self._next_fd)
        self._fds[fd] = file
        return fd

    # A file system's calls.

    def create(self, path: str, is_exclusive: bool = True) -> int:
        """Make a file, and open it for writing; return its descriptor, which is of this mount alone."""
        return self._keep(self._do(self.files.create(path, is_exclusive)))

    def open(self, path: str, writes: bool = False, creates: bool = False, truncates: bool = False) -> int:
        """Open a file; return its descriptor."""
        return self._keep(self._do(self.files.open(path, writes, creates, truncates)))

    def write(self, fd: int, offset: int, data: bytes | bytearray | memoryview) -> int:
        """Write bytes; return how many. They are on all replicas then; others see the length after :meth:`fsync`."""
        return self._do(self.files.write(self._file(fd), offset, data))

    def read(self, fd: int, offset: int, size_bytes: int) -> bytes:
        """Read bytes: fewer where the file ends."""
        return self._do(self.files.read(self._file(fd), offset, size_bytes))

    def fsync(self, fd: int) -> int:
        """Tell the length of what was written; return the length."""
        return self._do(self.files.fsync(self._file(fd))).length.size_bytes

    def truncate(self, fd: int, size_bytes: int) -> None:
        """Give a file a length."""
        self._do(self.files.truncate(self._file(fd), size_bytes))

    def close(self, fd: int) -> None:
        """Tell the length, and end the session."""
        self._do(self.files.close(self._file(fd)))
        del self._fds[fd]

    def stat(self, path: str) -> Inode:
        """Return the inode at a path."""
        return self._do(self.files.stat(path))

    def list(self, path: str) -> Sequence[Entry]:
        """Return the entries of a directory, by name."""
        return self._do(self.files.list(path))

    def mkdir(self, path: str, makes_parents: bool = False) -> None:
        """Make a directory."""
        self._do(self.files.mkdir(path, makes_parents))

    def rename(self, old: str, new: str) -> None:
        """Give what is at one path another one."""
        self._do(self.files.rename(old, new))

    def remove(self, path: str, is_recursive: bool = False) -> None:
        """Remove a file or a directory."""
        self._do(self.files.remove(path, is_recursive))

    # USRBIO.

    def iovcreate(self, size_bytes: int) -> Iov:
        """Return memory for IOs."""
        return Iov(size_bytes)

    def iorcreate(self, entries: int, for_read: bool, io_depth: int = 0, timeout_s: float = 0.0, flags: int = 0) -> Ior:
        """Return a ring. ``io_depth`` 0: what is submitted is carried out at once; n: in batches of exactly n; -n: of
        up to n, the last after ``timeout_s``."""

        async def make() -> Ring:
            return Ring(self.files, entries, for_read, io_depth, timeout_s, flags)

        return Ior(self._do(make()))

    def reg_fd(self, fd: int) -> int:
        """Let a file be used in rings; return its descriptor."""
        self._file(fd)
        return fd

    def dereg_fd(self, fd: int) -> None:
        """Let it be used no more: nothing to do, for who has a descriptor of this mount may use it."""
        self._file(fd)

    def prep_io(self, ior: Ior, memory: memoryview, fd: int, offset: int, userdata: object = None) -> int:
        """Prepare an IO between a part of an iov (``iov[begin:end]``) and as many bytes of a file; return its index in
        the ring. Raises FileError (EBUSY) if the ring is full."""
        return ior.ring.prep(RingIo(self._file(fd), offset, memory, userdata))

    def submit_ios(self, ior: Ior) -> None:
        """Let all that is prepared be carried out."""

        async def submit() -> None:
            ior.ring.submit()

        self._do(submit())

    def wait_for_ios(self, ior: Ior, most: int, least: int, until_s: float | None = None) -> Sequence[Cqe]:
        """Return what is done, ``most`` at most, once ``least`` are or it is ``until_s`` (``time.monotonic()``)."""
        return self._do(ior.ring.wait(most, least, until_s))

    def iordestroy(self, ior: Ior) -> None:
        """End a ring: wait for what is under way."""
        self._do(ior.ring.drain())

    def iovdestroy(self, iov: Iov) -> None:
        """Give memory back."""
        iov.memory.release()


def mount(job: str | None = None, host: str | None = None) -> FileSystem:
    """Mount the file system of a run, in a program on one of its hosts. ``job``: the storage job that has it, if there
    are several; ``host``: the program's, if its environment does not say (``FABRIC_HOST``).

    Raises UsageError if there is none, or if there are several and none is named.
    """
    return FileSystem(*find_mount_point(job, host))
