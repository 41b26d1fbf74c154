"""A built guest kernel as one file, so that another machine, or a release, can have it without a compiler.

The file is a gzipped tar: the kernel's directory under its name, and the project's modules for it under ``modules``. A
kernel is of one version of this program (:func:`fabric.world.virtual.kernel.fingerprint`), and so is its file.
"""

from __future__ import annotations

import os
import shutil
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from fabric.errors import EmulationError, UsageError
from fabric.world.kernel_api import modules
from fabric.world.virtual import kernel
from fabric.world.virtual.kernel import KernelPaths

_MODULES = "modules"
_COMPLETE = "kernel.json"
_MODE = 0o755
"""What of a file's mode is kept."""


def export_kernel(one: KernelPaths, file: Path) -> Path:
    """Write a built kernel with its modules into a new file; return it. Raises UsageError, EmulationError."""
    if file.exists():
        raise UsageError(f"{file}: already exists; give a new name")
    module = modules.find(one.directory.name)
    if module is None:
        raise EmulationError("the modules of this kernel are not built; build them with: fabric virtual build")
    partial = file.with_name(f"{file.name}.partial")
    with tarfile.open(partial, "w:gz", compresslevel=6) as archive:
        archive.add(one.directory, arcname=one.directory.name, filter=_anonymous)
        for path in sorted(module.parent.iterdir()):
            archive.add(path, arcname=f"{_MODULES}/{path.name}", filter=_anonymous)
    partial.rename(file)
    return file


def _anonymous(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """Let whoever unpacks own it."""
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member


def import_kernel(file: Path) -> KernelPaths:
    """Put an exported kernel where a built one would be; return it. Raises UsageError if it is none for us."""
    place = kernel.cache_directory()
    place.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".importing-", dir=place) as scratch:
        name = _unpack(file, Path(scratch))
        final = place / name
        with kernel.locked():
            if not (final / _COMPLETE).is_file():
                shutil.rmtree(final, ignore_errors=True)
                (Path(scratch) / name).rename(final)
        if modules.find(name) is None:
            modules.put(name, Path(scratch) / _MODULES)
    return KernelPaths(final)


def _unpack(file: Path, directory: Path) -> str:
    """Unpack a file and return the kernel's name. Raises UsageError, before anything is written, if it is not ours."""
    try:
        with tarfile.open(file, "r:gz") as archive:
            members = list(archive)
            name = _name_in(file, members)
            archive.extractall(directory, list(_harmless(file, members)))
    except (OSError, tarfile.TarError, EOFError) as error:
        raise UsageError(
            f"{file}: cannot be read: {error}; give a file that fabric virtual export has written"
        ) from error
    return name


def _name_in(file: Path, members: list[tarfile.TarInfo]) -> str:
    names = {PurePosixPath(member.name).parts[0] for member in members if member.name not in ("", ".")} - {_MODULES}
    found = {member.name for member in members}
    if len(names) != 1 or f"{next(iter(names))}/{_COMPLETE}" not in found:
        raise UsageError(f"{file}: holds no guest kernel; give a file that fabric virtual export has written")
    name = names.pop()
    if not kernel.is_ours(name):
        wanted = f"this version of the program needs one of {kernel.fingerprint()}"
        raise UsageError(f"{file}: holds {name}, of another version; {wanted}: fabric virtual build")
    return name


def _harmless(file: Path, members: list[tarfile.TarInfo]) -> Iterator[tarfile.TarInfo]:
    """Yield members as this account's. Raises UsageError for one that would be written, or lead, elsewhere."""
    for member in members:
        target = PurePosixPath(member.name).parent / member.linkname if member.issym() else member.name
        outside = any(os.path.normpath(path).startswith(("/", "..")) for path in (member.name, target))
        if outside or not (member.isreg() or member.isdir() or member.issym()):
            raise UsageError(f"{file}: {member.name}: is not a file of a kernel's own directory; do not use this file")
        member.uid, member.gid, member.uname, member.gname = os.geteuid(), os.getegid(), "", ""
        member.mode &= _MODE
        yield member
