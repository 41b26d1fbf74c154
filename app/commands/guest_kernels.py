"""``fabric virtual``: the kernels of the virtual engine."""

from __future__ import annotations

import argparse
import hashlib
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from app.commands.options import time_s
from fabric.errors import EmulationError, FabricError
from fabric.units import format_size
from fabric.world.virtual import forking, kernel, kernel_archive, kernel_fetch
from runs.console import OUT, tell
from runs.launching.enter import IMPORTS
from runs.launching.events import Event
from runs.launching.launcher import launch
from runs.launching.spec import RunSpec

_ALSO_WARM = ("app.commands.top_parser", "app.commands.exec_program", "app.commands.path")
"""What the commands need that are not runs, but bring a fabric up."""
_TRAINED_BY = RunSpec(
    str(Path(__file__).resolve().parents[2] / "experiments" / "isolation" / "true_rate.yaml"),
    {
        "queueings": ["lanes", "lossless_lanes"],
        "alone_time": "0.3 ms",
        "together_time": "0.5 ms",
        "hfreduce.size": "2 MiB",
        "nccl.size": "2 MiB",
    },
    engine="virtual",
    draws=False,
)
"""What a kernel is built by the profile of: all kinds of traffic through both kinds of queues."""
_TRAINING_TIMEOUT_S = 900


def add_options(parser: argparse.ArgumentParser) -> None:
    """Define ``fabric virtual``."""
    commands = parser.add_subparsers(required=True, metavar="build|fetch|list|export")
    text = "build it from the distribution's source, once"
    chosen = f"Several versions can be installed; {kernel.CHOICE}=6.1 in the environment chooses one."
    build = commands.add_parser("build", help=text, description=f"{text.capitalize()}. {chosen}")
    source = "archive of the source (default: one in /usr/src that is known to work, or else the newest there)"
    build.add_argument("--source", type=Path, metavar="FILE", help=source)
    pgo = (
        "build it by a profile of itself (GCC's -fprofile-use): takes twice as long, and passes more packets per second"
    )
    build.add_argument("--pgo", action="store_true", help=pgo)
    build.set_defaults(command=build_kernel)
    text = "install one that a release or fabric virtual export has written, without a compiler"
    fetch = commands.add_parser("fetch", help=text, description=f"{text.capitalize()}: a program that will be run.")
    where = (
        "its .tar.gz or .whl, a file or a URL (with #sha256=HEX, if given), or a package index or directory of wheels"
    )
    fetch.add_argument("where", metavar="FILE|URL|INDEX", help=where)
    fetch.set_defaults(command=fetch_kernel)
    show = commands.add_parser("list", help="list the kernels that are built; the first one is used")
    show.set_defaults(command=list_kernels)
    _add_warm(commands)
    out = commands.add_parser("export", help="write the kernel that is used into a file, for another machine")
    out.add_argument("file", type=Path, metavar="FILE.tar.gz", help="the file to write")
    out.set_defaults(command=write_kernel)


def build_kernel(options: argparse.Namespace, _: list[str]) -> int:
    """Build the kernel of the virtual engine, unless it is built."""
    if options.pgo:
        made = kernel.build_by_profile(_train, tell, source=options.source)
    else:
        made = kernel.build(tell, source=options.source)
    OUT.print(f"kernel: {made.directory}", soft_wrap=True, highlight=False)
    return 0


def _train(name: str) -> None:
    """Have the kernel of that name run what the profile is of. Raises EmulationError with what the run says."""
    started_s = time.monotonic()

    def verify_in_time(_: Event) -> None:
        if time.monotonic() - started_s > _TRAINING_TIMEOUT_S:
            raise EmulationError(f"it took more than {_TRAINING_TIMEOUT_S} s")

    try:
        with tempfile.TemporaryDirectory(prefix="fabric-profile-") as scratch, _chosen(name):
            launch(replace(_TRAINED_BY, directory=Path(scratch) / "run"), verify_in_time)
    except FabricError as error:
        raise EmulationError(f"{_TRAINED_BY.experiment} failed on the kernel to be profiled: {error}") from error


@contextmanager
def _chosen(name: str) -> Iterator[None]:
    """Have runs that start within a block use the kernel of that name."""
    before = os.environ.get(kernel.CHOICE)
    os.environ[kernel.CHOICE] = name
    try:
        yield
    finally:
        os.environ.pop(kernel.CHOICE)
        if before is not None:
            os.environ[kernel.CHOICE] = before


def write_kernel(options: argparse.Namespace, _: list[str]) -> int:
    """Write the kernel that is used, with its modules, into a file, and print the file's SHA-256."""
    used = kernel.require()
    tell(f"compressing {used.directory}; this takes half a minute")
    file = kernel_archive.export_kernel(used, options.file)
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    OUT.print(f"kernel {used.release}: {file}, {format_size(file.stat().st_size)}", soft_wrap=True, highlight=False)
    OUT.print(f"sha256: {digest}", soft_wrap=True, highlight=False)
    return 0


def fetch_kernel(options: argparse.Namespace, _: list[str]) -> int:
    """Install the kernel of a release."""
    OUT.print(f"kernel: {kernel_fetch.fetch_kernel(options.where).directory}", soft_wrap=True, highlight=False)
    return 0


def list_kernels(options: argparse.Namespace, _: list[str]) -> int:
    """Print the kernels that are built, the one that is used first; 1 if there is none."""
    used = kernel.find()
    for one in sorted(kernel.built(), key=lambda one: one != used):
        OUT.print(f"{one.version}  {one.release}  {one.directory}", soft_wrap=True, highlight=False)
    return 0 if used else 1


def _add_warm(commands: Any) -> None:
    """Define the command among those of ``fabric virtual``."""
    text = "keep guests that have booted, and fabrics that are up, for the next commands of this account"
    how = (
        "Start it beside your work, in the background or in a terminal of its own. Commands in virtual time then start "
        "in a fork of a guest that waits, with the same figures, until Ctrl-C. Guests take 200 MB and more each, ten "
        "at most. After a change of the program's sources, commands boot guests of their own: start it again."
    )
    warm = commands.add_parser("warm", help=text, description=f"{text.capitalize()}. {how}")
    idle = "end once no command has come for so long (default: %(default)s)"
    warm.add_argument("--idle", type=time_s, default="30min", metavar="TIME", help=idle)
    warm.set_defaults(command=keep_warm)


def keep_warm(options: argparse.Namespace, _: list[str]) -> int:
    """Keep guests warm until nobody needs them, or Ctrl-C."""
    forking.warm((*IMPORTS, *_ALSO_WARM), options.idle, tell)
    return 0
