"""The user's end of Mininet's prompt where that runs in a guest, which has no keyboard."""

from __future__ import annotations

import os
import sys

from rich.text import Text

from fabric.world.virtual.dialogue import LONGEST_LINE_BYTES
from runs.console import ERR

PROMPT = "mininet> "
"""Mininet's own."""


def ask() -> str | None:
    """Return the next line of stdin, showing the prompt; None at its end. Ctrl-C begins a new line, as in Mininet."""
    if sys.stdin is None:
        return None  # Closed before we came.
    if sys.stdin.isatty():
        import readline  # noqa: F401 - from now on input() has editing and history.
    while True:
        try:
            line = input(PROMPT)
        except EOFError:
            return None
        except KeyboardInterrupt:
            print("\nInterrupt")
            continue
        size_bytes = len(os.fsencode(line))
        if size_bytes < LONGEST_LINE_BYTES and "\0" not in line:
            return line
        why = f" a line of {size_bytes} bytes; the limit is {LONGEST_LINE_BYTES}, and none is NUL"
        ERR.print(Text.assemble(("not run:", "red"), why))
