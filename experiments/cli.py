"""The ``fabric`` command: which command it is, and what becomes of its errors.

A command's module is imported once that command is asked for, so that ``fabric --help`` answers at once. Exit codes:
0 done, and the verdict is not ``invalid``; 1 failed; 2 wrong use or config; 3 done, but ``invalid``.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Callable, Sequence
from typing import NamedTuple, NoReturn

from fabric.errors import FabricError, UsageError


class Command(NamedTuple):
    """A command: what ``fabric --help`` says of it, and the function that gives its parser options, by name."""

    help: str
    module: str
    function: str = "add_options"


COMMANDS = {
    "doctor": Command("show what this machine can do, and how to fix what is missing", "doctor"),
    "topo": Command("inspect a topology", "topologies", "add_topo_options"),
    "check": Command("report every fault of a topology or an experiment's config", "topologies", "add_check_options"),
    "list": Command("list the experiments, one per line", "listing", "add_list_options"),
    "keys": Command("list the keys of an experiment's config, with type, limits, default and meaning", "keys"),
    "new": Command("write a folder with an experiment that runs, to be changed into your own", "new"),
    "run": Command("run an experiment and write its directory (root)", "run"),
    "sweep": Command("run a grid of settings times seeds, of which only what is missing is run", "sweep"),
    "replay": Command("play a workload file of another project on a fabric: htsim's connection matrices", "replay"),
    "reproduce": Command("published setups: what was published, what theory says, and ours", "reproduce"),
    "path": Command("show the path between two hosts: by the plan, or of a real packet", "path"),
    "shell": Command("bring the fabric up with Mininet's prompt (root)", "shell"),
    "exec": Command("run an unmodified program on hosts of the fabric (root)", "exec_program"),
    "validate": Command("test links, bandwidth and storage of a fabric; exit code 1 if it has faults", "validate"),
    "calibrate": Command(
        "find the rate at which this machine carries a topology with a fifth of its CPU idle (root)", "calibrate"
    ),
    "bench": Command("run the measurements that docs/performance.md quotes (root)", "bench"),
    "virtual": Command("build or list kernels of the virtual engine", "guest_kernels"),
    "plot": Command("draw the figures of a result", "results", "add_plot_options"),
    "report": Command("write a result as one self-contained page", "results", "add_report_options"),
    "view": Command("write or serve an interactive page to look into results", "view"),
    "timeline": Command("write a result as a trace for Perfetto and chrome://tracing", "timeline"),
    "compare": Command("compare results", "results", "add_compare_options"),
    "cost": Command("what results cost the machine: wall time, memory, packets per second, and how it grows", "cost"),
}
"""By name, in the order of ``fabric --help``. Modules are those of :mod:`experiments.commands`."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    words, program = _split_at_dashes(arguments)
    options = parser_for(words).parse_args(words)
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
        return 1
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


def parser_for(words: Sequence[str]) -> argparse.ArgumentParser:
    """Return a parser that knows all commands by name, and the options of the one that ``words`` begin with."""
    parser = argparse.ArgumentParser(prog="fabric", description="Emulate AI-cluster fabrics with real packets.")
    parsers = parser.add_subparsers(required=True, metavar="COMMAND")
    for name, command in COMMANDS.items():
        of_command = parsers.add_parser(name, help=command.help)
        if words and words[0] == name:
            module = importlib.import_module(f"experiments.commands.{command.module}")
            getattr(module, command.function)(of_command)
    return parser


def _end(code: int) -> NoReturn:
    """End this process with an exit code, and with it the world that it is the first of, if it is."""
    inside = sys.modules.get("fabric.world.inside")  # What needs no world has not imported it, and is quick.
    if inside is not None and inside.is_inside():
        inside.leave(code)
    sys.exit(code)


if __name__ == "__main__":
    _end(main())
