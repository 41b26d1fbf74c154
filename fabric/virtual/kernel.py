"""Builds the guest kernel, once, from the source package of the distribution.

A built kernel lives in a directory of its own in the cache, named after the source it was built from and a fingerprint
of what this package adds to it (``kernel.config``, ``init.c``, ``host.c`` and :data:`EDITS`). It gets that name only
when it is complete, so a half-built kernel is never used::

    linux         the kernel, an ordinary program
    init          PID 1 of the guest
    host.so       what is loaded into the kernel's process on the host
    kernel.json   the kernel's release and the address of its virtual clock
    tree/         what modules are built against
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from fabric import cache, modules
from fabric.errors import EmulationError

HERE = Path(__file__).resolve().parent
SOURCE_DIRECTORY = Path("/usr/src")
CACHE_NAME = "virtual"
CLOCK_SYMBOL = "time_travel_time"
LAYOUT = 1
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
UNPACKERS = {".xz": ("xz", "xz-utils"), ".bz2": ("bzip2", "bzip2"), ".gz": ("gzip", "gzip")}

Progress = Callable[[str], None]


@dataclass(frozen=True)
class Edit:
    """A change of the source, made where ``old`` is; it must be there exactly once."""

    file: str
    old: str
    new: str


EDITS = (
    # The clock in ns, not in steps of 256 ns, and timers as fine: a full frame takes 168 ns at 200 Gbit/s.
    Edit(
        "arch/um/include/linux/time-internal.h",
        "#define TIMER_MULTIPLIER 256",
        "void time_travel_call_failed(void);\n#define TIMER_MULTIPLIER 1",
    ),
    Edit("arch/um/include/linux/time-internal.h", "#define TIMER_MIN_DELTA  500", "#define TIMER_MIN_DELTA  1"),
    Edit("arch/um/kernel/time.c", "time_travel_update_time_rel(TIMER_MULTIPLIER);", "time_travel_clock_was_read();"),
    Edit(
        "arch/um/kernel/time.c", "static u64 timer_read(", (HERE / "clock.c.inc").read_text() + "static u64 timer_read("
    ),
    # A system call that fails takes 1 ns instead of 1 us, in which timers were late and no frame got further.
    Edit("arch/um/kernel/skas/syscall.c", "um_udelay(1);", "time_travel_call_failed();"),
    Edit("arch/um/kernel/time.c", "#include <asm/irq.h>\n", "#include <asm/irq.h>\n#include <asm/unistd.h>\n"),
    # Rates that are right within far less than the 0.3 % by which whole ns miss them at 200 Gbit/s.
    Edit(
        "include/net/sch_generic.h",
        "static inline u64 psched_l2t_ns(",
        (HERE / "rate.h.inc").read_text() + "static inline u64 psched_l2t_ns(",
    ),
    Edit(
        "include/net/sch_generic.h",
        "return ((u64)len * r->mult) >> r->shift;",
        "return ((u64)len * r->mult + psched_fraction(r->shift)) >> r->shift;",
    ),
    # A frame that has left a host is no longer charged to its sender's socket, as a NIC has it. TCP sends on only while
    # little of a connection waits on the host ("small queues"), and would else count what waits anywhere in the fabric.
    Edit(
        "drivers/net/veth.c",
        "\tskb_tx_timestamp(skb);\n",
        "\tif (skb->sk)\n\t\tskb_orphan(skb);\n\tskb_tx_timestamp(skb);\n",
    ),
    # TCP's shortest timers are two ticks long: 20 ms as it is, 2 ms like this.
    Edit("arch/um/Kconfig", "config HZ\n\tint\n\tdefault 100\n", "config HZ\n\tint\n\tdefault 1000\n"),
)
"""What no option of the kernel can say."""


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
    def clock_address(self) -> int:
        """Where the kernel's process holds the virtual time, in ns since its boot (64 bits)."""
        return int(str(self._facts()["clock_address"]))

    def module_command(self, directory: Path) -> list[str]:
        """Return the command that builds the kernel modules of ``directory``."""
        return ["make", "-C", str(self.tree), "ARCH=um", f"M={directory}", "modules"]

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
    """Return the kernel source archives that are installed, newest kernel first."""
    found = {path.resolve() for pattern in ("", "*/") for path in directory.glob(f"{pattern}linux-source-*.tar.*")}
    return sorted((path for path in found if path.suffix in UNPACKERS), key=_version, reverse=True)


