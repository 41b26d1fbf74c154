"""Runs a program in the guest: an ordinary process of ours in which a whole Linux with its own network runs.

::

    this process ── linux (the kernel, a program) ── its processes, traced by it
         │             │
         └── directory ┘  job, stdout, stderr, status, console: deleted at the end, whatever the end is

The guest sees the host's files, and writes to them as the account that runs it. Only ``/tmp``, ``/run`` and ``/dev``
are its own; directories there that the program needs stay visible. In the guest the program is root.

Computing costs no virtual time: the clock moves only when every process sleeps, and then at once to the next event
(a program that polls sleeps after each look, so that loops which wait for something do end).
"""

from __future__ import annotations

import atexit
import json
import os
import re
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import asdict, dataclass, field, replace
from fcntl import F_DUPFD_CLOEXEC, fcntl
from io import BufferedReader
from pathlib import Path
from typing import Protocol

from fabric.errors import EmulationError, UsageError
from fabric.world import cache
from fabric.world.engine import Ask, ByteSink, Groundwork
from fabric.world.isolation.priority import set_session_niceness
from fabric.world.isolation.temporary import removed_directory
from fabric.world.virtual.dialogue import Dialogue
from fabric.world.virtual.joining import REGION
from fabric.world.virtual.kernel import KernelPaths, require
from fabric.world.virtual.watch import LEAST_UPTIME_S, ClockWatch, Limits, Progress

GIB = 1 << 30
DEFAULT_MEMORY_BYTES = 4 * GIB
START_S = 1_700_000_000
"""The guest's date when it starts, in every run: seconds since 1970."""
PRIVATE = (Path("/tmp"), Path("/run"), Path("/dev"))
"""What the guest has of its own instead of the host's."""
_HIDDEN_PATH = re.compile(rf"(?<![\w./-])(?:{'|'.join(map(str, PRIVATE))})(?![^/\s'\"=:,;])[^\s'\"=:,;]*")
CONTROL = Path("/run/guest")
"""Where the guest sees its control directory, which is the host's."""
CONTROL_DESCRIPTOR = 200
"""The control directory's in the kernel's process. The kernel mixes its command line into its random numbers, so the
directory's name, another one in every run, must not be in it."""
STATUS = "status"
"""Where in it the guest's first program leaves how the other one ended, or why it was not started."""
_INIT = "init"
"""Where in it the guest's first program is: its own place, another one for each account and kernel, must not be in the
command line, either."""
_END = "ended_ns"
"""Where in it the guest's program leaves what its clock says at its end, if it does."""
_HOSTS = "hosts_with_programs"
"""Where in it the guest's program leaves on which hosts users' programs run, if it does."""
FORK_HERE = "fork-here"
"""A symbolic link in it that the guest's program reads where the guest can be forked. ``forking.h`` knows this name,
too."""
GROUNDWORK = "groundwork"
"""Where in it is what the guest's program makes before it knows its run."""
BYTECODE = "bytecode"
"""Where in it the compiled Python modules are: under one name, whoever's they are."""
_KILLED_FOR_MAPPINGS = "killing current process"  # What UML says of a program whose memory the host will not map.
_ENDED_FOR_MAPPINGS = (128 + signal.SIGKILL, 128 + signal.SIGSEGV)
"""How such a program ends: by the first in Linux 6.1, by the second in 6.12."""
_MORE_MAPPINGS = "the guest needed more mappings than this host allows; raise it: sudo sysctl vm.max_map_count=1048576"
WAITING = "FABRIC_WAITING_GUESTS"
"""The environment's name of the directory in which guests that are to be forked wait (:mod:`.forking`)."""
SYSTEM_PROGRAMS = ("/usr/local/sbin", "/usr/sbin", "/sbin", "/usr/local/bin", "/usr/bin", "/bin")
POLL_S = 0.05


class Companion(Protocol):
    """What a guest has in common with others of its run: ``memory``, a file, which its kernel is told of by a
    parameter."""

    memory: Path

    @property
    def kernel_parameter(self) -> str:
        """What the kernel's command line says of it."""

    @property
    def is_over(self) -> bool:
        """Whether the run is over, so that this guest was ended."""

    def must_end(self) -> bool:
        """Whether this guest must end now. Raises EmulationError if another one has failed."""


