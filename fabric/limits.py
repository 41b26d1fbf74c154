"""How many files this process, and what it starts, may have open: a socket in each host is one, a pipe to a program is.

Many systems start with 1,024, and allow far more to who asks.
"""

from __future__ import annotations

import resource
from contextlib import suppress
from pathlib import Path

from fabric.errors import EmulationError
from fabric.model import Fabric

_OWN_FILES = 1000
_FILES_PER_PORT = 4
"""Of a switch's process: a packet socket, netlink sockets, and what it opens while it makes a port."""
_FILES_PER_HOST = 4
"""Of a run's process: a socket to each host's kernel, the namespace's file, pipes to two programs there."""


def files_needed(fabric: Fabric) -> int:
    """Return how many files the process that needs most of them has open, about, in a run on a fabric."""
    switch_ports = sum(len(fabric.ports_of[switch]) for switch in fabric.switches)
    return _OWN_FILES + _FILES_PER_HOST * len(fabric.hosts) + _FILES_PER_PORT * switch_ports


def allow_open_files() -> int:
    """Let this process, and what it starts, have as many files open as it may give itself; return how many that is."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = int(Path("/proc/sys/fs/nr_open").read_text())
    for limit in (most, hard):  # Root may raise its hard limit, too.
        with suppress(ValueError, PermissionError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (max(limit, soft), max(limit, hard)))
            return max(limit, soft)
    return soft


def require_open_files(fabric: Fabric) -> None:
    """Raise EmulationError if a fabric needs more open files than there may be here."""
    allowed, needed = allow_open_files(), files_needed(fabric)
    if allowed < needed:
        raise EmulationError(
            f"{fabric.name} needs some {needed} open files and there may be {allowed} here; allow more "
            f"(ulimit -Hn {needed}, or LimitNOFILE={needed} of a service) or use a smaller fabric"
        )
