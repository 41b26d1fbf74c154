"""Writes what a release consists of into a directory, ``dist``: ``make release``.

::

    ai_fabric_emulator-VERSION-py3-none-any.whl, .tar.gz    the package, and its source
    guest-linux-VERSION-....tar.gz                          the virtual engine's kernel, built
    ai_fabric_emulator_guest-VERSION+....whl                the same for package indexes (fabric virtual fetch)
    guest-linux-VERSION-....SOURCE.txt                      what its complete source is, and that it is offered
    linux-source-VERSION.tar.xz                             the part of that which is not in the package's source
    SHA256SUMS                                              of all of them, for sha256sum -c

A kernel is a work under GPL-2.0-only: who passes it on passes its source on.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tools")]

from guest_wheel import write_wheel  # noqa: E402

from fabric.errors import EmulationError, FabricError  # noqa: E402
from fabric.world.virtual import kernel, kernel_archive  # noqa: E402
from fabric.world.virtual.kernel import KernelPaths  # noqa: E402

BUILD_TIMEOUT_S = 300
BLOCK_BYTES = 1 << 20
SUMS = "SHA256SUMS"

OFFER = """\
Source of {kernel}
{underline}

This archive, and the wheel ai_fabric_emulator_guest with it inside, holds a Linux kernel (`linux`, with the headers
and objects that modules are built against in `tree/`), kernel modules, a program that the kernel starts (`init`), and
a library that is loaded into the kernel's process (`host.so`).

Kernel and modules are under the GNU General Public License, version 2 only (LICENSES/GPL-2.0-only.txt in the source
archive named below). They come without any warranty. Their complete corresponding source is in these two files:

1. {source}
   The kernel as Debian has it: the file {path} of the package
   {package}, version {version} (source package {source_package}, version {source_version}).

2. {sdist}
   What was changed in it and added to it, the configuration, and the programs that build it:
   fabric/world/virtual/ (patches/, *.inc, edits.py, patch_files.py, kernel.config, init.c, host.c, kernel_build.py) and
   fabric/kernel/ (modules).

Both lie beside this file. Whoever passes the archive on must pass them on as well, from the same place or together with
it (section 3 of the licence). To build the archive from them, on a machine with Debian's {built_with}:

    pip install ./{sdist}
    fabric virtual build --source ./{source}
    fabric virtual export FILE.tar.gz

`init` is linked statically with the GNU C library (LGPL-2.1 or later), of Debian's package libc6-dev, version {libc};
the library's source is Debian's source package glibc of that version. `init.c` in the second file lets it be linked
again.
"""


@dataclass(frozen=True)
class Origin:
    """Which package of the distribution a file is of."""

    package: str
    version: str
    source_package: str
    source_version: str


def main() -> int:
    """Write a release; 2 if something for it is missing."""
    parser = argparse.ArgumentParser(description="Writes a release into a directory.")
    parser.add_argument("directory", type=Path, nargs="?", default=ROOT / "dist", help="default: %(default)s")
    directory: Path = parser.parse_args().directory
    try:
        write_release(directory)
    except FabricError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(f"release: {directory}")
    for file in sorted(directory.iterdir()):
        print(f"  {file.name}  {file.stat().st_size:,} bytes")
    return 0


def write_release(directory: Path) -> None:
    """Write all files of a release into a directory, whose files of an earlier one go. Raises FabricError."""
    one = kernel.require()
    source = kernel.source_of(one)
    if source is None:
        raise EmulationError(
            f"{one.directory.name}: the source that it was built from is not in {kernel.SOURCE_DIRECTORY} any more; "
            "a release has to pass it on; build a kernel from the one that is there: fabric virtual build"
        )
    origin = origin_of(source)
    clear(directory)
    sdist = build_package(directory)
    archive = kernel_archive.export_kernel(one, directory / f"guest-{one.directory.name}.tar.gz")
    shutil.copyfile(source, directory / source.name)
    offer = directory / f"{archive.name.removesuffix('.tar.gz')}.SOURCE.txt"
    offer.write_text(source_offer(one, archive.name, source, origin, sdist.name))
    write_wheel(archive, [ROOT / "LICENSES" / "GPL-2.0-only.txt", offer], directory)
    (directory / SUMS).write_text(sums(directory))


def clear(directory: Path) -> None:
    """Make a directory empty, or make it. Raises EmulationError if it holds what no release has written."""
    directory.mkdir(parents=True, exist_ok=True)
    found = sorted(directory.iterdir())
    if found and not (directory / SUMS).is_file():
        raise EmulationError(f"{directory}: holds {found[0].name} and no {SUMS}, so no release; name another directory")
    for path in found:
        path.unlink()


def build_package(directory: Path) -> Path:
    """Build the source distribution and from it the wheel; return the first. Raises EmulationError."""
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(directory), str(ROOT)]
    done = subprocess.run(
        command,
        env={**os.environ, **_date_of_commit()},
        capture_output=True,
        text=True,
        timeout=BUILD_TIMEOUT_S,
        check=False,
    )
    if done.returncode != 0:
        raise EmulationError(
            f"building the package failed with {done.returncode}:\n{(done.stdout + done.stderr)[-1500:]}"
        )
    return next(directory.glob("*.tar.gz"))


def _date_of_commit() -> dict[str, str]:
    """Return what dates files in archives: the same commit makes the same files."""
    command = ["git", "-C", str(ROOT), "log", "-1", "--format=%ct"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    return {"SOURCE_DATE_EPOCH": done.stdout.strip()} if done.returncode == 0 else {}


def origin_of(file: Path) -> Origin:
    """Return the package that brought a file. Raises EmulationError if none did."""
    owner = _dpkg("--search", str(file))
    if owner is None:
        raise EmulationError(
            f"{file}: of no package of the distribution, so its source cannot be named; build the kernel from the "
            "package linux-source, and release that"
        )
    package = owner.partition(":")[0]
    fields = ("Package", "Version", "source:Package", "source:Version")
    shown = _dpkg("--show", "--showformat", "\n".join(f"${{{field}}}" for field in fields), package)
    assert shown is not None, f"dpkg-query knows {package} and does not show it"
    return Origin(*shown.splitlines())


def _dpkg(*words: str) -> str | None:
    try:
        done = subprocess.run(["dpkg-query", *words], capture_output=True, text=True, timeout=60, check=False)
    except FileNotFoundError as error:
        raise EmulationError("dpkg-query: not found; a release is made on Debian or Ubuntu") from error
    return done.stdout.strip() if done.returncode == 0 else None


def source_offer(one: KernelPaths, archive: str, source: Path, origin: Origin, sdist: str) -> str:
    """Return what says that a kernel's source is offered, and where it is."""
    return OFFER.format(
        kernel=archive,
        underline="=" * (len("Source of ") + len(archive)),
        source=source.name,
        path=source,
        package=origin.package,
        version=origin.version,
        source_package=origin.source_package,
        source_version=origin.source_version,
        sdist=sdist,
        built_with=f"gcc {_dpkg('--show', '--showformat', '${Version}', 'gcc') or 'of its default version'}",
        libc=_dpkg("--show", "--showformat", "${Version}", "libc6-dev") or "unknown",
    )


def sums(directory: Path) -> str:
    """Return the SHA-256 of each file of a directory, as sha256sum writes them."""
    return "".join(f"{_sha256(path)}  {path.name}\n" for path in sorted(directory.iterdir()) if path.name != SUMS)


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(BLOCK_BYTES):
            digest.update(block)
    return digest.hexdigest()


if __name__ == "__main__":
    sys.exit(main())
