"""``fabric virtual``: the kernels of the virtual engine."""

from __future__ import annotations

import argparse
from pathlib import Path

from experiments.run.console import OUT, tell
from fabric.world.virtual import kernel


def add_options(parser: argparse.ArgumentParser) -> None:
    """Define ``fabric virtual``."""
    commands = parser.add_subparsers(required=True)
    text = "build it from the distribution's source, once"
    chosen = f"Several versions can be installed; {kernel.CHOICE}=6.1 in the environment chooses one."
    build = commands.add_parser("build", help=text, description=f"{text.capitalize()}. {chosen}")
    source = "archive of the source (default: one in /usr/src that is known to work, or else the newest there)"
    build.add_argument("--source", type=Path, metavar="FILE", help=source)
    build.set_defaults(command=build_kernel)
    show = commands.add_parser("list", help="list the kernels that are built; the first one is used")
    show.set_defaults(command=list_kernels)


def build_kernel(options: argparse.Namespace, _: list[str]) -> int:
    """Build the kernel of the virtual engine, unless it is built."""
    OUT.print(f"kernel: {kernel.build(tell, source=options.source).directory}", soft_wrap=True, highlight=False)
    return 0


def list_kernels(options: argparse.Namespace, _: list[str]) -> int:
    """Print the kernels that are built, the one that is used first; 1 if there is none."""
    used = kernel.find()
    for one in sorted(kernel.built(), key=lambda one: one != used):
        OUT.print(f"{one.version}  {one.release}  {one.directory}", soft_wrap=True, highlight=False)
    return 0 if used else 1