@dataclass(frozen=True)
class GuestMachine:
    """A guest as a machine: everything that it draws at random follows from ``seed``. ``kernel``: None: the one that is
    built; ``kernel_parameters``: its own, beside those of all. ``companion``: what this guest is to the others, if it
    is one of several (:mod:`fabric.world.virtual.together`)."""

    seed: int
    memory_bytes: int = DEFAULT_MEMORY_BYTES
    limits: Limits = field(default_factory=Limits)
    kernel: KernelPaths | None = None
    kernel_parameters: Sequence[str] = ()
    companion: Companion | None = None


@dataclass(frozen=True)
class Surroundings:
    """What a program finds in its guest. ``keep`` names directories below ``/tmp``, ``/run`` or ``/dev`` that it needs
    (the current directory and the Python environment are kept anyway). ``environment`` replaces our own (None).
    ``bytecode`` holds compiled Python modules (:mod:`fabric.world.virtual.bytecode`). ``handed`` are files for CONTROL,
    by their names: what they hold does not show in the program's own memory, as its environment does.
    ``directory``: where the program starts (None: the current one). ``groundwork``: what it makes before it is known
    what else it does."""

    keep: Sequence[Path] = ()
    environment: Mapping[str, str] | None = None
    bytecode: Path | None = None
    handed: Mapping[str, bytes] = field(default_factory=dict)
    directory: Path | None = None
    groundwork: Groundwork | None = None


@dataclass(frozen=True)
class Channels:
    """What goes in and out of a guest while it runs. ``stdout`` and ``stderr``: None: this process's own. ``ask`` is
    called, in the main thread, for each line that the program asks for (:mod:`fabric.world.virtual.dialogue`); its
    stdin is empty. ``progress`` is called with how far virtual time is, ``tell`` with what the user should know
    meanwhile (None: ``stderr`` gets it)."""

    stdout: ByteSink | None = None
    stderr: ByteSink | None = None
    ask: Ask | None = None
    progress: Progress | None = None
    tell: Callable[[str], None] | None = None


@dataclass(frozen=True)
class Boot:
    """All that a guest is as its program starts. Two guests of which it is the same do the same, until their programs
    look at what is only theirs: the other files of their control directories."""

    kernel: KernelPaths
    memory_bytes: int
    seed: int
    job: bytes
    bytecode: Path | None
    parameters: tuple[str, ...]
    """The kernel's, beside those of all guests."""
    groundwork: Groundwork | None = None
    """What its program makes first."""

    def furnish(self, control: Path) -> None:
        """Put into a control directory what the guest starts from."""
        (control / _INIT).symlink_to(self.kernel.init.resolve())
        (control / FORK_HERE).symlink_to("?")
        if self.bytecode is not None:
            (control / BYTECODE).symlink_to(self.bytecode.resolve())
        (control / "job").write_bytes(self.job)
        if self.groundwork is not None:
            (control / GROUNDWORK).write_text(json.dumps(asdict(self.groundwork)))
        (control / cache.HANDED.name).write_bytes(cache.encoded_places())


class GuestProcess(Protocol):
    """The process of a guest's kernel."""

    pid: int

    def fileno(self) -> int:
        """Return a descriptor that is readable once the process has ended."""

    def kill(self) -> None:
        """End it, and all that runs in it, at once. Does nothing if it has ended."""

    def wait(self) -> int:
        """Wait for its end; return its exit code, or, negative, the signal that ended it."""


Start = Callable[[Boot, Path, int | None, Dialogue | None], GuestProcess]
"""Starts a guest, given its control directory, the processor that is to be its own, and where its program asks."""


