"""Builds the guest kernel, once, from the source package of the distribution.

A built kernel lives in a directory of its own in the cache, named after the source it was built from and a fingerprint
of what this package adds to it (``kernel.config``, ``init.c``, ``host.c``, :mod:`fabric.world.virtual.edits`). It gets
that name only when it is complete, so a half-built kernel is never used, and several versions can coexist::

    linux         the kernel, an ordinary program
    init          PID 1 of the guest
    host.so       what is loaded into the kernel's process on the host
    kernel.json   the kernel's release, the addresses of its virtual clock and of the program that runs, if it has verbs
    tree/         what modules are built against

One that was built by a profile of itself (:func:`build_by_profile`) has a name that ends in ``-pgo``.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import platform
import re
import shutil
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from fabric.errors import EmulationError, UsageError
from fabric.world import cache
from fabric.world.kernel_api import modules
from fabric.world.virtual import edits
from fabric.world.virtual.kernel_build import TRIED, Maker, Progress, build_by_profile_into, build_into

HERE = Path(__file__).resolve().parent
SOURCE_DIRECTORY = Path("/usr/src")
CACHE_NAME = "virtual"
CHOICE = "FABRIC_GUEST_KERNEL"
"""The environment's choice among several kernels: a version, such as 6.12, or 6.12-pgo."""
PGO = "pgo"
"""What the names of kernels end in that were built by a profile (GCC's profile-guided optimization),"""
TRIAL = "trial"
"""and of one whose profile is being taken."""
LAYOUT = 4
"""Raised when a kernel built by an older version of this file can no longer be used."""

TOOLS = {
    "gcc": "build-essential",
    "make": "build-essential",
    "perl": "build-essential",
    "nm": "build-essential",
    "tar": "tar",
    "flex": "flex",
    "bison": "bison",
    "bc": "bc",
}
"""Programs that the build starts, and the package of Debian and Ubuntu that each comes in."""
_ANOTHERS_TIMEOUT_S = 4 * 3600.0
"""How long another build into the cache is waited for: one by a profile builds twice, on one core for an hour each."""
UNPACKERS = {".xz": ("xz", "xz-utils"), ".bz2": ("bzip2", "bzip2"), ".gz": ("gzip", "gzip")}


@dataclass(frozen=True)
class KernelPaths:
    """A complete guest kernel."""

    directory: Path

    @property
    def kernel(self) -> Path:
        """The kernel, a program of the host."""
        return self.directory / "linux"

    @property
    def init(self) -> Path:
        """The guest's first process."""
        return self.directory / "init"

    @property
    def host_library(self) -> Path:
        """The library that ties the kernel's process to ours and seeds it."""
        return self.directory / "host.so"

    @property
    def tree(self) -> Path:
        """What modules are built against."""
        return self.directory / "tree"

    @property
    def release(self) -> str:
        """What ``uname -r`` says in the guest."""
        return str(self._facts()["release"])

    @property
    def version(self) -> str:
        """The version of the source, as its package has it: ``6.12``."""
        return self.directory.name.split("-")[1]

    @property
    def name(self) -> str:
        """What chooses it among others: the version, or ``6.12-pgo``."""
        return "-".join([self.version, *self.directory.name.split("-")[4:]])

    @property
    def is_by_profile(self) -> bool:
        """Whether it was built by a profile of itself."""
        return self.name.endswith(f"-{PGO}")

    @property
    def clock_address(self) -> int:
        """Where the kernel's process holds the virtual time, in ns since its boot (64 bits)."""
        return int(str(self._facts()["clock_address"]))

    @property
    def running_address(self) -> int:
        """Where it holds which program runs: its number (32 bits), 8 bytes on the address of its name."""
        return int(str(self._facts()["running_address"]))

    @property
    def has_verbs(self) -> bool:
        """Whether hosts can have RDMA devices: its source had a place for our changes of soft RoCE."""
        return bool(self._facts()["has_verbs"])

    def module_command(self, directory: Path) -> list[str]:
        """Return the command that builds the kernel modules of ``directory``."""
        return _module_command(self.tree, directory)

    def module(self, name: str) -> Path:
        """Return a module of the project for this kernel. Raises EmulationError if it is not built."""
        path = modules.find(self.directory.name, name)
        if path is None:
            raise EmulationError(
                f"the module {name} is not built for the guest kernel; build it with: fabric virtual build"
            )
        return path

    def _facts(self) -> dict[str, object]:
        facts: dict[str, object] = json.loads((self.directory / "kernel.json").read_text())
        return facts


def cache_directory() -> Path:
    """Return where this account builds kernels."""
    return cache.own() / CACHE_NAME


