"""The C++ library by which PyTorch believes in GPUs: built once per version of PyTorch, into the cache."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from pathlib import Path

from fabric.errors import EmulationError
from fabric.world import cache

_SOURCE = Path(__file__).with_name("device.cpp")
_TIMEOUT_S = 600.0


def device_library(torch_home: Path) -> Path:
    """Return the library for the PyTorch of a folder, built if it is not yet. Raises EmulationError without a compiler,
    or with its words."""
    digest = hashlib.sha256(_SOURCE.read_bytes() + (torch_home / "version.py").read_bytes()).hexdigest()[:16]
    name = f"torch_device-{digest}.so"
    for place in cache.places():
        if (place / name).exists():
            return place / name
    built = cache.own() / name
    with cache.locked(built.with_suffix(".lock"), "building the library of GPUs", _TIMEOUT_S):
        if not built.exists():
            _build(built, torch_home)
    return built


def _build(built: Path, torch_home: Path) -> None:
    compiler = shutil.which("g++")
    if compiler is None:
        raise EmulationError("GPUs that are not there need a C++ library of ours built: apt-get install g++")
    unfinished = built.with_suffix(f".{os.getpid()}")
    libraries = [f"-L{torch_home / 'lib'}", "-lc10", "-ltorch_cpu"]
    flags = ["-O1", "-std=c++20", "-shared", "-fPIC", "-isystem", str(torch_home / "include")]
    words = [compiler, *flags, "-o", str(unfinished), str(_SOURCE), *libraries]
    done = subprocess.run(words, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
    if done.returncode:
        what = f"the library of GPUs does not compile for the PyTorch of {torch_home}"
        raise EmulationError(f"{what}: {done.stderr.strip()[-2000:]}")
    unfinished.replace(built)