def run_in_guest(
    argv: Sequence[str],
    machine: GuestMachine,
    surroundings: Surroundings = Surroundings(),  # noqa: B008 - frozen
    channels: Channels = Channels(),  # noqa: B008 - frozen
    start: Start | None = None,
) -> int:
    """Run ``argv`` as the only program of a new guest, in the current directory, and return its exit code.

    A program ended by a signal returns 128 and the signal's number, as in a shell. ``start``: None: the guest boots.
    Raises EmulationError if the guest could not run the program to its end, with nothing of it left on the host.
    """
    kernel, companion, memory_bytes = machine.kernel or require(), machine.companion, machine.memory_bytes
    job = _job(argv, surroundings, machine.seed)
    dialogue = None if channels.ask is None else Dialogue(channels.ask)
    with (
        removed_directory("fabric-guest-") as control,
        _processor_of_its_own() as processor,
        nullcontext() if dialogue is None else dialogue.open(control),
    ):
        shared = [] if companion is None else [_shared(companion, control)]
        parameters = (*machine.kernel_parameters, *shared)
        boot = Boot(
            kernel,
            memory_bytes,
            machine.seed,
            job.encoded(),
            surroundings.bytecode,
            parameters,
            surroundings.groundwork,
        )
        boot.furnish(control)
        for name, content in surroundings.handed.items():
            (control / name).write_bytes(content)
        stderr = channels.stderr or sys.stderr.buffer
        output = _Copies(control, channels.stdout or sys.stdout.buffer, stderr)
        limits, tell = replace(machine.limits, memory_bytes=memory_bytes), channels.tell or output.tell
        watch = ClockWatch(limits, channels.progress, kernel.clock_address, kernel.running_address, tell=tell)
        attendance = _Attendance(watch, output, dialogue, companion, control)
        try:
            ending = attendance.attend((start or start_kernel)(boot, control, processor, dialogue))
            if (ended_ns := _ended_ns(control)) is not None:
                watch.end(ended_ns)
        finally:
            output.copy()
        code = 0 if companion is not None and companion.is_over else _exit_code(control, ending, memory_bytes)
        _tell_of_others(control, code, stderr)
        return code


def _shared(companion: Companion, control: Path) -> str:
    """Put the memory that guests share into the control directory; return the parameter that tells a kernel of it."""
    (control / REGION).symlink_to(companion.memory)
    return companion.kernel_parameter


def _job(argv: Sequence[str], surroundings: Surroundings, seed: int) -> _Job:
    """Return what the guest is to do; the arguments are those of :func:`run_in_guest`."""
    program, bytecode = _program(argv), surroundings.bytecode
    environment = os.environ if surroundings.environment is None else surroundings.environment
    directory = surroundings.directory or Path.cwd()
    kept = [*surroundings.keep, directory, *kept_anyway(Path(program), bytecode)]
    compiled = {"PYTHONPYCACHEPREFIX": str(CONTROL / BYTECODE)} if bytecode else {}
    return _Job(
        argv=(program, *argv[1:]),
        directory=directory,
        keep=directories_to_keep(kept),
        environment={**guest_environment(environment, seed), **compiled},
        seed=seed,
    )


def kept_anyway(program: Path, bytecode: Path | None) -> list[Path]:
    """Return the directories of the host that a program sees in its guest, whatever else."""
    caches = [place for place in cache.places() if place.is_dir()]
    return [*caches, *_own_directories(), program.parent, *([bytecode] if bytecode else [])]


def in_guest() -> bool:
    """Whether this process runs in a guest."""
    return os.environ.get("FABRIC_GUEST") == "1"


def leave_end() -> None:
    """Leave word, in a guest, of the time at which this process ends: whoever looks from outside comes too late for it.

    The clock jumps over a minute in which all programs sleep between two looks.
    """
    process = os.getpid()

    def leave() -> None:
        if os.getpid() == process:  # And not what was forked of it.
            (CONTROL / _END).write_text(str(time.monotonic_ns()))

    atexit.register(leave)


def leave_hosts(hosts: str) -> None:
    """Leave word, in a guest, of the hosts on which users' programs run: if it is ended from outside, the reason has
    them."""
    (CONTROL / _HOSTS).write_text(hosts)


def _with_hosts(control: Path, reason: str) -> str:
    """Return why a guest is ended, with the hosts on which users' programs then ran."""
    try:
        hosts = (control / _HOSTS).read_text()
    except OSError:
        hosts = ""
    return f"{reason}; programs still run on {hosts}" if hosts else reason


def _ended_ns(control: Path) -> int | None:
    """Return the time at which the guest's program ended (ns of uptime); None if it has not left it."""
    try:
        return int((control / _END).read_text())
    except (OSError, ValueError):
        return None


def host_time_s() -> float:
    """Return, in a guest, what the host's clock says, in whole seconds since 1970: for benchmarks of the guest itself.

    The host dates a new file. Nothing that is to be the same in every run may depend on this.
    """
    with tempfile.NamedTemporaryFile(dir=CONTROL, prefix="now-") as file:
        return Path(file.name).stat().st_ctime


