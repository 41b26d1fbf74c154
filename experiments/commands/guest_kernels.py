"""``fabric virtual``: the kernels of the virtual engine."""

from __future__ import annotations

import argparse
import hashlib
from pathlib import Path

from experiments.run.console import OUT, tell
from fabric.units import format_size
from fabric.world.virtual import kernel, kernel_archive


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
    out = commands.add_parser("export", help="write the kernel that is used into a file, for another machine")
    out.add_argument("file", type=Path, metavar="FILE.tar.gz")
    out.set_defaults(command=write_kernel)
    into = commands.add_parser("import", help="install the kernel of such a file, which is a program that will be run")
    into.add_argument("file", type=Path, metavar="FILE.tar.gz")
    into.set_defaults(command=read_kernel)


def build_kernel(options: argparse.Namespace, _: list[str]) -> int:
    """Build the kernel of the virtual engine, unless it is built."""
    OUT.print(f"kernel: {kernel.build(tell, source=options.source).directory}", soft_wrap=True, highlight=False)
    return 0


def write_kernel(options: argparse.Namespace, _: list[str]) -> int:
    """Write the kernel that is used, with its modules, into a file, and print the file's SHA-256."""
    used = kernel.require()
    tell(f"compressing {used.directory}; this takes half a minute")
    file = kernel_archive.export_kernel(used, options.file)
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    OUT.print(f"kernel {used.release}: {file}, {format_size(file.stat().st_size)}", soft_wrap=True, highlight=False)
    OUT.print(f"sha256: {digest}", soft_wrap=True, highlight=False)
    return 0


def read_kernel(options: argparse.Namespace, _: list[str]) -> int:
    """Install the kernel of a file."""
    OUT.print(f"kernel: {kernel_archive.import_kernel(options.file).directory}", soft_wrap=True, highlight=False)
    return 0


def list_kernels(options: argparse.Namespace, _: list[str]) -> int:
    """Print the kernels that are built, the one that is used first; 1 if there is none."""
    used = kernel.find()
    for one in sorted(kernel.built(), key=lambda one: one != used):
        OUT.print(f"{one.version}  {one.release}  {one.directory}", soft_wrap=True, highlight=False)
    return 0 if used else 1
