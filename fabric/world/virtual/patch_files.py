"""Patches of the kernel's source (unified diffs), read as replacements of text.

Kernels differ, so nothing goes by the numbers of lines: the lines of a hunk that are there before must be in the file
exactly once, wherever that is. Hunks have no more lines around what they change than that needs: each such line is one
in which kernels may differ. So little is not for the program ``patch``, which drops context that does not match and may
then put lines elsewhere. An added line ``#include "NAME.inc"`` stands for the text of that file.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

_HUNK = re.compile(r"@@ -\d+(?:,(\d+))? \+\d+(?:,(\d+))? @@")
_INCLUDE = re.compile(r'#include "(\w[\w.]*\.inc)"\n')


@dataclass(frozen=True)
class Replacement:
    """The lines ``new`` in place of the lines ``old``, which must be in the file exactly once."""

    old: str
    new: str

    def fits(self, text: str) -> bool:
        """Return whether the place is there, and only one."""
        return len(re.findall(f"^{re.escape(self.old)}", text, re.MULTILINE)) == 1

    def apply(self, text: str) -> str:
        """Return a text that it fits, changed."""
        before, after = re.split(f"^{re.escape(self.old)}", text, maxsplit=1, flags=re.MULTILINE)
        return f"{before}{self.new}{after}"


@dataclass
class _Hunk:
    """A hunk as it is read: how many lines it has before and after, and these lines so far."""

    old_count: int
    new_count: int
    old: list[str] = field(default_factory=list)
    new: list[str] = field(default_factory=list)

    @property
    def is_complete(self) -> bool:
        """Whether all its lines have been read."""
        return len(self.old) >= self.old_count and len(self.new) >= self.new_count

    def take(self, line: str) -> bool:
        """Take a line, or return False: it is none of a hunk."""
        if line[0] not in " -+":
            return False
        if line[0] != "+":
            self.old.append(line[1:])
        if line[0] != "-":
            self.new.append(line[1:])
        return (len(self.old), len(self.new)) <= (self.old_count, self.new_count)


def read_patch(path: Path, includes: Path) -> dict[str, tuple[Replacement, ...]]:
    """Return what a patch replaces in each file, by the file's path in the kernel's source.

    ``includes``: the folder of the files that it includes. Raises ValueError, naming the line, for what is not a patch.
    """
    found: dict[str, list[Replacement]] = {}
    for file, hunk in _hunks(path):
        new = "".join(_included(line, includes) for line in hunk.new)
        found.setdefault(file, []).append(Replacement("".join(hunk.old), new))
    if not found:
        raise ValueError(f"{path}: changes nothing; give it a hunk")
    return {file: tuple(parts) for file, parts in found.items()}


def _included(line: str, includes: Path) -> str:
    """Return an added line, or the text of the file that it includes."""
    named = _INCLUDE.fullmatch(line)
    return (includes / named[1]).read_text() if named else line


def _hunks(path: Path) -> Iterator[tuple[str, _Hunk]]:
    """Yield each hunk with the file that it changes. What stands before the first file is a comment."""
    file, hunk = "", None
    for number, line in enumerate(path.read_text().splitlines(keepends=True), start=1):
        if hunk is not None:
            if not hunk.take(line):
                raise ValueError(f"{path}:{number}: not a line of the hunk of {hunk.old_count} lines; count them again")
            if hunk.is_complete:
                yield file, _checked(hunk, f"{path}:{number}")
                hunk = None
        elif line.startswith("+++ b/"):
            file = line.removeprefix("+++ b/").rstrip("\n")
        elif file and (counts := _HUNK.match(line)):
            old_count, new_count = (int(count or 1) for count in counts.groups())
            hunk = _Hunk(old_count, new_count)
        elif file and not line.startswith("--- a/"):
            raise ValueError(
                f"{path}:{number}: neither a hunk nor the next file; count the lines of the hunk before it"
            )
    if hunk is not None:
        raise ValueError(f"{path}: ends within a hunk; complete it")


def _checked(hunk: _Hunk, where: str) -> _Hunk:
    if not hunk.old:
        raise ValueError(f"{where}: no line of the hunk is there before, so its place is unknown; give it one")
    return hunk