def kernel_command(kernel: KernelPaths, memory_bytes: int, parameters: Sequence[str] = ()) -> list[str]:
    """Return the command that boots the guest; its control directory is CONTROL_DESCRIPTOR."""
    control = f"/proc/self/fd/{CONTROL_DESCRIPTOR}/."
    return [
        str(kernel.kernel),
        f"mem={memory_bytes // 1024}K",
        "root=hostfs",
        "rootfstype=hostfs",
        "hostfs=/",
        "rw",
        f"init={control}/{_INIT}",
        "con=null",
        "con0=null,fd:1",
        "quiet",
        "panic=-1",
        "time-travel=inf-cpu",
        f"time-travel-start={START_S * 10**9}",
        f"uml_dir={control}/",
        "umid=kernel",
        "dummy.numdummies=0",
        "ifb.numifbs=0",
        *parameters,
        f"GUEST_CONTROL={control}",
    ]


def directories_to_keep(paths: Sequence[Path]) -> tuple[Path, ...]:
    """Return those of ``paths`` that the guest would not see, outermost first and none within another."""
    kept: list[Path] = []
    for path in sorted({path.resolve() for path in paths}, key=lambda path: len(path.parts)):
        hidden = any(path.is_relative_to(private) for private in PRIVATE)
        if not hidden or any(path.is_relative_to(outer) for outer in kept):
            continue
        if path in PRIVATE and path != Path("/tmp"):
            raise UsageError(f"{path} is the guest's own and cannot be kept in sight; use a directory below or outside")
        kept.append(path)
    return tuple(kept)


def directories_named(words: Iterable[str]) -> tuple[Path, ...]:
    """Return the directories below the guest's own ones that hold, or are to hold, files which a command's words name.

    What is directly in ``/tmp`` makes all of that; ``/run`` and ``/dev`` stay the guest's.
    """
    named = (Path(os.path.normpath(path)) for word in words for path in _HIDDEN_PATH.findall(word))
    found = [path if path.is_dir() else path.parent for path in named]
    return tuple(dict.fromkeys(path for path in found if path.is_dir() and path not in PRIVATE[1:]))


def directories_of(files: Iterable[Path]) -> tuple[Path, ...]:
    """Return the directories in which a guest finds files, also those that are links: the link's and its target's."""
    found = (path.parent for file in files for path in (file.absolute(), file.resolve()))
    return tuple(dict.fromkeys(found))


def guest_environment(ours: Mapping[str, str], seed: int) -> dict[str, str]:
    """Return the environment of a program in the guest, made from ours: where programs and files are differs there."""
    path = [part for part in ours.get("PATH", "").split(":") if part]
    path += [part for part in SYSTEM_PROGRAMS if part not in path]
    changed = {
        "PATH": ":".join(path),
        "TMPDIR": "/tmp",
        "FABRIC_GUEST": "1",
        "PYTHONHASHSEED": str(seed % 2**32),
        "PYTHONUNBUFFERED": "1",
        "PYTHONDONTWRITEBYTECODE": "1",  # Or the second run would start otherwise than the first.
    }
    ours = {key: value for key, value in ours.items() if not key.startswith(("XDG_RUNTIME", WAITING))}
    return {**ours, **changed}


def memory_directory(memory_bytes: int, candidates: Sequence[Path]) -> Path:
    """Return the first directory that can hold the guest's memory. Raises EmulationError naming the room in each."""
    found = []
    for directory in candidates:
        try:
            status = os.statvfs(directory)
        except OSError:
            continue
        free_bytes = status.f_bavail * status.f_frsize
        if status.f_flag & os.ST_NOEXEC:
            found.append(f"{directory} is mounted noexec")
        elif not os.access(directory, os.W_OK | os.X_OK):
            found.append(f"{directory} cannot be written to")
        elif free_bytes < memory_bytes:
            found.append(f"{directory} has {free_bytes / GIB:.1f} GiB free")
        else:
            return directory
    raise EmulationError(
        f"no place for {memory_bytes / GIB:.1f} GiB of guest memory: {', '.join(found)}; "
        "make room, set TMPDIR or give the guest less memory (--memory)"
    )


