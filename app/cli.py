"""The ``fabric`` command: which command it is, and what becomes of its errors.

A command's module is imported once that command is asked for, so that ``fabric --help`` answers at once. Exit codes:
0 done, and the verdict is not ``invalid``; 1 failed; 2 wrong use or config; 3 done, but ``invalid``; 130 interrupted.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from typing import NoReturn

from app.whose_packages import why_not_ours

try:
    from app.commands.top_parser import parser_for as parser_for
    from fabric.errors import FabricError, UsageError
    from fabric.garbage import uncollected
except ImportError:
    if (_why := why_not_ours()) is None:
        raise
    sys.exit(f"error: {_why}")

_INTERRUPTED = 128 + 2
"""As shells tell that SIGINT ended a program."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    if (why := why_not_ours()) is not None:
        return _refused(UsageError(why))
    arguments = list(sys.argv[1:] if argv is None else argv)
    words, program = _split_at_dashes(arguments)
    if words[:1] == ["help"]:
        words = [*words[1:], "--help"]
    with uncollected():
        options = parser_for(words).parsed(words)
    if program and words[:1] != ["exec"] and words[:2] != ["cluster", "submit"]:
        return _refused(UsageError("only fabric exec and fabric cluster submit take a program after two dashes"))
    options.program = program
    return carried_out(options, arguments)


def carried_out(options: argparse.Namespace, arguments: list[str]) -> int:
    """Carry out the command that words have been read as; return its exit code."""
    command: Callable[[argparse.Namespace, list[str]], int] = options.command
    try:
        code = command(options, arguments)
        sys.stdout.flush()  # Whoever has gone is to be missed here, not when the process ends.
        return code
    except FabricError as error:
        return _refused(error)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return _INTERRUPTED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Whoever read us has gone; end quietly.
        return 1


def _refused(error: FabricError) -> int:
    """Print an error and return its exit code."""
    try:
        from rich.text import Text

        from runs.console import ERR
    except ImportError:  # Another's package is in the place of ours.
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code

    ERR.print(Text.assemble(("error:", "bold red"), f" {error}"), soft_wrap=True)
    return error.exit_code


def _split_at_dashes(arguments: list[str]) -> tuple[list[str], list[str]]:
    """Return the words before a ``--`` and those after it: a program's, which are not ours to read."""
    if "--" not in arguments:
        return arguments, []
    place = arguments.index("--")
    return arguments[:place], arguments[place + 1 :]


def end(code: int) -> NoReturn:
    """End this process with an exit code, and with it the world that it is the first of, if it is."""
    inside = sys.modules.get("fabric.world.inside")  # What needs no world has not imported it, and is quick.
    if inside is not None and inside.is_inside():
        inside.leave(code)
    sys.exit(code)


if __name__ == "__main__":
    end(main())
