"""``python -m tests.without_instruments PROGRAM...``: runs a program where what emulates cannot be imported.

What reads, plans or draws is to work on a machine without Mininet and a controller's libraries.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
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
    sys.meta_path.insert(0, Refusing())
    sys.argv = ["program", *arguments]
    exec(compile(program, "<program>", "exec"), {"__name__": "__main__"})


if __name__ == "__main__":
    main(*sys.argv[1:])
