#!/usr/bin/env python3
"""Print the map of the code: each folder and module with what its docstring says first.

tools/code_map.py [FOLDER ...]      (default: all packages)
"""

from __future__ import annotations

import ast
import signal
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGES = ("fabric", "topologies", "controllers", "traffic", "cluster", "runs", "experiments", "app")
_NAME_WIDTH, _WIDTH = 24, 120


def main(folders: list[str]) -> int:
    """Print the map of folders, by their paths below the project's root."""
    for name in folders or PACKAGES:
        if not (ROOT / name).is_dir():
            print(f"{name}: is not a folder of {ROOT}; packages are {', '.join(PACKAGES)}", file=sys.stderr)
            return 2
        print("\n".join(lines_of(ROOT / name)))
    return 0


def lines_of(folder: Path) -> Iterator[str]:
    """Yield the lines of a folder and of all below it."""
    for place in sorted({path.parent for path in folder.rglob("*.py")}):
        yield ""
        yield f"{place.relative_to(ROOT)}/  {first_words(place / '__init__.py')}"
        for path in sorted(place.glob("*.py")):
            if path.name != "__init__.py":
                yield from _lines(path)


def _lines(path: Path) -> list[str]:
    margin = " " * (_NAME_WIDTH + 2)
    words = textwrap.wrap(first_words(path), _WIDTH - len(margin))
    name = f"  {path.stem}".ljust(len(margin) - 1) + " "
    return [name + words[0], *(margin + line for line in words[1:])] if words else [name.rstrip()]


def first_words(path: Path) -> str:
    """Return the first paragraph of a module's docstring in one line; empty if there is none."""
    text = ast.get_docstring(ast.parse(path.read_text())) if path.exists() else None
    return " ".join((text or "").split("\n\n")[0].split())


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # Let `| head` end it.
    sys.exit(main(sys.argv[1:]))
