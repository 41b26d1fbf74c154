"""Builds the small C libraries that are preloaded into ovs-vswitchd, once, into the user's cache."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from pathlib import Path

from fabric.errors import EmulationError
from fabric.world import cache

_SOURCES = tuple(Path(__file__).with_name(name) for name in ("honest_sendmmsg.c", "patient_switch.c"))
_BUILD_TIMEOUT_S = 60


def switch_library() -> Path:
    """Return the library of both C files, built if it is not yet. Raises EmulationError without a compiler."""
    digest = hashlib.sha256(b"".join(source.read_bytes() for source in _SOURCES)).hexdigest()[:16]
    library = cache.own() / f"switch-{digest}.so"
    if library.exists():
        return library
    compiler = shutil.which("cc")
    if compiler is None:
        raise EmulationError("userspace switching needs a C library of ours built: apt-get install gcc libc6-dev")
    library.parent.mkdir(parents=True, exist_ok=True)
    partial = library.with_suffix(f".{os.getpid()}.{os.urandom(4).hex()}")
    command = [compiler, "-O2", "-Wall", "-Werror", "-shared", "-fPIC", "-o", str(partial), *map(str, _SOURCES)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_BUILD_TIMEOUT_S, check=False)
    if done.returncode != 0:
        raise EmulationError(f"{_SOURCES[0].parent}: ovs-vswitchd's library does not compile: {done.stderr.strip()}")
    partial.replace(library)
    return library
