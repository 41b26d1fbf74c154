"""What a script imports at its top, so that ranks can be forked of a process that has imported it already."""

from __future__ import annotations

import ast
import contextlib
import importlib
import importlib.util
import os
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

_FORKS_WELL = frozenset(("jemalloc_bg_thd",))
"""Threads of libraries that take care of forks: a child has one of its own."""


_OF_A_RANK = frozenset(
    ("RANK", "LOCAL_RANK", "GROUP_RANK", "ROLE_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
)


def import_those_of(words: Sequence[str]) -> bool:
    """Import what a script (or ``-m`` and module) imports at its top, as far as that is there; return whether that
    looked for none of the variables by which ranks differ, which a rank sets later."""
    sys.argv = list(words[1:] if words[0] == "-m" else words)  # Some modules keep it as they are imported.
    path = _source(words)  # Which imports the package of a module.
    if path is None:
        return False
    names = list(imported_by(path.read_text(errors="replace")))
    sys.path.insert(0, str(Path.cwd() if words[0] == "-m" else path.parent))
    with _watched() as looked_for:
        for name in names:
            with contextlib.suppress(Exception, SystemExit):
                importlib.import_module(name)
    del sys.path[0]
    return not looked_for


@contextlib.contextmanager
def _watched() -> Iterator[set[str]]:
    """Take ranks' variables away; yield which of them were looked for meanwhile."""
    looked_for: set[str] = set()
    kind = type(os.environ)
    real = kind.__getitem__
    for name in _OF_A_RANK:
        os.environ.pop(name, None)

    def watched(self: Any, key: Any) -> Any:
        if key in _OF_A_RANK:
            looked_for.add(key)
        return real(self, key)

    kind.__getitem__ = watched  # type: ignore[method-assign]
    try:
        yield looked_for
    finally:
        kind.__getitem__ = real  # type: ignore[method-assign]


def imported_by(text: str) -> Iterator[str]:
    """Yield the modules that a module's text imports at its top, absolute ones, in their order."""
    try:
        body = ast.parse(text).body
    except (SyntaxError, ValueError):
        return
    for statement in body:
        if isinstance(statement, ast.Import):
            yield from (one.name for one in statement.names)
        elif isinstance(statement, ast.ImportFrom) and not statement.level and statement.module:
            yield statement.module


def forks_well() -> bool:
    """Return whether this process can be forked: no thread that a child would lack."""
    others = (task for task in Path("/proc/self/task").iterdir() if task.name != str(os.getpid()))
    names = [(task / "comm").read_text().strip() for task in others]
    return threading.active_count() == 1 and _FORKS_WELL.issuperset(names)


def _source(words: Sequence[str]) -> Path | None:
    if words[0] != "-m":
        return Path(words[0]) if Path(words[0]).is_file() else None
    try:
        spec = importlib.util.find_spec(words[1])
    except (ImportError, ValueError):
        return None
    return None if spec is None or spec.origin is None or not spec.origin.endswith(".py") else Path(spec.origin)
