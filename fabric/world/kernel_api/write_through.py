"""Files that grow in a guest and are read on the host meanwhile."""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from fabric.errors import EmulationError
from fabric.world.engines import current_engine
from fabric.world.isolation.sysctl import write_sysctl

_PERIOD_S = 0.01
_WAIT_BEFORE, _WRITE, _WAIT_AFTER = 1, 2, 4  # SYNC_FILE_RANGE_*
_END_S = 60.0

_libc = ctypes.CDLL(None, use_errno=True)


@contextmanager
def written_through(file: int) -> Iterator[None]:
    """Let the host see, for the time of a block, what has been appended to an open file some ms ago, and no gaps.

    A guest's kernel keeps what is written for half a minute, and then may write a page before the one in front of it,
    which has grown meanwhile: who reads along would find zeros. So what is there is written, up to where the file ends
    just then. ``O_DSYNC`` would wait for the host's disk with each write. In real time there is one kernel, and nothing
    to do.
    """
    if not current_engine().has_own_kernel:
        yield
        return
    write_sysctl("vm/dirty_writeback_centisecs", 0)  # Nothing else is to write, in an order of its own.
    ended = threading.Event()

    def write() -> None:
        done = 0
        while not ended.wait(_PERIOD_S):
            done = _written(file, done)

    thread = threading.Thread(target=write, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(_END_S)
        _written(file, 0)


def _written(file: int, done: int) -> int:
    """Write what a file has beyond ``done`` bytes, and return how many it has."""
    size = os.fstat(file).st_size
    if size > done:
        flags = _WAIT_BEFORE | _WRITE | _WAIT_AFTER
        if _libc.sync_file_range(file, ctypes.c_int64(done), ctypes.c_int64(size - done), flags):
            raise EmulationError(f"a capture cannot be written through: {os.strerror(ctypes.get_errno())}")
    return size
