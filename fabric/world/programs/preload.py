"""Builds small C programs, and the C libraries that are preloaded into programs that know nothing of them."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from fabric.errors import EmulationError
from fabric.world import cache

_SOURCES = tuple(Path(__file__).with_name(name) for name in ("honest_sendmmsg.c", "patient_switch.c"))
_BUILD_TIMEOUT_S = 60


def switch_library() -> Path:
    """Return the library of ovs-vswitchd's two C files, built into the user's cache if it is not yet.

    Raises EmulationError without a compiler.
    """
    return cached_library("switch", _SOURCES, "userspace switching")


def polled_queues() -> Path:
    """Return the library for programs that poll RDMA's queues, built as :func:`switch_library` is."""
    return cached_library("polled_queues", [Path(__file__).with_name("polled_queues.c")], "verbs")


def seeded_random() -> Path:
    """Return the library for programs that ask the processor for random numbers, built as :func:`switch_library` is."""
    return cached_library("seeded_random", [Path(__file__).with_name("seeded_random.c")], "drawing by the run's seed")


def cached_program(name: str, sources: Sequence[Path], what: str, includes: Sequence[Path] = ()) -> Path:
    """Return a program of C files, built into the user's cache if it is not yet. ``what`` needs it, as an error says;
    ``includes``: the files that they include.

    Raises EmulationError without a compiler.
    """
    return _cached(name, "", sources, build_program, what, includes)


def cached_library(
    name: str, sources: Sequence[Path], what: str, links: Sequence[str] = (), includes: Sequence[Path] = ()
) -> Path:
    """Return a library of C files, linked to others, built into the user's cache if it is not yet, as
    :func:`cached_program` does."""

    return _cached(name, ".so", sources, partial(build_library, links=links), what, includes)


def build_library(library: Path, sources: Sequence[Path], what: str, links: Sequence[str] = ()) -> None:
    """Compile C files into a library, which is there only whole. ``what`` needs it, as an error says.

    Raises EmulationError without a compiler, and with its words if the files do not compile.
    """
    _build(library, sources, ("-shared", "-fPIC"), f"{what} needs a C library of ours", links)


def build_program(program: Path, sources: Sequence[Path], what: str) -> None:
    """Compile C files into a program, as :func:`build_library` does into a library."""
    _build(program, sources, [], f"{what} needs a C program of ours")


def _cached(
    name: str,
    suffix: str,
    sources: Sequence[Path],
    build: Callable[[Path, Sequence[Path], str], None],
    what: str,
    includes: Sequence[Path] = (),
) -> Path:
    digest = hashlib.sha256(b"".join(source.read_bytes() for source in [*sources, *includes])).hexdigest()[:16]
    built = cache.own() / f"{name}-{digest}{suffix}"
    if not built.exists():
        built.parent.mkdir(parents=True, exist_ok=True)
        build(built, sources, what)
    return built


def _build(built: Path, sources: Sequence[Path], kind: Sequence[str], needed: str, links: Sequence[str] = ()) -> None:
    compiler = shutil.which("cc")
    if compiler is None:
        raise EmulationError(f"{needed} built: apt-get install gcc libc6-dev")
    unfinished = built.with_suffix(f".{os.getpid()}.{os.urandom(4).hex()}")
    flags = ["-O2", "-Wall", "-Wno-format-truncation", "-Werror", *kind]
    command = [compiler, *flags, "-o", str(unfinished), *map(str, sources), *links, "-ldl"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_BUILD_TIMEOUT_S, check=False)
    if done.returncode != 0:
        files = ", ".join(map(str, sources))
        raise EmulationError(f"{needed}; it does not compile: {files}: {done.stderr.strip()}")
    unfinished.replace(built)
