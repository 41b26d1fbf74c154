"""The cache of what this project builds on a machine: libraries that are preloaded, kernel modules, kernels.

Anybody who can write there can make its owner run programs, so a place that others could write to is refused.
"""

from __future__ import annotations

import fcntl
import os
import stat
import threading
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from fabric.errors import EmulationError, UsageError

SHARED = Path("/var/cache")
"""What root builds, every account may use."""
NAME = "ai-fabric-emulator"
HANDED = Path("/run/guest/caches")
"""In a guest: the places of the account that started it, which the guest's root could not tell."""
_REMEDY = "let XDG_CACHE_HOME name a directory that only you can write to, or unset it (sudo without -E)"


def own() -> Path:
    """Return where this account builds: XDG_CACHE_HOME if set, for root a place that every account can read.

    Raises UsageError if another account could write there.
    """
    home = os.environ.get("XDG_CACHE_HOME")
    place = Path(home) if home else SHARED if os.geteuid() == 0 else Path.home() / ".cache"
    return _trusted(place / NAME, "XDG_CACHE_HOME" if home else "the cache")


def places() -> tuple[Path, ...]:
    """Return where to look for what is built: this account's place, then the shared one. Raises UsageError.

    In a guest these are the places of whoever started it, who has been refused others.
    """
    if os.environ.get("FABRIC_GUEST") == "1" and HANDED.is_file():
        return tuple(Path(os.fsdecode(place)) for place in HANDED.read_bytes().split(b"\0") if place)
    return tuple(dict.fromkeys((own(), _trusted(SHARED / NAME, "the shared cache"))))


@contextmanager
def locked(file: Path, what: str, timeout_s: float, tell: Callable[[str], None] = lambda text: None) -> Iterator[None]:
    """Let one process at a time, and one thread of it, do ``what`` during a block; ``file`` stands for that. The kernel
    frees the lock of who was killed. Raises EmulationError if another one has not ended within ``timeout_s``."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("w") as lock:
        if not _is_free(lock):
            tell(f"{what}: waiting for another one to finish")
            if not _is_taken(lock, timeout_s):
                raise EmulationError(f"{what}: another one at it has not ended within {timeout_s:g} s ({file}); end it")
        yield


def _is_free(lock: TextIO) -> bool:
    """Take a lock if nobody has it; return whether it is taken."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_taken(lock: TextIO, timeout_s: float) -> bool:
    """Wait for a lock; return whether it is taken. A thread waits, which the kernel wakes at that moment: looking now
    and then takes it late."""

    def wait(own: int) -> None:
        try:
            fcntl.flock(own, fcntl.LOCK_EX)
        finally:
            os.close(own)  # The lock stays with the file that is open, if that still is.

    waiting = threading.Thread(target=wait, args=(os.dup(lock.fileno()),), daemon=True)
    waiting.start()
    waiting.join(timeout_s)
    return not waiting.is_alive()


def encoded_places() -> bytes:
    """Return what is in HANDED of a guest that this process starts. Raises UsageError."""
    return b"\0".join(map(os.fsencode, places()))


def _trusted(place: Path, name: str) -> Path:
    """Return a directory that only its user and root can change, nor put another one in its place."""
    if fault := who_may_change((place, *place.absolute().parents), {0, os.geteuid()}, {0, os.getegid()}):
        danger = f"and files kept there are run as uid {os.geteuid()}"
        raise UsageError(f"{name}, {place}: {fault}, {danger}; {_REMEDY}")
    return place


def who_may_change(paths: Iterable[Path], users: Collection[int], groups: Collection[int]) -> str | None:
    """Return the first of some paths that others than these users and groups could change, and who; None: there is
    none. What does not exist, or cannot be looked at, is passed over."""
    for path in paths:
        try:
            found = path.stat()
        except (FileNotFoundError, PermissionError):
            continue  # Made by us, in the next one that exists; or nothing that we could use.
        if why := _why_not(found, users, groups):
            return f"{path} {why}"
    return None


def _why_not(found: os.stat_result, users: Collection[int], groups: Collection[int]) -> str | None:
    if found.st_uid not in users:
        return f"belongs to uid {found.st_uid}"
    if found.st_mode & stat.S_ISVTX:
        return None  # Others can add to it, as to /tmp, and cannot replace what is ours.
    if found.st_mode & stat.S_IWOTH:
        return "can be written to by every account"
    if found.st_mode & stat.S_IWGRP and found.st_gid not in groups:
        return f"can be written to by group {found.st_gid}"
    return None