def explain_failure(console: str, return_code: int, memory_bytes: int) -> str:
    """Return why a guest ended before its program did, from what its kernel said and how its process ended."""
    if _is_out_of_mappings(console):
        return _MORE_MAPPINGS
    if re.search(r"out of memory", console, re.IGNORECASE):
        return f"the guest ran out of its {memory_bytes / GIB:.1f} GiB of memory; give it more (--memory)"
    if panic := re.search(r"Kernel panic - not syncing: (.*)", console):
        return f"the guest's kernel panicked: {panic[1]}\n{_ending(console)}"
    if return_code == -signal.SIGBUS:
        return "the host has no room left for the guest's memory; make room, set TMPDIR or give it less (--memory)"
    if return_code == -signal.SIGKILL:
        return "the guest's kernel was killed (by the host's out-of-memory killer, if by nobody else)"
    return f"the guest ended with {return_code} before its program did\n{_ending(console)}"


@dataclass(frozen=True)
class _Job:
    """What the guest's first process is told; ``init.c`` says how."""

    argv: tuple[str, ...]
    directory: Path
    keep: tuple[Path, ...]
    environment: Mapping[str, str]
    seed: int

    def encoded(self) -> bytes:
        strings = [os.uname().nodename, str(round(LEAST_UPTIME_S * 1000)), str(self.seed), str(self.directory)]
        for row in (self.keep, self.argv, [f"{key}={value}" for key, value in self.environment.items()]):
            strings += [str(len(row)), *map(str, row)]
        if any("\0" in string for string in strings):
            raise UsageError("a program's arguments and environment cannot hold the character NUL")
        return b"".join(os.fsencode(string) + b"\0" for string in strings)


class _Copies:
    """Passes on what the program writes, as it comes."""

    def __init__(self, control: Path, stdout: ByteSink, stderr: ByteSink) -> None:
        self._stderr = stderr
        self._pairs: list[tuple[BufferedReader, ByteSink]] = []
        for name, target in (("stdout", stdout), ("stderr", stderr)):
            path = control / name
            path.touch()
            self._pairs.append((path.open("rb"), target))

    def copy(self) -> None:
        for source, target in self._pairs:
            if text := source.read():
                target.write(text)
                target.flush()

    def tell(self, text: str) -> None:
        """Write a line of ours among the program's errors."""
        self._stderr.write(f"{text}\n".encode())
        self._stderr.flush()


def _program(argv: Sequence[str]) -> str:
    found = shutil.which(argv[0]) if argv else None
    if found is None:
        raise UsageError(f"{argv[0] if argv else 'no program'}: not found; give a program on PATH or the path of one")
    return os.path.abspath(found)  # noqa: PTH100 - a venv's python must keep its name: resolving would lose the venv


def _own_directories() -> list[Path]:
    return [Path(sys.prefix), Path(__file__).resolve().parents[3]]


@contextmanager
def _processor_of_its_own() -> Iterator[int | None]:
    """Claim a processor that no other guest of this machine runs on; None if there is none left.

    A claim is a socket's name: it ends with its process, belongs to no account and leaves no file.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as claim:
        for processor in sorted(os.sched_getaffinity(0), reverse=True):
            with suppress(OSError):
                claim.bind(f"\0fabric-guest-cpu-{processor}")
                break
        else:
            processor = None
        yield processor


def place_for_memory(boot: Boot) -> Path:
    """Return the directory that will hold the guest's memory. Raises EmulationError."""
    return memory_directory(boot.memory_bytes, [Path("/dev/shm"), Path(tempfile.gettempdir()), Path("/var/tmp")])


def _kernel_environment(boot: Boot, processor: int | None) -> dict[str, str]:
    pinned = {} if processor is None else {"GUEST_CPU": str(processor)}
    return {
        **pinned,
        "LD_PRELOAD": str(boot.kernel.host_library),
        "GUEST_PARENT": str(os.getpid()),
        "GUEST_SEED": str(boot.seed % 2**64),
        "TMPDIR": str(place_for_memory(boot)),
        "PATH": "/usr/bin:/bin",
        "HOME": "/nonexistent",
    }


