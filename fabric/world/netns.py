"""Named network namespaces of a run: made, entered and held open by file, without a process each."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fabric.errors import EmulationError

CLONE_NEWNET = 0x40000000
MS_BIND = 0x1000
NETNS_DIR = Path("/run/netns")
"""Where ``ip netns`` looks; private to the world, whose /run is its own."""
_OTHER_GUESTS = Path("/run/guests")
"""What stands for a namespace of another guest: ``/run/guests/1/z1h000``, or ``/run/guests/1`` for that guest's own."""

_libc = ctypes.CDLL(None, use_errno=True)


def _check(result: int, what: str) -> None:
    if result != 0:
        code = ctypes.get_errno()
        raise EmulationError(
            f"{what}: {os.strerror(code)}; a run needs root and network namespaces (see fabric doctor)"
        )


def netns_path(name: str) -> Path:
    """Return the file that holds the namespace ``name`` open."""
    return NETNS_DIR / name


def in_guest(guest: int, path: Path | None) -> Path | None:
    """Return what stands for a namespace of a guest (None: its own) in the first guest, in which the run is."""
    if guest == 0:
        return path
    return _OTHER_GUESTS / str(guest) / (path.name if path is not None else "")


def guest_of(path: Path | None) -> int:
    """Return the guest that a namespace is in, as the first guest sees it."""
    if path is None or not path.is_relative_to(_OTHER_GUESTS):
        return 0
    return int(path.relative_to(_OTHER_GUESTS).parts[0])


def as_seen_there(path: Path | None) -> Path | None:
    """Return how the guest that a namespace is in sees it itself."""
    if path is None or guest_of(path) == 0:
        return path
    return None if path.parent == _OTHER_GUESTS else netns_path(path.name)


def enter(path: Path) -> None:
    """Move the calling thread into the network namespace held by ``path``. Raises EmulationError."""
    if guest := guest_of(path):
        raise EmulationError(f"{path}: this namespace is in guest {guest} of the run; omit --guests")
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        _check(_libc.setns(descriptor, CLONE_NEWNET), f"entering network namespace {path}")
    finally:
        os.close(descriptor)


@contextmanager
def inside(path: Path) -> Iterator[None]:
    """Run a block in the namespace held by ``path``: sockets opened in it stay there after the block."""
    home = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        enter(path)
        yield
    finally:
        _check(_libc.setns(home, CLONE_NEWNET), "returning to the world's network namespace")
        os.close(home)


@contextmanager
def created(name: str) -> Iterator[Path]:
    """Make the namespace ``name`` and run a block inside it; it lives on until the world ends."""
    NETNS_DIR.mkdir(parents=True, exist_ok=True)
    path = netns_path(name)
    path.touch(exist_ok=False)
    home = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        _check(_libc.unshare(CLONE_NEWNET), f"making network namespace {name}")
        source = b"/proc/thread-self/ns/net"
        _check(_libc.mount(source, str(path).encode(), b"none", MS_BIND, None), f"holding network namespace {name}")
        yield path
    finally:
        _check(_libc.setns(home, CLONE_NEWNET), "returning to the world's network namespace")
        os.close(home)
