"""The project's kernel modules: built once for each kernel and version of the source, found again, loaded.

The sources are in ``fabric/kernel``. ``fabric virtual build`` builds them for the guest. On a host they are built
against the headers of the kernel that runs, if it takes modules at all.
"""

from __future__ import annotations

import ctypes
import errno
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from fabric.errors import EmulationError
from fabric.world import cache

SOURCE = Path(__file__).resolve().parents[2] / "kernel"
VL = "sch_vl"
"""The module with the qdisc ``vl``."""
CONGESTION_CONTROLS = {"dcqcn": "tcp_dcqcn", "line": "tcp_line"}
"""The TCP congestion controls that are modules of the project's, and in which each is."""
RDMA_DCQCN = "rdma_dcqcn"
"""The module with DCQCN for queue pairs of soft RoCE."""
CACHE_NAME = "modules"
_BUILD_TIMEOUT_S = 600
_FINIT_MODULE = {"x86_64": 313, "aarch64": 273, "riscv64": 273}
_DELETE_MODULE = {"x86_64": 176, "aarch64": 106, "riscv64": 106}
"""System call numbers: the C library has no functions for them."""
_UNLOAD_TIMEOUT_S = 60.0
_UNLOAD_TRY_S = 0.005

_MODULES = Path("/proc/modules")
_SIGNATURES = {
    Path("/sys/module/module/parameters/sig_enforce"): ("Y",),
    Path("/sys/kernel/security/lockdown"): ("[integrity]", "[confidentiality]"),
}
"""What says, by which words, that modules must be signed."""

MakeCommand = Callable[[Path], Sequence[str]]
"""Returns the command that builds the modules of a directory against some kernel."""


def find(kernel: str, module: str = VL) -> Path | None:
    """Return a module built for ``kernel`` (as build was told) from the source as it is; None: there is none."""
    for place in cache.places():
        path = place / CACHE_NAME / _name(kernel) / f"{module}.ko"
        if path.is_file():
            return path
    return None


def build(kernel: str, command: MakeCommand) -> None:
    """Build all modules for ``kernel``, unless that has been done. Of several at once, one builds and the others wait.
    Raises EmulationError with the compiler's words."""
    if find(kernel) is not None:
        return
    with _alone():
        if find(kernel) is not None:
            return
        final = cache.own() / CACHE_NAME / _name(kernel)
        with tempfile.TemporaryDirectory(prefix=".building-", dir=final.parent) as scratch:
            for path in _sources():
                shutil.copy2(path, scratch)
            _make([*command(Path(scratch))])
            _place(Path(scratch), final)


def remove(kernel: str) -> None:
    """Forget the modules that were built here for ``kernel``, which is gone."""
    with _alone():
        shutil.rmtree(cache.own() / CACHE_NAME / _name(kernel), ignore_errors=True)


def put(kernel: str, directory: Path) -> None:
    """Let modules that were built elsewhere, for ``kernel`` and from the source as it is, be found here."""
    with _alone():
        _place(directory, cache.own() / CACHE_NAME / _name(kernel))


def _alone() -> AbstractContextManager[None]:
    """Let nobody else change what is built here during a block. Raises EmulationError."""
    place = cache.own()
    (place / CACHE_NAME).mkdir(parents=True, exist_ok=True)
    return cache.locked(place / f"{CACHE_NAME}.lock", "building the kernel modules", _BUILD_TIMEOUT_S)


def _place(built: Path, final: Path) -> None:
    """Let the modules of a directory be found, all at once, unless there are some: a run may be about to load those."""
    if (final / f"{VL}.ko").is_file():
        return
    with tempfile.TemporaryDirectory(prefix=".placing-", dir=final.parent) as scratch:
        ready = Path(scratch) / "ready"
        ready.mkdir()
        for path in built.glob("*.ko"):
            shutil.copy2(path, ready)
        shutil.rmtree(final, ignore_errors=True)  # What somebody left who took the module away.
        ready.rename(final)


def host_kernel() -> str:
    """Return the name under which modules for the kernel that runs are built and found."""
    return f"{platform.machine()}-{platform.release()}"


def host_make_command(directory: Path) -> list[str]:
    """Return the command that builds the modules of ``directory`` for the kernel that runs."""
    return ["make", "-C", str(_host_tree()), f"M={directory}", "modules"]


