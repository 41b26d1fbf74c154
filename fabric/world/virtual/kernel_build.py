"""The steps of a guest kernel's build: its source is unpacked, changed, configured and compiled, what runs need kept.

A kernel may be built twice, the second time guided by a profile of the first (GCC's profile-guided optimization): code
that runs often lies together and falls through its branches. What is profiled is what frames, timers and calls go
through; ``patches/6.1/profile.patch`` says which directories.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from fabric.errors import EmulationError
from fabric.world.virtual import edits

HERE = Path(__file__).resolve().parent
CLOCK_SYMBOL = "time_travel_time"
RUNNING_SYMBOL = "time_travel_running"
VERBS_SYMBOL = "rxe_nic_has_room"
TRIED = ("6.1", "6.12")
"""The versions of Debian's linux-source that guests have run on, the one first that all tests pass with."""

Progress = Callable[[str], None]


def lacking_options(fragment: str, config: str) -> list[str]:
    """Return the options that ``fragment`` asks for and a kernel's ``config`` lacks, optional ones left out."""
    required = fragment.split("\n# optional\n")[0].splitlines()
    granted = set(config.splitlines())
    return [line for line in required if line.startswith("CONFIG_") and line not in granted]


_WHENEVER_BUILT = ("KBUILD_BUILD_TIMESTAMP=Thu Jan  1 00:00:00 UTC 1970", "KBUILD_BUILD_VERSION=1")
"""A kernel mixes its version, with the date of its build, into its random numbers: by these, two that are built of one
source draw the same."""
_UNREAD = (
    "arch/[!ux]*.[chS]", "arch/*.dts*", "Documentation/*/*", "drivers/gpu/*.[ch]", "drivers/infiniband/hw/*.[ch]",
    "drivers/media/*.[ch]", "drivers/net/*/*.[ch]", "drivers/scsi/*.[ch]", "drivers/staging/*.[ch]",
    "drivers/usb/*.[ch]", "sound/*.[ch]", "tools/perf/*", "tools/testing/*",
)  # fmt: skip
"""What of a source no guest kernel is made of: two thirds of it."""
_HEADERS = ("headers.h", "own_names.h")
"""Files beside this one that ``patches/6.1/headers.patch`` reads, in its order: HEADERS and OWN_NAMES."""


def build_into(final: Path, archive: Path, progress: Progress, jobs: int) -> None:
    """Build the kernel of a source into the directory ``final``, which has that name only once it is complete.

    No other build may run in the same cache. Raises EmulationError.
    """
    with _making(final.parent, archive, progress, jobs) as maker:
        for name in _HEADERS:
            shutil.copy2(HERE / name, maker.tree / "include" / name)
        headers, own_names = (f"include/{name}" for name in _HEADERS)
        maker.compile_kernel("compiling the kernel", f"HEADERS={headers}", f"OWN_NAMES={own_names}")
        _keep_as(final, maker)


def build_by_profile_into(
    final: Path, archive: Path, progress: Progress, jobs: int, trial: Path, train: Callable[[Maker], None]
) -> None:
    """Build a kernel as :func:`build_into` does, guided by a profile of what ``train`` has it do.

    The kernel that is profiled lies in the directory ``trial`` meanwhile, without a tree; ``train`` gets what modules
    are built against. Its release ends in the name that ``trial`` ends in after its last hyphen, as that of the kernel
    that is built in that of ``final``. Raises EmulationError, also if the source has no place for a profile.
    """
    with _making(final.parent, archive, progress, jobs) as maker:
        if edits.PROFILE_FLAGS not in (maker.tree / edits.COMPILED_BY).read_text():
            raise EmulationError(f"{archive}: this source cannot be built by a profile; build it without: --pgo")
        try:
            maker.compile_kernel("compiling a kernel to profile", *_counting(maker), f"LOCALVERSION=-{_variant(trial)}")
            shutil.rmtree(trial, ignore_errors=True)  # Of a build that was killed.
            trial.mkdir()
            for name in ("init", "host.so"):
                shutil.copy2(maker.work / name, trial / name)
            _collect(maker, trial)
            progress("profiling it")
            train(maker)
        finally:
            shutil.rmtree(trial, ignore_errors=True)
        if not any(maker.tree.rglob("*.gcda")):
            raise EmulationError(f"the kernel that was profiled left no profile in {maker.tree}")
        maker.compile_kernel(
            "compiling the kernel by its profile",
            f"{edits.PROFILE_FLAGS}=-fprofile-use -Wno-missing-profile -Wno-coverage-mismatch",
            f"LOCALVERSION=-{_variant(final)}",
        )
        _keep_as(final, maker)


