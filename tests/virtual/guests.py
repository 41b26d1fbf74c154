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
    """Return the processes of the guest that a process, or one that it has started, runs."""
    parents = {int(entry.name): parent_of(int(entry.name)) for entry in Path("/proc").glob("[0-9]*")}
    ours, before = {ancestor}, 0
    while len(ours) > before:
        before = len(ours)
        ours |= {process for process, parent in parents.items() if parent in ours}
    return ours & processes()