@dataclass(frozen=True)
class _Attendance:
    """What is done while a guest runs: its clock is watched, its output copied, its questions are answered, and it is
    ended with the others of its run."""

    watch: ClockWatch
    output: _Copies
    dialogue: Dialogue | None
    companion: Companion | None
    control: Path
    """The directory that the guest leaves word in."""

    def attend(self, process: GuestProcess) -> int:
        """Return how a guest's process ended. Raises EmulationError if it must be ended instead."""
        dialogue, ended = self.dialogue, process.fileno()
        watched = [ended] if dialogue is None else [ended, dialogue.fileno()]
        try:
            while ended not in (ready := select.select(watched, [], [], POLL_S)[0]):
                self.output.copy()
                if dialogue is not None and ready:
                    dialogue.answer()
                if self.companion is not None and self.companion.must_end():
                    process.kill()
                elif reason := self.watch.look(process.pid):
                    raise EmulationError(_with_hosts(self.control, reason))
            return process.wait()
        finally:
            process.kill()  # Its own processes end with it: host.c sees to that.
            process.wait()


class _Kernel:
    """The process of a kernel that has been started."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.pid, self._process, self._ended = process.pid, process, os.pidfd_open(process.pid)

    def fileno(self) -> int:
        return self._ended

    def kill(self) -> None:
        self._process.kill()

    def wait(self) -> int:
        code = self._process.wait()
        if self._ended >= 0:
            os.close(self._ended)
            self._ended = -1
        return code


def start_kernel(
    boot: Boot, control: Path, processor: int | None, dialogue: Dialogue | None = None, requests: int | None = None
) -> GuestProcess:
    """Boot a guest. ``requests``: a listening socket; the guest is forked for each client that connects."""
    with _descriptor_of(control) as passed, (control / "console").open("wb") as console:
        command = kernel_command(boot.kernel, boot.memory_bytes, boot.parameters)
        actual = [part.replace(f"/fd/{CONTROL_DESCRIPTOR}/", f"/fd/{passed}/") for part in command]
        environment = _kernel_environment(boot, processor)
        ends = () if dialogue is None else (dialogue.guest_questions.fileno(), dialogue.guest_keys.fileno())
        if ends:
            environment["GUEST_LINES"] = str(ends[0])
            actual.insert(1, f"con1=fd:{ends[1]}")
        if requests is not None:
            ends = (*ends, requests)
            environment |= {"GUEST_REQUESTS": str(requests), "GUEST_CONTROL": str(passed)}
        process = subprocess.Popen(
            actual,
            stdin=subprocess.DEVNULL,
            stdout=console,
            stderr=console,
            env=environment,
            cwd="/",
            pass_fds=(passed, *ends),
            start_new_session=True,  # Ctrl-C is ours to handle.
        )
    # A niced process's new session would not give way to those of others.
    set_session_niceness(process.pid, os.getpriority(os.PRIO_PROCESS, process.pid))
    return _Kernel(process)


@contextmanager
def _descriptor_of(control: Path) -> Iterator[int]:
    """Open the control directory as CONTROL_DESCRIPTOR, or the next one that is free."""
    descriptor = os.open(control, os.O_RDONLY | os.O_DIRECTORY)
    try:
        passed = fcntl(descriptor, F_DUPFD_CLOEXEC, CONTROL_DESCRIPTOR)
    finally:
        os.close(descriptor)
    try:
        yield passed
    finally:
        os.close(passed)


def _exit_code(control: Path, ending: int, memory_bytes: int) -> int:
    try:
        kind, _, rest = (control / STATUS).read_text().strip().partition(" ")
    except FileNotFoundError:
        kind = rest = ""
    console = (control / "console").read_text(errors="replace")
    if kind == "exit" and not (int(rest) in _ENDED_FOR_MAPPINGS and _is_out_of_mappings(console)):
        return int(rest)
    if kind == "failed":
        raise EmulationError(f"the guest could not start the program: {rest}")
    raise EmulationError(explain_failure(console, ending, memory_bytes))


def _tell_of_others(control: Path, code: int, stderr: ByteSink) -> None:
    """Say so if a program that failed may have done so because another one's memory was not mapped, which killed it."""
    if code and _is_out_of_mappings((control / "console").read_text(errors="replace")):
        stderr.write(f"error: a program was killed: {_MORE_MAPPINGS}\n".encode())
        stderr.flush()


def _is_out_of_mappings(console: str) -> bool:
    """Whether the host refused to map more of a program's memory: each piece of it that is scattered is one mapping."""
    return "max_map_count" in console or _KILLED_FOR_MAPPINGS in console


def _ending(console: str) -> str:
    return "\n".join(console.splitlines()[-20:])