def missing_packages() -> list[str]:
    """Return the packages of Debian and Ubuntu to install before a kernel can be built here."""
    missing = {package for tool, package in TOOLS.items() if shutil.which(tool) is None}
    archives = source_archives()
    if not archives:
        missing.add("linux-source")
    elif (unpacker := UNPACKERS[archives[0].suffix]) and shutil.which(unpacker[0]) is None:
        missing.add(unpacker[1])
    return sorted(missing)


def find() -> KernelPaths | None:
    """Return the kernel that :func:`build` made for this account, or root made for all; None if there is none."""
    preferred = [_name(archive) for archive in source_archives()[:1]]
    for place in (place / CACHE_NAME for place in cache.places()):
        others = sorted((path.name for path in place.glob(f"linux-*-{_fingerprint()}")), reverse=True)
        for name in (*preferred, *others):
            if (place / name / "kernel.json").is_file():
                return KernelPaths(place / name)
    return None


def require() -> KernelPaths:
    """Return the built kernel. Raises EmulationError if there is none."""
    kernel = find()
    if kernel is None:
        raise EmulationError(f"no guest kernel in {cache_directory()}; build it with: fabric virtual build")
    return kernel


def build(progress: Progress = lambda text: None, *, jobs: int | None = None) -> KernelPaths:
    """Return the kernel of the newest source installed, building it if need be (minutes; ``jobs`` compilers at once).

    Says what it does through ``progress``. Raises EmulationError if something is missing or the build fails.
    """
    archive = _ready_to_build()
    directory = cache_directory()
    directory.mkdir(parents=True, exist_ok=True)
    with _locked(directory / "lock", progress):
        final = directory / _name(archive)
        if not (final / "kernel.json").is_file():
            _build(archive, final, progress, jobs or os.cpu_count() or 1)
    built = KernelPaths(final)
    modules.build(final.name, built.module_command)
    return built


def lacking_options(fragment: str, config: str) -> list[str]:
    """Return the options that ``fragment`` asks for and a kernel's ``config`` lacks, optional ones left out."""
    required = fragment.split("\n# optional\n")[0].splitlines()
    granted = set(config.splitlines())
    return [line for line in required if line.startswith("CONFIG_") and line not in granted]


def _version(archive: Path) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", archive.name.split(".tar")[0]))


def _fingerprint() -> str:
    digest = hashlib.sha256(str(LAYOUT).encode())
    digest.update(repr(EDITS).encode())
    for name in ("kernel.config", "init.c", "host.c"):
        digest.update((HERE / name).read_bytes())
    return digest.hexdigest()[:12]


def _name(archive: Path) -> str:
    """Name the build of ``archive``: a security update has the same file name, but not the same size and time."""
    status = archive.stat()
    source = hashlib.sha256(f"{archive.name} {status.st_size} {int(status.st_mtime)}".encode()).hexdigest()[:8]
    version = ".".join(map(str, _version(archive)))
    return f"linux-{version}-{source}-{_fingerprint()}"


def _ready_to_build() -> Path:
    if platform.machine() != "x86_64":
        raise EmulationError(f"the guest kernel needs an x86-64 machine, this is {platform.machine()}")
    if missing := missing_packages():
        raise EmulationError(f"building the guest kernel needs: sudo apt-get install {' '.join(missing)}")
    return source_archives()[0]


@contextmanager
def _locked(path: Path, progress: Progress) -> Iterator[None]:
    """Let one build at a time into a cache; the kernel frees the lock of a build that was killed."""
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            progress("waiting for another build to finish")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _build(archive: Path, final: Path, progress: Progress, jobs: int) -> None:
    for abandoned in final.parent.glob(".building-*"):
        shutil.rmtree(abandoned)  # Of a build that was killed: we hold the lock.
    work = Path(tempfile.mkdtemp(prefix=".building-", dir=final.parent))
    log = final.parent / "build.log"
    try:
        work.chmod(0o755)
        with log.open("w") as output:
            maker = _Maker(work, output.fileno(), log, progress)
            _compile_helpers(maker)
            progress(f"unpacking {archive.name}")
            maker.tree.mkdir()
            maker.run(
                ["tar", "xf", str(archive), "--strip-components=1", "-C", str(maker.tree)], "unpacking the source"
            )
            _edit(maker.tree)
            _configure(maker)
            maker.make([f"-j{jobs}", "linux", "modules_prepare", "modules"], "compiling the kernel")
            _collect(maker)
        shutil.rmtree(final, ignore_errors=True)
        work.rename(final)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    progress(f"built {final}")


