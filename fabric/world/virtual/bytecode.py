"""Compiled Python modules for guests: always the same, whatever else this machine has compiled.

Whether Python finds a module compiled or compiles it costs time, and decides how memory is laid out. Guests therefore
take compiled modules from a directory of their own, filled by one procedure before they start: importing the project,
once for each state of its sources and of what is installed. What that misses is compiled in the guest, every time.
"""

from __future__ import annotations

import hashlib
import os
import site
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from fabric import pythons_distutils
from fabric.errors import EmulationError
from fabric.world import cache
from fabric.world.programs.packages import OF_DISTRIBUTION

ROOT = Path(__file__).resolve().parents[3]
PACKAGES = ("fabric", "topologies", "controllers", "traffic", "cluster", "runs", "experiments", "app")
LATE = ("matplotlib.backends.backend_agg", "matplotlib.backends.backend_svg", "pyarrow.parquet", "scapy.all")
"""What the project imports when it first needs it."""
TIMEOUT_S = 600.0
# The last are the controller's: they run where eventlet has patched the standard library, in which Mininet cannot be
# loaded.
_IMPORT = """
import contextlib, importlib, sys
from controllers.app.launcher import patch_standard_library
launcher = patch_standard_library.__module__
patched = {name for name in sys.argv[1:] if name.startswith(launcher.rpartition(".")[0])}
for name in sorted(sys.argv[1:], key=patched.__contains__):
    if name in patched:
        patch_standard_library()
    with contextlib.suppress(ImportError):
        importlib.import_module(name)
"""


def prepare(progress: Callable[[str], None] = lambda text: None) -> Path:
    """Return the directory of compiled modules, filled for the sources as they are. Raises EmulationError."""
    directory = cache.own() / "bytecode" / sys.implementation.cache_tag
    directory.mkdir(parents=True, exist_ok=True)
    stamp = directory / f"complete-{fingerprint()}"
    if not stamp.exists():
        with cache.locked(directory / "lock", "compiling Python modules for the guest", TIMEOUT_S, progress):
            if not stamp.exists():
                progress("compiling Python modules for the guest, once")
                _fill(directory)
                stamp.touch()
    return directory


def _fill(directory: Path) -> None:
    ours = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    try:
        done = subprocess.run(
            [sys.executable, "-c", _IMPORT, *sorted(_modules()), *LATE],
            env={
                **ours,
                **pythons_distutils.ENVIRONMENT,
                "PYTHONPYCACHEPREFIX": str(directory),
                "PYTHONPATH": _with_root(ours.get("PYTHONPATH", "")),
            },
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise EmulationError(f"compiling Python modules into {directory} took more than {TIMEOUT_S:g} s") from error
    if done.returncode != 0:
        ending = done.stderr.decode(errors="replace")[-500:]
        raise EmulationError(f"compiling Python modules into {directory} failed with {done.returncode}:\n{ending}")


def _with_root(path: str) -> str:
    return f"{ROOT}:{path}" if path else str(ROOT)


def _sources() -> Iterator[Path]:
    for package in PACKAGES:
        yield from sorted((ROOT / package).rglob("*.py"))


def _modules() -> Iterator[str]:
    for source in _sources():
        name = ".".join(source.relative_to(ROOT).with_suffix("").parts)
        if not name.endswith("__main__"):
            yield name.removesuffix(".__init__")


def fingerprint() -> str:
    """Return a name for the state of our sources, of the packages beside them and of Python itself."""
    digest = hashlib.sha256(f"{_IMPORT} {LATE} {sys.version} {sys.prefix}".encode())
    for source in _sources():
        status = source.stat()
        digest.update(f"{source} {status.st_size} {status.st_mtime_ns}".encode())
    for place in filter(Path.is_dir, map(Path, _package_directories())):
        names = sorted(entry.name for entry in place.iterdir() if entry.suffix in (".dist-info", ".egg-info"))
        digest.update(f"{place} {names}".encode())
    digest.update(f"{sorted(entry.name for entry in OF_DISTRIBUTION.glob('mininet-*'))}".encode())
    return digest.hexdigest()[:16]


def _package_directories() -> list[str]:
    return [*site.getsitepackages(), *([site.getusersitepackages()] if site.ENABLE_USER_SITE else [])]
