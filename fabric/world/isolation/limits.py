"""The limit of open files of this process and its children: each socket in a host and each pipe to a program is one.

Many systems start with 1,024 and allow far more on request.
"""

from __future__ import annotations

import resource
from contextlib import suppress
from pathlib import Path

from fabric.errors import EmulationError
from fabric.model.network import Fabric

USUAL_FILES = 1024
"""A program that needs more raises its own limit, or says so."""
_OWN_FILES = 1000
_FILES_PER_PORT, _FILES_PER_SWITCH = 1, 4
"""Of ovs-vswitchd: a socket for each port; 221 files with 18 switches and 112 ports, 547 with 30 and 390."""
_FILES_PER_HOST = 8
"""Of a run's process: a socket to each host's kernel, and pipes to two programs there."""


def files_needed(fabric: Fabric) -> int:
    """Return how many files the process that has most of them open has, about, in a run on a fabric."""
    ports = sum(len(fabric.ports_of[switch]) for switch in fabric.switches) + len(fabric.inner_links)
    of_switches = _FILES_PER_PORT * ports + _FILES_PER_SWITCH * len(fabric.switches)
    return _OWN_FILES + max(of_switches, _FILES_PER_HOST * len(fabric.hosts))


def allow_open_files() -> int:
    """Let this process, and what it starts, have as many files open as it may give itself; return how many that is."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = int(Path("/proc/sys/fs/nr_open").read_text())
    for limit in (most, hard):  # Root may raise its hard limit, too.
        with suppress(ValueError, PermissionError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (max(limit, soft), max(limit, hard)))
            return max(limit, soft)
    return soft


def allow_usual_files() -> None:
    """Let this process, which is to become a user's program, have as many files open as systems let one start with.

    Many programs close all that they might have open, one by one, as they start. Open MPI's daemons close a million
    files then, which takes each of them half a minute in a guest.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, USUAL_FILES), hard))


def require_open_files(fabric: Fabric) -> None:
    """Raise EmulationError if a fabric needs more open files than there may be here."""
    allowed, needed = allow_open_files(), files_needed(fabric)
    if allowed < needed:
        raise EmulationError(
            f"{fabric.name} needs some {needed} open files and the limit here is {allowed} here; allow more "
            f"(ulimit -Hn {needed}, or LimitNOFILE={needed} of a service) or use a smaller fabric"
        )