def _variant(directory: Path) -> str:
    return directory.name.rpartition("-")[2]


def _counting(maker: Maker) -> list[str]:
    """Return what has a kernel count how often it goes which way, and write that down as it ends.

    The compiler's library for that has a function of the same name as one of the kernel's.
    """
    found = subprocess.run(["gcc", "-print-file-name=libgcov.a"], capture_output=True, text=True, check=True)
    library = maker.work / "libgcov.a"
    renamed = ["objcopy", "--redefine-sym", "mangle_path=gcov_mangle_path", found.stdout.strip(), str(library)]
    maker.run(renamed, "renaming a function of the compiler's library for profiles")
    counts = "-fprofile-arcs -fprofile-update=single"
    # What is named only weakly is not taken from a library unless it is asked for.
    return [f"{edits.PROFILE_FLAGS}={counts}", f"{edits.PROFILE_LIBRARY}=-Wl,-u,__gcov_dump {library}"]


@contextlib.contextmanager
def _making(parent: Path, archive: Path, progress: Progress, jobs: int) -> Iterator[Maker]:
    """Yield what builds in a directory of ``parent``, the source unpacked, changed and configured; tidy up after it."""
    for abandoned in parent.glob(".building-*"):
        shutil.rmtree(abandoned)  # Of a build that was killed: we hold the lock.
    work = Path(tempfile.mkdtemp(prefix=".building-", dir=parent))
    log = parent / "build.log"
    try:
        work.chmod(0o755)
        with log.open("w") as output:
            maker = Maker(work, output.fileno(), log, progress, jobs)
            _compile_helpers(maker)
            maker.tree.mkdir()
            progress(f"unpacking {archive.name}")
            maker.run(_unpack_command(archive, maker.tree), "unpacking the source")
            for name, text in _changed_files(archive, maker.tree).items():
                (maker.tree / name).write_text(text)
            _configure(maker)
            yield maker
    finally:
        shutil.rmtree(work, ignore_errors=True)


@dataclass(frozen=True)
class Maker:
    """Runs the commands of one build."""

    work: Path
    output: int
    log: Path
    progress: Progress
    jobs: int

    @property
    def tree(self) -> Path:
        """The kernel's source, and what is compiled of it."""
        return self.work / "tree"

    def run(self, command: Sequence[str], what: str) -> None:
        """Run a command into the log. Raises EmulationError with the end of the log."""
        done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=self.output, stderr=self.output, check=False)
        if done.returncode != 0:
            self.fail(what, done.returncode)

    def compile_kernel(self, what: str, *options: str) -> None:
        """Compile the kernel, and what modules are built against. Raises EmulationError."""
        self.make([f"-j{self.jobs}", "linux", "modules_prepare", "modules", *_WHENEVER_BUILT, *options], what)

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


def _compile_helpers(maker: Maker) -> None:
    """Compile the two small programs first: a missing C library shows before the long part."""
    what = "compiling a C program (package build-essential)"
    gcc = ["gcc", "-std=gnu11", "-O2", "-Wall"]
    maker.run([*gcc, "-static", "-o", str(maker.work / "init"), str(HERE / "init.c")], what)
    library = ["-shared", "-fPIC", "-o", str(maker.work / "host.so"), str(HERE / "host.c"), "-ldl"]
    maker.run([*gcc, *library], what)


