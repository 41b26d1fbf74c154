"""Installs libraries of others in the cache: ``python -m experiments.libraries.installing [NAME ...]``.

Wheels go into an environment of the library's own; Debian's packages are unpacked beside it, and not installed. So none
changes the machine or this program's environment, and root is not needed.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
import venv
from collections.abc import Sequence
from pathlib import Path

from experiments.libraries.catalogue import FRAMEWORKS, LIBRARIES, Library, library_named
from fabric.errors import EmulationError, FabricError
from fabric.world import cache

_TIMEOUT_S = 1800.0
_LAST = 600


def install(library: Library) -> Path:
    """Install a library, unless it is, and return where. Raises EmulationError if a part of it cannot be had."""
    missing = [program for program in library.programs if shutil.which(program) is None]
    if missing:
        raise EmulationError(f"{library.name}: needs {', '.join(missing)} of this machine (docs/libraries.md)")
    place = cache.own() / "libraries"
    with cache.locked(place / f".{library.folder}", f"installing {library.name}", _TIMEOUT_S):
        if (home := library.home()) is not None:
            return home
        home = place / library.folder
        shutil.rmtree(home, ignore_errors=True)
        home.mkdir(parents=True)
        if library.wheels:
            venv.create(home, with_pip=True)
            _carry_out(library, [str(home / "bin" / "python"), "-m", "pip", "install", "--quiet", *library.wheels])
        if library.packages:
            _unpack(library, home)
        library.installed(home)
        return home


def _unpack(library: Library, home: Path) -> None:
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        directory.chmod(0o755)  # So that apt's own account can write what it fetches.
        _carry_out(library, ["apt-get", "download", *library.packages], directory)
        for package in sorted(directory.glob("*.deb")):
            _carry_out(library, ["dpkg", "-x", str(package), str(home)])


def _carry_out(library: Library, words: Sequence[str], directory: Path | None = None) -> None:
    try:
        done = subprocess.run(words, cwd=directory, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise EmulationError(f"{library.name}: {words[0]}: {error}") from error
    if done.returncode:
        said = (done.stderr or done.stdout).strip()[-_LAST:]
        raise EmulationError(f"{library.name}: {' '.join(words)} ended with {done.returncode}: {said}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Install what is named, or all; return 1 if one could not be."""
    parser = argparse.ArgumentParser(prog="python -m experiments.libraries.installing", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="a library, or frameworks; without one, all libraries")
    names = parser.parse_args(arguments).names
    failed = False
    try:
        libraries = [FRAMEWORKS if name == FRAMEWORKS.name else library_named(name) for name in names] or LIBRARIES
        for library in libraries:
            try:
                print(f"{library.name}: {install(library)}", flush=True)
            except EmulationError as error:
                failed = True
                print(error, file=sys.stderr, flush=True)
    except FabricError as error:
        print(error, file=sys.stderr)
        return 2
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