def source_archives(directory: Path = SOURCE_DIRECTORY) -> list[Path]:
    """Return the kernel source archives that are installed, in the order in which they are to be tried.

    Those of versions that were tried come first, then newer before older.
    """
    found = {path.resolve() for pattern in ("", "*/") for path in directory.glob(f"{pattern}linux-source-*.tar.*")}
    return sorted((path for path in found if path.suffix in UNPACKERS), key=_preference, reverse=True)


def source_of(one: KernelPaths) -> Path | None:
    """Return the installed archive of which a kernel was built; None: it is gone, or there in another version."""
    name = one.directory.name.removesuffix(f"-{PGO}")
    return next((archive for archive in source_archives() if _name(archive) == name), None)


def missing_packages(source: Path | None = None) -> list[str]:
    """Return the packages of Debian and Ubuntu that are missing to build a kernel here, from ``source`` if given."""
    missing = {package for tool, package in TOOLS.items() if shutil.which(tool) is None}
    archives = source_archives() if source is None else [source]
    if not archives:
        missing.add("linux-source")
    elif (unpacker := UNPACKERS[archives[0].suffix]) and shutil.which(unpacker[0]) is None:
        missing.add(unpacker[1])
    return sorted(missing)


def built() -> list[KernelPaths]:
    """Return the kernels that :func:`build` and :func:`build_by_profile` made for this account, or root made for all,
    the preferred ones first.

    These are those of versions that were tried, in their order, then newer before older; of one version those of the
    source that is installed, and the one built by a profile.
    """
    current = {_name(archive) for archive in source_archives()}
    return sorted(
        (one for one in _there() if not one.name.endswith(f"-{TRIAL}")),
        key=lambda one: (
            *_preference(one.directory),
            one.directory.name.removesuffix(f"-{PGO}") in current,
            one.is_by_profile,
        ),
        reverse=True,
    )


def is_ours(name: str) -> bool:
    """Return whether a directory of this name holds a kernel of this version of the program."""
    return re.fullmatch(rf"linux-[\d.]+-[0-9a-f]{{8}}-{fingerprint()}(-{PGO}|-{TRIAL})?", name) is not None


def _there() -> list[KernelPaths]:
    found: dict[str, KernelPaths] = {}
    for place in (place / CACHE_NAME for place in cache.places()):
        for path in place.glob(f"linux-*-{fingerprint()}*"):
            if is_ours(path.name) and (path / "kernel.json").is_file():
                found.setdefault(path.name, KernelPaths(path))
    return list(found.values())


def find() -> KernelPaths | None:
    """Return the kernel that guests run: of those built the one that the environment chooses, or the preferred one.

    Returns None if no kernel is built. Raises UsageError if the one chosen is not.
    """
    kernels = built()
    chosen = os.environ.get(CHOICE)
    if not chosen:
        return kernels[0] if kernels else None
    for kernel in kernels + _there():
        if kernel.name == chosen:
            return kernel
    there = ", ".join(kernel.name for kernel in kernels) or "none"
    raise UsageError(f"{CHOICE}={chosen}: no such guest kernel is built ({there}); fabric virtual build --source FILE")


def require() -> KernelPaths:
    """Return the built kernel. Raises EmulationError if there is none."""
    kernel = find()
    if kernel is None:
        raise EmulationError(
            f"no guest kernel in {cache_directory()}; build it: fabric virtual build, or fetch that "
            "of a release: fabric virtual fetch FILE"
        )
    return kernel


def running() -> KernelPaths:
    """Return, in a guest, the built kernel that it runs, whichever others there are. Raises EmulationError."""
    release = platform.release()
    for kernel in built() + _there():
        if kernel.release == release:
            return kernel
    raise EmulationError(f"this guest's kernel, {release}, is not built any more; build it with: fabric virtual build")


def build(
    progress: Progress = lambda text: None, *, jobs: int | None = None, source: Path | None = None
) -> KernelPaths:
    """Return the kernel of ``source``, building it if need be; by default of the source that is installed of the
    version which the environment chooses, or of the preferred one.

    That takes minutes, with ``jobs`` compilers at once. Says what it does through ``progress``. Raises EmulationError
    if something is missing, no guest can be built from that source, or the build fails, and UsageError if the version
    chosen is not installed.
    """
    archive = _ready_to_build(source)
    final = cache_directory() / _name(archive)
    if (made := _made(final, source)) is None:
        with locked(progress):
            if not _is_complete(final):
                build_into(final, archive, progress, jobs or os.cpu_count() or 1)
        made = KernelPaths(final)
    modules.build(made.directory.name, made.module_command)
    return made


