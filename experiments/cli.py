"""The ``fabric`` command: which command it is, and what becomes of its errors.

A command's module is imported once that command is asked for, so that ``fabric --help`` answers at once. Exit codes:
0 done, and the verdict is not ``invalid``; 1 failed; 2 wrong use or config; 3 done, but ``invalid``; 130 interrupted.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Callable, Sequence
from typing import NoReturn

from experiments.commands.catalogue import COMMANDS, USAGE, grouped_help
from experiments.commands.parsers import CommandParser
from fabric.errors import FabricError, UsageError

_INTERRUPTED = 128 + 2
"""As shells tell that SIGINT ended a program."""
_DISTRIBUTION = "ai-fabric-emulator"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    words, program = _split_at_dashes(arguments)
    if words[:1] == ["help"]:
        words = [*words[1:], "--help"]
    options = parser_for(words).parsed(words)
    if program and words[:1] != ["exec"]:
        return _refused(UsageError("only fabric exec takes a program after two dashes"))
    options.program = program
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
    from experiments.run.console import ERR, escaped

    ERR.print(f"[bold red]error:[/] {escaped(str(error))}", highlight=False, soft_wrap=True)
    return error.exit_code


def _split_at_dashes(arguments: list[str]) -> tuple[list[str], list[str]]:
    """Return the words before a ``--`` and those after it: a program's, which are not ours to read."""
    if "--" not in arguments:
        return arguments, []
    place = arguments.index("--")
    return arguments[:place], arguments[place + 1 :]


class _TopParser(CommandParser):
    """The parser of ``fabric`` itself."""

    def format_help(self) -> str:
        """Return the help with commands in groups."""
        return grouped_help()

    def parsed(self, words: Sequence[str]) -> argparse.Namespace:
        """Return what words say; without any, end with the help and exit code 2.

        A script whose variable is empty has failed, so it is no success; and what it reads on stdout is no answer.
        """
        if not words:
            self.exit(2, grouped_help())
        return super().parsed(words)


class _ShowVersion(argparse.Action):
    """Prints the version and ends: only then is what knows it loaded."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from importlib.metadata import version

        print(f"fabric {version(_DISTRIBUTION)}")
        parser.exit()


def parser_for(words: Sequence[str]) -> CommandParser:
    """Return a parser that knows all commands by name, and the options of the one that ``words`` begin with."""
    parser = _TopParser(prog="fabric", usage=USAGE)
    parser.add_argument("--version", action=_ShowVersion, nargs=0, help="show the version and exit")
    parsers = parser.add_subparsers(required=True, metavar="COMMAND", prog="fabric", parser_class=CommandParser)
    for name in COMMANDS:
        of_command = parsers.add_parser(name, help=COMMANDS[name].help)
        if words and words[0] == name:
            _add_options(of_command, name)
    return parser


def whole_parser() -> CommandParser:
    """Return a parser that knows the options of all commands; it takes seconds to load what these need."""
    parser = parser_for(())
    for name, of_command in (parser.nested() or {}).items():
        _add_options(of_command, name)
    return parser


def _add_options(parser: CommandParser, name: str) -> None:
    command = COMMANDS[name]
    parser.description = f"{command.help[0].upper()}{command.help[1:]}."
    module = importlib.import_module(f"experiments.commands.{command.module}")
    getattr(module, command.function)(parser)
    parser.add_examples(command.examples)


def _end(code: int) -> NoReturn:
    """End this process with an exit code, and with it the world that it is the first of, if it is."""
    inside = sys.modules.get("fabric.world.inside")  # What needs no world has not imported it, and is quick.
    if inside is not None and inside.is_inside():
        inside.leave(code)
    sys.exit(code)


if __name__ == "__main__":
    _end(main())
