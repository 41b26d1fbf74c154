"""Waiting for ranks' processes and for the files that they leave, without looking again and again.

Who looks every 50 ms makes twenty events a second of each rank: where time jumps from one event to the next, a day of
an idle cluster then costs as much as one that computes. The kernel tells instead: of a process by a descriptor (pidfd),
of files in a folder by another one (inotify), which all ranks of an agent share: a user has few of those. Where the
kernel has none left, folders and processes are looked at now and then.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import struct
from contextlib import suppress
from pathlib import Path

_IN_CLOSE_WRITE, _IN_MOVED_TO = 0x8, 0x80
_EVENT = struct.Struct("iIII")
_EVENTS_BYTES = 1 << 16
_LOOK_S = 0.25
_libc = ctypes.CDLL(None, use_errno=True)


class FolderWatch:
    """Sets an event whenever a file in a folder was written or renamed. Made in a running event loop; the kernel is
    asked for a descriptor with the first folder, and has it back with the last."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._descriptor = -1
        self._changed: dict[int, asyncio.Event] = {}
        """By the kernel's number of a folder that is watched."""

    def watch(self, folder: Path, changed: asyncio.Event) -> int | None:
        """Watch a folder; return the number by which it is forgotten, None if the kernel cannot watch it: it has no
        descriptor left, or there is no such folder any more."""
        if not self._changed:
            self._descriptor = _libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
            if self._descriptor < 0:
                return None
            self._loop.add_reader(self._descriptor, self._hear)
        number: int = _libc.inotify_add_watch(self._descriptor, os.fsencode(folder), _IN_CLOSE_WRITE | _IN_MOVED_TO)
        if number >= 0:
            self._changed[number] = changed
        self._end_if_idle()
        return number if number >= 0 else None

    def forget(self, number: int | None) -> None:
        """Watch a folder no longer."""
        if number is not None and self._changed.pop(number, None) is not None:
            _libc.inotify_rm_watch(self._descriptor, number)  # It fails for a folder that was removed.
            self._end_if_idle()

    def _end_if_idle(self) -> None:
        if not self._changed and self._descriptor >= 0:
            self._loop.remove_reader(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = -1

    def _hear(self) -> None:
        data, place = os.read(self._descriptor, _EVENTS_BYTES), 0
        while place < len(data):
            number, _, _, length = _EVENT.unpack_from(data, place)
            place += _EVENT.size + length
            # Without a number the kernel's queue has overflown: anything may have changed.
            for changed in self._changed.values() if number < 0 else filter(None, [self._changed.get(number)]):
                changed.set()


class Watch:
    """Tells whoever waits that a child has ended, or that a file in a folder was written or renamed since the last
    wait.

    Made in a running event loop, before whatever it is to see is looked for. The child must not have been waited for.
    """

    def __init__(self, pid: int, folder: Path, folders: FolderWatch) -> None:
        self._loop = asyncio.get_running_loop()
        self._changed = asyncio.Event()
        self._folders, self._number = folders, folders.watch(folder, self._changed)
        self._process = -1
        with suppress(OSError):  # There is no descriptor left.
            self._process = os.pidfd_open(pid)
            self._loop.add_reader(self._process, self._has_ended)

    @property
    def is_told(self) -> bool:
        """Whether the kernel tells; else change is looked for now and then."""
        return self._number is not None and self._process >= 0

    def _has_ended(self) -> None:
        # It stays readable, and would be asked about forever.
        self._loop.remove_reader(self._process)
        self._changed.set()

    async def change(self) -> None:
        """Return once something has changed since the last call, or may have, where the kernel does not tell."""
        with suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._changed.wait(), None if self.is_told else _LOOK_S)
        self._changed.clear()

    def close(self) -> None:
        """Watch no longer."""
        self._folders.forget(self._number)
        if self._process >= 0:
            self._loop.remove_reader(self._process)
            os.close(self._process)