def build_by_profile(
    train: Callable[[str], None],
    progress: Progress = lambda text: None,
    *,
    jobs: int | None = None,
    source: Path | None = None,
) -> KernelPaths:
    """Return the kernel of ``source``, chosen as :func:`build` does, that is built by a profile of itself, building it
    if need be.

    ``train`` has a kernel do what the profile is to be of; its name is what CHOICE is to be in the environment
    meanwhile. That takes twice as long as to build one without. Raises as :func:`build` does.
    """
    archive = _ready_to_build(source)
    final, trial = (cache_directory() / f"{_name(archive)}-{kind}" for kind in (PGO, TRIAL))

    def profile(maker: Maker) -> None:
        one = KernelPaths(trial)
        modules.build(trial.name, functools.partial(_module_command, maker.tree))
        try:
            train(one.name)
        finally:
            modules.remove(trial.name)

    with locked(progress):
        if not _is_complete(final):
            build_by_profile_into(final, archive, progress, jobs or os.cpu_count() or 1, trial, profile)
    made = KernelPaths(final)
    modules.build(final.name, made.module_command)
    return made


def _made(final: Path, source: Path | None) -> KernelPaths | None:
    """Return the kernel that is there and does for ``final``: itself, or the one built by a profile of the same source,
    unless the environment chooses otherwise."""
    by_profile = final.with_name(f"{final.name}-{PGO}")
    if (chosen := os.environ.get(CHOICE, "")).endswith(f"-{PGO}") and source is None:
        if not _is_complete(by_profile):
            raise UsageError(f"{CHOICE}={chosen}: no such guest kernel is built; fabric virtual build --pgo")
        return KernelPaths(by_profile)
    candidates = (final,) if chosen else (by_profile, final)
    return next((KernelPaths(one) for one in candidates if _is_complete(one)), None)


def _is_complete(directory: Path) -> bool:
    return (directory / "kernel.json").is_file()


def _module_command(tree: Path, directory: Path) -> list[str]:
    return ["make", "-C", str(tree), "ARCH=um", f"M={directory}", "modules"]


def _version(archive: Path) -> tuple[int, ...]:
    """Return the version in the name of an archive, or of what was built from one."""
    found = re.search(r"linux-(?:source-)?(\d+(?:\.\d+)*)", archive.name)
    return tuple(map(int, found[1].split("."))) if found else ()


def _preference(archive: Path) -> tuple[int, tuple[int, ...]]:
    version = _version(archive)
    name = ".".join(map(str, version[:2]))
    return -TRIED.index(name) if name in TRIED else -len(TRIED), version


@functools.cache
def fingerprint() -> str:
    """Return what tells kernels as this package changes them from those of its other versions."""
    digest = hashlib.sha256(str(LAYOUT).encode())
    digest.update(edits.digest().encode())
    for name in (
        "kernel.config",
        "init.c",
        "host.c",
        "going_round.h",
        "instructions.h",
        "forking.h",
        "headers.h",
        "own_names.h",
    ):
        digest.update((HERE / name).read_bytes())
    return digest.hexdigest()[:12]


def _name(archive: Path) -> str:
    """Name the build of ``archive``: a security update has the same file name, but not the same size and time."""
    status = archive.stat()
    source = hashlib.sha256(f"{archive.name} {status.st_size} {int(status.st_mtime)}".encode()).hexdigest()[:8]
    version = ".".join(map(str, _version(archive)))
    return f"linux-{version}-{source}-{fingerprint()}"


def _ready_to_build(source: Path | None) -> Path:
    if platform.machine() != "x86_64":
        raise EmulationError(f"the guest kernel needs an x86-64 machine, this is {platform.machine()}")
    if source is not None and not (source.is_file() and source.suffix in UNPACKERS and _version(source)):
        raise UsageError(f"{source}: not an archive of a kernel's source, as /usr/src/linux-source-6.12.tar.xz is")
    if missing := missing_packages(source):
        raise EmulationError(f"building the guest kernel needs: sudo apt-get install {' '.join(missing)}")
    return _chosen_archive() if source is None else source.resolve()


def _chosen_archive() -> Path:
    """Return the source that is built unless one is named. Raises UsageError if the version chosen is not installed."""
    archives, chosen = source_archives(), os.environ.get(CHOICE, "").removesuffix(f"-{PGO}")
    if not chosen:
        return archives[0]
    versions = {".".join(map(str, _version(archive))): archive for archive in reversed(archives)}
    if chosen in versions:
        return versions[chosen]
    there = ", ".join(reversed(versions))
    raise UsageError(
        f"{CHOICE}={chosen}: no source of this version is in {SOURCE_DIRECTORY} ({there}); "
        "install it, name an archive (--source), or unset the variable"
    )


def locked(progress: Progress = lambda text: None) -> AbstractContextManager[None]:
    """Let one build at a time into the cache. Raises EmulationError."""
    return cache.locked(cache_directory() / "lock", "building a guest kernel", _ANOTHERS_TIMEOUT_S, progress)
