"""Mounting, in the mount namespace of the process that calls."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

from fabric.errors import EmulationError

NOSUID, NODEV, NOEXEC, BIND, RECURSIVE = 0x2, 0x4, 0x8, 0x1000, 0x4000
"""Flags of mount(2)."""

_libc = ctypes.CDLL(None, use_errno=True)


def mount(kind: str, target: Path, flags: int, options: str = "") -> None:
    """Mount a file system of a kind at ``target``. Raises EmulationError with the kernel's reason."""
    _mount(kind, target, kind, flags, options)


def bind(source: Path, target: Path, flags: int = 0) -> None:
    """Show ``source`` at ``target``; RECURSIVE: with what is mounted in it. Raises EmulationError with the kernel's
    reason."""
    _mount(str(source), target, "none", BIND | flags, "")


def _mount(source: str, target: Path, kind: str, flags: int, options: str) -> None:
    if _libc.mount(source.encode(), str(target).encode(), kind.encode(), flags, options.encode()) != 0:
        reason = os.strerror(ctypes.get_errno())
        raise EmulationError(f"mounting {source} on {target}: {reason}; fabric doctor shows what this machine lacks")