def _unpack_command(archive: Path, tree: Path) -> list[str]:
    unread = (f"--exclude=*/{pattern}" for pattern in _UNREAD)
    return ["tar", "xf", str(archive), *unread, "--strip-components=1", "-C", str(tree)]


def _changed_files(archive: Path, tree: Path) -> dict[str, str]:
    """Return the files of a source that are to be changed, changed. Raises EmulationError if one cannot be."""
    found = [name for name in edits.files() if (tree / name).is_file()]
    texts = {name: (tree / name).read_text() for name in found}
    if unfit := edits.misfits(texts):
        raise EmulationError(
            f"{archive}: no guest kernel can be built from it, our changes do not fit {', '.join(unfit)}. Known to "
            f"work are Debian's {' and '.join(f'linux-source-{version}' for version in TRIED)}; install one of these "
            "or name another source: fabric virtual build --source FILE"
        )
    return edits.changed(texts)


def _configure(maker: Maker) -> None:
    fragment = HERE / "kernel.config"
    maker.make([f"KCONFIG_ALLCONFIG={fragment}", "allnoconfig"], "configuring the kernel")
    if lacking := lacking_options(fragment.read_text(), (maker.tree / ".config").read_text()):
        options = ", ".join(lacking)
        raise EmulationError(f"this kernel source cannot have {options}; install a newer linux-source package")


def _keep_as(final: Path, maker: Maker) -> None:
    """Keep of a build what a run needs, and of the tree what building a module needs, and give it its name."""
    maker.progress("tidying up")
    _collect(maker, maker.work)
    _prune(maker.tree)
    shutil.rmtree(final, ignore_errors=True)
    maker.work.rename(final)
    maker.progress(f"built {final}")


def _collect(maker: Maker, directory: Path) -> None:
    """Put the kernel and what is to be known of it into a directory."""
    shutil.copy2(maker.tree / "linux", directory / "linux")
    symbols = _symbols(maker.tree / "linux")
    facts = {
        "release": _read_release(maker.tree),
        "clock_address": _address(symbols, CLOCK_SYMBOL),
        "running_address": _address(symbols, RUNNING_SYMBOL),
        "has_verbs": VERBS_SYMBOL in symbols,
    }
    maker.run(["strip", "--strip-debug", str(directory / "linux")], "stripping the kernel")
    (directory / "kernel.json").write_text(json.dumps(facts, indent=2) + "\n")


def _read_release(tree: Path) -> str:
    return (tree / "include/config/kernel.release").read_text().strip()


def _symbols(kernel: Path) -> dict[str, int]:
    lines = subprocess.run(["nm", str(kernel)], capture_output=True, text=True, check=True).stdout.splitlines()
    return {words[2]: int(words[0], 16) for line in lines if len(words := line.split()) == 3}


def _address(symbols: dict[str, int], name: str) -> int:
    if name not in symbols:
        raise EmulationError(f"the kernel built has no {name}: its virtual clock cannot be watched")
    return symbols[name]


def _prune(tree: Path) -> None:
    """Delete what no module build reads: most of it."""
    for name in ("sound", "samples", "tools", "drivers", "fs", "LICENSES"):
        for path in (tree / name).rglob("*"):
            if path.is_file() and not path.name.startswith(("Kconfig", "Makefile", "Kbuild")):
                path.unlink()
    for path in (tree / "arch").iterdir():
        if path.is_dir() and path.name not in ("um", "x86"):
            shutil.rmtree(path)
    compiled = (".c", ".o", ".a", ".S", ".cmd", ".gcda", ".gch", ".gcno")
    for path in tree.rglob("*"):
        if path.suffix in compiled and "scripts" not in path.parts and not path.is_dir():
            path.unlink()
    for name in ("vmlinux", "linux", "vmlinux.symvers"):
        (tree / name).unlink(missing_ok=True)
