"""Named network namespaces of a run, each with a hostname: made, entered and held open by file, without a process."""

from __future__ import annotations

import ctypes
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fabric.errors import EmulationError

CLONE_NEWNET = 0x40000000
CLONE_NEWUTS = 0x04000000
MS_BIND = 0x1000
NETNS_DIR = Path("/run/netns")
"""Where ``ip netns`` looks; private to the world, whose /run is its own."""
UTS_DIR = Path("/run/utsns")
"""Holds, under the same names, the UTS namespaces, in which the hostname is that name."""
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


def uts_path(name: str) -> Path:
    """Return the file that holds the UTS namespace of ``name`` open."""
    return UTS_DIR / name


def prefix(name: str) -> list[str]:
    """Return what to put before a command's words to run it in the namespaces of ``name``."""
    return ["nsenter", f"--net={netns_path(name)}", f"--uts={uts_path(name)}"]


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
    _set(path, CLONE_NEWNET, f"entering network namespace {path}")


def become(path: Path) -> None:
    """Move the calling thread into the network namespace held by ``path`` and, if that is a host's, give it the host's
    name. Raises EmulationError."""
    enter(path)
    if path.parent == NETNS_DIR:
        _set(uts_path(path.name), CLONE_NEWUTS, f"taking the hostname {path.name}")


def _set(path: Path, kind: int, what: str) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        _check(_libc.setns(descriptor, kind), what)
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
    """Make the namespaces of ``name`` and run a block inside the network's; they live on until the world ends."""
    home = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    home_uts = os.open("/proc/thread-self/ns/uts", os.O_RDONLY | os.O_CLOEXEC)
    try:
        _check(_libc.unshare(CLONE_NEWNET | CLONE_NEWUTS), f"making network namespace {name}")
        path = _hold("net", netns_path(name))
        socket.sethostname(name)
        _hold("uts", uts_path(name))
        yield path
    finally:
        _check(_libc.setns(home_uts, CLONE_NEWUTS), "returning to the world's hostname")
        _check(_libc.setns(home, CLONE_NEWNET), "returning to the world's network namespace")
        os.close(home_uts)
        os.close(home)


def _hold(kind: str, path: Path) -> Path:
    """Hold this thread's namespace of a kind open by a file, which is new; return that."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch(exist_ok=False)
    source = f"/proc/thread-self/ns/{kind}".encode()
    _check(_libc.mount(source, str(path).encode(), b"none", MS_BIND, None), f"holding namespace {path}")
    return path