def why_not_on_host() -> str | None:
    """Return why this machine's own kernel cannot have modules of ours, with what would mend it; None: it can."""
    if not _MODULES.exists():
        return "this machine's kernel takes no modules (CONFIG_MODULES); use the virtual engine: --engine virtual"
    disabled = Path("/proc/sys/kernel/modules_disabled")
    if disabled.exists() and disabled.read_text().strip() == "1":
        return "loading modules is disabled until the next boot (sysctl kernel.modules_disabled)"
    if _wants_signatures():
        return "this kernel loads signed modules only (Secure Boot); use the virtual engine: --engine virtual"
    if not (_host_tree() / "Makefile").exists():
        return f"the kernel's headers are not installed; apt-get install linux-headers-{platform.release()}"
    if shutil.which("make") is None or shutil.which("gcc") is None:
        return "no compiler is installed; apt-get install build-essential"
    return None


def _wants_signatures() -> bool:
    """Whether the kernel that runs, as far as it says so, refuses modules that its maker has not signed."""
    return any(word in _read(file) for file, words in _SIGNATURES.items() for word in words)


def _read(file: Path) -> str:
    try:
        return file.read_text()
    except OSError:
        return ""


def is_loaded(module: str = VL) -> bool:
    """Return whether the kernel that runs has a module."""
    return Path("/sys/module", module).exists()


def loaded() -> frozenset[str]:
    """Return the names of the modules that the kernel that runs has loaded; none if it takes none."""
    try:
        return frozenset(line.split()[0] for line in _MODULES.read_text().splitlines())
    except FileNotFoundError:
        return frozenset()


def tell_what_stays(before: frozenset[str], tell: Callable[[str], None]) -> None:
    """Tell which modules came into this machine's kernel since ``before``: no end of a run takes them away.

    Nothing unloads them, since another run may be about to use them.
    """
    if new := sorted(loaded() - before):
        tell(f"kernel modules loaded meanwhile, which stay: {', '.join(new)}; modprobe -r NAME takes one away")


def load(path: Path, parameters: Mapping[str, int] | None = None) -> None:
    """Load a module with parameters, unless the kernel has it. Raises EmulationError with the kernel's reason.

    The kernel passes over parameters that a module does not have, with no more than a line in its log.
    """
    if is_loaded(path.stem):
        return
    words = " ".join(f"{name}={value}" for name, value in (parameters or {}).items())
    number = _FINIT_MODULE.get(platform.machine())
    if number is None:
        raise EmulationError(f"{path.stem}: cannot be loaded on {platform.machine()}; load it with: insmod {path}")
    libc = ctypes.CDLL(None, use_errno=True)
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if libc.syscall(number, descriptor, words.encode(), 0) != 0:
            reason = os.strerror(ctypes.get_errno())
            raise EmulationError(f"{path}: the kernel refuses to load it: {reason}; see its log (dmesg)")
    finally:
        os.close(descriptor)


def unload(module: str) -> None:
    """Take a module out of the kernel that runs, once nothing uses it any more; connections that end need a moment.

    Raises EmulationError if something uses it for longer, or with the kernel's reason.
    """
    number = _DELETE_MODULE.get(platform.machine())
    if number is None:
        raise EmulationError(f"{module}: cannot be taken out on {platform.machine()}; do it with: rmmod {module}")
    libc = ctypes.CDLL(None, use_errno=True)
    deadline = time.monotonic() + _UNLOAD_TIMEOUT_S
    while libc.syscall(number, module.encode(), os.O_NONBLOCK) != 0:
        fault = ctypes.get_errno()
        if fault != errno.EAGAIN or time.monotonic() >= deadline:
            users = _read(Path("/sys/module", module, "refcnt")).strip() or "unknown"
            raise EmulationError(
                f"{module}: the kernel keeps it: {os.strerror(fault)}; users after {_UNLOAD_TIMEOUT_S:g} s: {users}; "
                "end what uses it"
            )
        time.sleep(_UNLOAD_TRY_S)


def _host_tree() -> Path:
    return Path("/lib/modules", platform.release(), "build")


def _sources() -> list[Path]:
    return sorted(path for path in SOURCE.iterdir() if path.suffix in (".c", ".h") or path.name == "Kbuild")


def _name(kernel: str) -> str:
    digest = hashlib.sha256()
    for path in _sources():
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return f"{kernel}-{digest.hexdigest()[:12]}"


def _make(command: list[str]) -> None:
    what = "building the kernel modules"
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_BUILD_TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired as error:
        raise EmulationError(f"{what}: not done after {_BUILD_TIMEOUT_S} s") from error
    if done.returncode != 0:
        ending = "\n".join((done.stdout + done.stderr).splitlines()[-15:])
        raise EmulationError(f"{what}: {' '.join(command)} failed with exit code {done.returncode}:\n{ending}")
