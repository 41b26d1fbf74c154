"""``fabric completion``: a script by which a shell completes commands, options, experiments and topologies.

The script has all the words in it, so the shell answers by itself, at once; a program that is asked at every press of
Tab would have to load what it is asked about.
"""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import shtab

from app.commands.outputs import writing
from app.commands.parsers import CommandParser
from app.commands.top_parser import whole_parser
from runs.catalogue import EXPERIMENTS
from runs.console import OUT

SHELLS = ("bash", "zsh")
_TOPOLOGY_FILES, _CONFIG_FILES = ("*.yaml", "*.topo"), ("*.yaml",)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Define ``fabric completion``."""
    parser.description = (
        "Print a script that completes commands, options, experiments and topologies. Write it where your shell looks "
        "for such scripts, and anew after an update of this program."
    )
    parser.add_argument("shell", choices=SHELLS, help="which shell it is for")
    where = "write it into this file, in a new directory if need be (default: print it)"
    parser.add_argument("--out", type=Path, metavar="FILE", help=where)
    parser.set_defaults(command=print_script)


def print_script(options: argparse.Namespace, _: list[str]) -> int:
    """Print the script, or write it."""
    parser = whole_parser()
    mark_words(parser)
    script = shtab.complete(parser, options.shell, root_prefix="fabric")
    if options.out is None:
        print(script)
        return 0
    with writing(options.out):
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(f"{script}\n")
    OUT.print(f"written: {options.out}; new shells use it", soft_wrap=True, highlight=False)
    return 0


def mark_words(parser: CommandParser) -> None:
    """Tell the completion of each argument what its words are, by what help calls it."""
    from topologies.load import builtin_names

    experiments, topologies = list(EXPERIMENTS), builtin_names()
    kinds: dict[str, Any] = {
        "EXPERIMENT": _words("experiments", experiments, _CONFIG_FILES),
        "EXPERIMENT|FILE": _words("experiments", experiments, _CONFIG_FILES),
        "TOPOLOGY": _words("topologies", topologies, _TOPOLOGY_FILES),
        "TOPOLOGY|EXPERIMENT|FILE": _words("both", dict.fromkeys([*experiments, *topologies]), _TOPOLOGY_FILES),
        "DIR": shtab.DIRECTORY,
        "FOLDER": shtab.DIRECTORY,
    }
    for action in (action for one in parser.with_nested() for action in one._actions):
        name = action.metavar if isinstance(action.metavar, str) else ""
        complete = kinds.get(name, shtab.FILE if name.startswith("FILE") else None)
        if complete is not None:
            action.complete = complete  # type: ignore[attr-defined]


def _words(kind: str, words: Iterable[str], patterns: Iterable[str]) -> dict[str, Any]:
    """Return how shells complete some words, or files of these patterns, as shtab takes it."""
    function, listed = f"_fabric_{kind}", " ".join(words)
    files = "".join(f'  compgen -f -X "!{pattern}" -- "$1"\n' for pattern in patterns)
    bash = f'{function}() {{\n  compgen -W {shlex.quote(listed)} -- "$1"\n{files}  compgen -d -- "$1"\n}}'
    zsh = f"{function}() {{\n  compadd -- {listed}\n  _files -g {shlex.quote('|'.join(patterns).join('()'))}\n}}"
    return {"bash": function, "zsh": function, "preamble": {"bash": bash, "zsh": zsh}}
