"""Waiting for a rank's process and for the files that it leaves, without looking again and again.

Who looks every 50 ms makes twenty events a second of each rank: where time jumps from one event to the next, a day of
an idle cluster then costs as much as one that computes. The kernel tells instead: of a process by a descriptor (pidfd),
of files in a folder by another one (inotify).
"""

from __future__ import annotations

import asyncio
import ctypes
import os
from pathlib import Path

_IN_CLOSE_WRITE, _IN_MOVED_TO = 0x8, 0x80
_EVENTS_BYTES = 1 << 16
_libc = ctypes.CDLL(None, use_errno=True)


class Watch:
    """Tells whoever waits that a child has ended, or that a file in a folder was written or renamed since the last
    wait.

    Made in a running event loop, before whatever it is to see is looked for. Raises OSError if the kernel has no
    descriptor left; the child must not have been waited for.
    """

    def __init__(self, pid: int, folder: Path) -> None:
        self._loop = asyncio.get_running_loop()
        self._changed = asyncio.Event()
        self._process = os.pidfd_open(pid)
        self._files = _files_of(folder)
        self._loop.add_reader(self._process, self._has_ended)
        self._loop.add_reader(self._files, self._has_written)

    def _has_ended(self) -> None:
        # It stays readable, and would be asked about for ever.
        self._loop.remove_reader(self._process)
        self._changed.set()

    def _has_written(self) -> None:
        os.read(self._files, _EVENTS_BYTES)
        self._changed.set()

    async def change(self) -> None:
        """Return once something has changed since the last call."""
        await self._changed.wait()
        self._changed.clear()

    def close(self) -> None:
        """Watch no longer."""
        for descriptor in (self._process, self._files):
            self._loop.remove_reader(descriptor)
            os.close(descriptor)


def _files_of(folder: Path) -> int:
    """Return a descriptor that tells of files in a folder."""
    descriptor: int = _libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
    if descriptor < 0:
        raise OSError(ctypes.get_errno(), f"cannot watch files: {os.strerror(ctypes.get_errno())}")
    if _libc.inotify_add_watch(descriptor, os.fsencode(folder), _IN_CLOSE_WRITE | _IN_MOVED_TO) < 0:
        number = ctypes.get_errno()
        os.close(descriptor)
        raise OSError(number, f"{folder}: cannot watch it: {os.strerror(number)}")
    return descriptor
