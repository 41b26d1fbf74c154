"""``python -m tests.without_instruments``: runs programs where what emulates cannot be imported.

What reads, plans or draws is to work on a machine without Mininet and a controller's libraries.

    python -m tests.without_instruments PROGRAM ARGUMENT ...
    python -m tests.without_instruments --in-turn < PROGRAMS

The latter runs several, ``[PROGRAM, ARGUMENT, ...]`` per line, one after another in one process, so that they load what
all need once; it prints a line of JSON per program: what it printed, and how it failed, or nothing.
"""

from __future__ import annotations

import io
import json
import sys
import traceback
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

INSTRUMENTS = frozenset({"mininet", "ryu", "os_ken", "scapy", "eventlet"})


class Refusing(MetaPathFinder):
    """Finds none of them, and says who may not have asked."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Raise ImportError for an instrument; leave all others to those who find them."""
        if fullname.partition(".")[0] in INSTRUMENTS:
            raise ImportError(f"{fullname} is imported, and not needed here")
        return None


def main(program: str, *arguments: str) -> None:
    """Run a program's text with its arguments."""
    sys.argv = ["program", *arguments]
    exec(compile(program, "<program>", "exec"), {"__name__": "__main__"})


def in_turn() -> None:
    """Run the programs of the lines of stdin."""
    for line in sys.stdin:
        said, failed = io.StringIO(), ""
        with redirect_stdout(said), redirect_stderr(said):
            try:
                main(*json.loads(line))
            except SystemExit as end:
                failed = f"exit code {end.code}" if end.code else ""
            except Exception:
                failed = traceback.format_exc()
        print(json.dumps([said.getvalue(), failed]), flush=True)


if __name__ == "__main__":
    sys.meta_path.insert(0, Refusing())
    in_turn() if sys.argv[1:] == ["--in-turn"] else main(*sys.argv[1:])
