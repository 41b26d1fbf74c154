"""Finds the processes of guests on this machine."""

from __future__ import annotations

from pathlib import Path

from fabric.world.virtual import kernel


def processes() -> set[int]:
    """Return the processes of all guests of this machine, by what they run: the kernel's program."""
    built = kernel.require().kernel.resolve()
    found = set()
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if (entry / "exe").resolve() == built:
                found.add(int(entry.name))
        except OSError:
            continue  # It has ended in the meantime, or is not ours to look at.
    return found


def parent_of(process: int) -> int:
    """Return a process's parent, 0 if it has gone."""
    try:
        return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def below(ancestor: int) -> set[int]:
    """Return those of a process's guest."""
    ours, before = {ancestor}, 0
    guests = processes()
    while len(ours) > before:
        before = len(ours)
        ours |= {process for process in guests if parent_of(process) in ours}
    return ours - {ancestor}