@dataclass(frozen=True)
class _Maker:
    """Runs the commands of one build."""

    work: Path
    output: int
    log: Path
    progress: Progress

    @property
    def tree(self) -> Path:
        return self.work / "tree"

    def run(self, command: Sequence[str], what: str) -> None:
        """Run a command into the log. Raises EmulationError with the end of the log."""
        done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=self.output, stderr=self.output, check=False)
        if done.returncode != 0:
            self.fail(what, done.returncode)

    def make(self, targets: Sequence[str], what: str) -> None:
        """Run make in the tree, telling the number of files compiled about once a second."""
        command = ["make", "-C", str(self.tree), "ARCH=um", *targets]
        pipe = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=self.output, text=True
        )
        compiled, told_s = 0, time.monotonic()
        assert pipe.stdout is not None
        with pipe:
            for line in pipe.stdout:
                os.write(self.output, line.encode())
                compiled += line.lstrip().startswith(("CC ", "AS "))
                if compiled and time.monotonic() - told_s > 1:
                    self.progress(f"{what}: {compiled} files")
                    told_s = time.monotonic()
        if pipe.returncode != 0:
            self.fail(what, pipe.returncode)

    def fail(self, what: str, code: int) -> None:
        """Raise EmulationError with the end of the log."""
        ending = "\n".join(self.log.read_text(errors="replace").splitlines()[-15:])
        raise EmulationError(f"{what} failed with exit code {code}; all of it is in {self.log}, which ends:\n{ending}")


def _compile_helpers(maker: _Maker) -> None:
    """Compile the two small programs first: a missing C library shows before the long part."""
    what = "compiling a C program (package build-essential)"
    gcc = ["gcc", "-std=gnu11", "-O2", "-Wall"]
    maker.run([*gcc, "-static", "-o", str(maker.work / "init"), str(HERE / "init.c")], what)
    library = ["-shared", "-fPIC", "-o", str(maker.work / "host.so"), str(HERE / "host.c"), "-ldl"]
    maker.run([*gcc, *library], what)


def _edit(tree: Path) -> None:
    for edit in EDITS:
        path = tree / edit.file
        text = path.read_text()
        if text.count(edit.old) != 1:
            raise EmulationError(
                f"{edit.file} of this kernel source has no place for a change of ours; try another version"
            )
        path.write_text(text.replace(edit.old, edit.new))


def _configure(maker: _Maker) -> None:
    fragment = HERE / "kernel.config"
    maker.make([f"KCONFIG_ALLCONFIG={fragment}", "allnoconfig"], "configuring the kernel")
    if lacking := lacking_options(fragment.read_text(), (maker.tree / ".config").read_text()):
        options = ", ".join(lacking)
        raise EmulationError(f"this kernel source cannot have {options}; install a newer linux-source package")


def _collect(maker: _Maker) -> None:
    """Put what a run needs beside the tree, and keep of the tree what building a module needs."""
    maker.progress("tidying up")
    shutil.copy2(maker.tree / "linux", maker.work / "linux")
    facts = {"release": _read_release(maker.tree), "clock_address": _clock_address(maker.tree / "linux")}
    maker.run(["strip", "--strip-debug", str(maker.work / "linux")], "stripping the kernel")
    _prune(maker.tree)
    (maker.work / "kernel.json").write_text(json.dumps(facts, indent=2) + "\n")


def _read_release(tree: Path) -> str:
    return (tree / "include/config/kernel.release").read_text().strip()


def _clock_address(kernel: Path) -> int:
    symbols = subprocess.run(["nm", str(kernel)], capture_output=True, text=True, check=True).stdout
    for line in symbols.splitlines():
        if line.endswith(f" {CLOCK_SYMBOL}"):
            return int(line.split()[0], 16)
    raise EmulationError(f"the kernel built has no {CLOCK_SYMBOL}: its virtual clock cannot be read")


def _prune(tree: Path) -> None:
    """Delete what no module build reads: most of 1.5 GB."""
    for name in ("Documentation", "sound", "samples", "tools", "drivers", "fs", "LICENSES"):
        for path in (tree / name).rglob("*"):
            if path.is_file() and not path.name.startswith(("Kconfig", "Makefile", "Kbuild")):
                path.unlink()
    for path in (tree / "arch").iterdir():
        if path.is_dir() and path.name not in ("um", "x86"):
            shutil.rmtree(path)
    for path in tree.rglob("*"):
        if path.suffix in (".c", ".o", ".a", ".S", ".cmd") and "scripts" not in path.parts and not path.is_dir():
            path.unlink()
    for name in ("vmlinux", "linux", "vmlinux.symvers"):
        (tree / name).unlink(missing_ok=True)
