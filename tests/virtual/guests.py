"""Finds the processes of guests on this machine."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from fabric.world.virtual import kernel


def processes() -> set[int]:
    """Return the processes of all guests of this machine, by what they run: the kernel's program."""
    return _of_guests(int(entry.name) for entry in Path("/proc").glob("[0-9]*"))


def _of_guests(those: Iterable[int]) -> set[int]:
    built = kernel.require().kernel.resolve()
    return {process for process in those if _program_of(process) == built}


def _program_of(process: int) -> Path | None:
    """Return what a process runs, None if it has ended in the meantime, or is not ours to look at."""
    try:
        return Path(f"/proc/{process}/exe").readlink()
    except OSError:
        return None


def parent_of(process: int) -> int:
    """Return a process's parent, 0 if it has gone."""
    try:
        return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def below(ancestor: int) -> set[int]:
    """Return the processes of the guest that a process, or one that it has started, runs."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").glob("[0-9]*"):
        children.setdefault(parent_of(int(entry.name)), []).append(int(entry.name))
    ours = [ancestor]
    for process in ours:  # Which grows meanwhile.
        ours += children.get(process, [])
    return _of_guests(ours)
