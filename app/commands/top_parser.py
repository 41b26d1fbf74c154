"""The parser of ``fabric`` itself, which imports a command's module once that command is asked for."""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Sequence

from app.commands.catalogue import COMMANDS, USAGE, grouped_help
from app.commands.parsers import CommandParser

_DISTRIBUTION = "ai-fabric-emulator"


class _TopParser(CommandParser):
    """The parser of ``fabric`` itself."""

    def format_help(self) -> str:
        """Return the help with commands in groups."""
        return grouped_help()

    def parsed(self, words: Sequence[str]) -> argparse.Namespace:
        """Return what words say; without any, end with the help and exit code 2.

        A script whose variable is empty has failed, so it is not a success; and what it reads on stdout is no answer.
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
    module = importlib.import_module(f"app.commands.{command.module}")
    getattr(module, command.function)(parser)
    parser.add_examples(command.examples)
