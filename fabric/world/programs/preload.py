"""Builds small C programs, and the C libraries that are preloaded into programs that know nothing of them."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from fabric.errors import EmulationError
from fabric.world import cache

_SOURCES = tuple(Path(__file__).with_name(name) for name in ("honest_sendmmsg.c", "patient_switch.c"))
_BUILD_TIMEOUT_S = 60


def switch_library() -> Path:
    """Return the library of ovs-vswitchd's two C files, built into the user's cache if it is not yet.

    Raises EmulationError without a compiler.
    """
    digest = hashlib.sha256(b"".join(source.read_bytes() for source in _SOURCES)).hexdigest()[:16]
    library = cache.own() / f"switch-{digest}.so"
    if not library.exists():
        library.parent.mkdir(parents=True, exist_ok=True)
        build_library(library, _SOURCES, "userspace switching")
    return library


def build_library(library: Path, sources: Sequence[Path], what: str) -> None:
    """Compile C files into a library, which is there only whole. ``what`` needs it, as an error says.

    Raises EmulationError without a compiler, and with its words if the files do not compile.
    """
    _build(library, sources, ["-shared", "-fPIC"], f"{what} needs a C library of ours")


def build_program(program: Path, sources: Sequence[Path], what: str) -> None:
    """Compile C files into a program, as :func:`build_library` does into a library."""
    _build(program, sources, [], f"{what} needs a C program of ours")


def _build(built: Path, sources: Sequence[Path], kind: Sequence[str], needed: str) -> None:
    compiler = shutil.which("cc")
    if compiler is None:
        raise EmulationError(f"{needed} built: apt-get install gcc libc6-dev")
    partial = built.with_suffix(f".{os.getpid()}.{os.urandom(4).hex()}")
    flags = ["-O2", "-Wall", "-Wno-format-truncation", "-Werror", *kind]
    command = [compiler, *flags, "-o", str(partial), *map(str, sources), "-ldl"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_BUILD_TIMEOUT_S, check=False)
    if done.returncode != 0:
        files = ", ".join(map(str, sources))
        raise EmulationError(f"{needed}; it does not compile: {files}: {done.stderr.strip()}")
    partial.replace(built)
