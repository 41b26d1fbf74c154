"""How a process ends with the one that started it."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

_PR_SET_PDEATHSIG = 1

_libc = ctypes.CDLL(None, use_errno=True)


def die_with(parent: int) -> None:
    """Let SIGKILL of this process's parent, ``parent`` by number, reach this process, too, whatever it executes."""
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        sys.exit(128 + signal.SIGKILL)  # It was killed before the kernel was told to say so.


def die_with_sudo() -> None:
    """Let SIGKILL of a ``sudo fabric ...`` reach this process, too: sudo cannot pass that signal on."""
    parent = os.getppid()
    try:
        name = Path(f"/proc/{parent}/comm").read_text().strip()
    except OSError:
        return
    if name == "sudo":
        die_with(parent)


def stat_of(process: int) -> list[str]:
    """Return the fields of ``/proc/PID/stat`` from the state on (proc(5)): state, parent, group, session and so on; an
    empty list if the process has gone."""
    with suppress(OSError):
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()  # Its name may have spaces.
    return []


def all_stats() -> Iterator[tuple[int, list[str]]]:
    """Yield each process's number and its :func:`stat_of`. Those that end meanwhile are left out."""
    for place in Path("/proc").glob("[0-9]*"):
        if fields := stat_of(int(place.name)):
            yield int(place.name), fields
