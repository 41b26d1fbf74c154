"""The world of a run, in either engine: the isolated namespaces, or the guest, in which it happens.

``namespace``: this machine's kernel, real time, root. A run executes itself again inside network, mount and PID
namespaces of its own. Its processes, interfaces, bridges, queues and files in /run exist in them only. When the process
ends, by whatever cause, the kernel removes everything, nothing has to be cleaned up, and concurrent runs cannot meet.

``virtual``: a guest kernel in virtual time (:mod:`fabric.virtual`), an ordinary process of any account. The same
program runs in it; the guest is the world.
"""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import signal
import site
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from enum import Enum
from pathlib import Path
from typing import NoReturn

from fabric import cache, limits, netlink
from fabric.cores import CGROUPS
from fabric.devices import make_own_devices
from fabric.errors import EmulationError, UsageError
from fabric.mounts import NODEV, NOSUID, RECURSIVE, bind, mount
from fabric.virtual import bytecode, kernel
from fabric.virtual.dialogue import Ask
from fabric.virtual.guest import (
    CONTROL,
    DEFAULT_MEMORY_BYTES,
    SYSTEM_PROGRAMS,
    guest_environment,
    in_guest,
    run_in_guest,
)
from fabric.virtual.kernel import KernelPaths
from fabric.virtual.watch import Progress

RUN_DIR = Path("/run/fabric")
"""Files of the world: Open vSwitch's, the plan, and the result until it is whole. Private, in memory."""
TEMPORARY_DIR = RUN_DIR / "tmp"
"""Where temporary files of the run and its programs go (TMPDIR), so that they end with the world, too."""
_INSIDE = "FABRIC_WORLD"
_STARTED_AT = "FABRIC_STARTED_AT"
_USERS_ENVIRONMENT = "environment"
_FIGURES_DEPEND_ON = "figures_depend_on"
_FIXED_ENVIRONMENT = {"HOME": "/tmp", "LANG": "C.UTF-8", "LC_ALL": "C.UTF-8", "SHELL": "/bin/sh", "TERM": "dumb"}
_TIMER_SLACK_S = 100e-6
_MACHINES_CGROUPS = Path("/sys/fs/cgroup")
_PR_SET_PDEATHSIG = 1
_PR_SET_TIMERSLACK = 29
_PR_GET_TIMERSLACK = 30
_LOOPBACK_INDEX = 1
_TIMER_ABSTIME = 1
_TCP_MEMORY_PARTS = (4, 3, 2)
"""What part of a guest's memory all TCP together may use freely, sparingly and at most. A kernel's own choice, up to a
tenth, is for one host: with dozens in one guest windows shrink and packets are dropped once they have arrived."""

_libc = ctypes.CDLL(None, use_errno=True)


class Engine(str, Enum):
    """What a world is made of."""

    NAMESPACE = "namespace"
    VIRTUAL = "virtual"


@dataclass(frozen=True)
class Guest:
    """What a virtual world is like: its ``seed`` fixes what is drawn at random in it, ``keep`` names directories of the
    host below ``/tmp``, ``/run`` or ``/dev`` that programs need."""

    seed: int
    keep: tuple[Path, ...] = ()
    memory_bytes: int = DEFAULT_MEMORY_BYTES


def current_engine() -> Engine:
    """Return the engine of the world that this process is in, or would be in as it stands."""
    return Engine.VIRTUAL if in_guest() else Engine.NAMESPACE


def is_inside() -> bool:
    """Return whether this process is a world's first, or a guest's program."""
    return os.environ.get(_INSIDE) == "1" and (os.getpid() == 1 or in_guest())


def enter(
    engine: Engine,
    arguments: Sequence[str],
    guest: Guest,
    progress: Progress,
    ask: Ask | None = None,
    tell: Callable[[str], None] = lambda text: None,
) -> NoReturn:
    """Go on as ``python -m experiments.cli arguments`` in a new world.

    ``guest`` is what the guest is like, if there is one; ``progress`` is told how far virtual time is, ``ask`` returns
    the user's lines to a program in a guest, and ``tell`` is told what is done before that starts.
    Raises UsageError, EmulationError.
    """
    if engine is Engine.NAMESPACE:
        _enter_namespaces(arguments)
    command = [sys.executable, "-m", "experiments.cli", *arguments]
    guest_kernel = kernel.require()
    compiled = bytecode.prepare(tell)
    ended = run_in_guest(
        command,
        seed=guest.seed,
        memory_bytes=guest.memory_bytes,
        keep=guest.keep,
        kernel=guest_kernel,
        environment=_own_environment(),
        progress=progress,
        ask=ask,
        bytecode=compiled,
        handed={
            _USERS_ENVIRONMENT: _encoded(guest_environment(os.environ, guest.seed)),
            _FIGURES_DEPEND_ON: json.dumps(_figures_depend_on(guest_kernel, guest.memory_bytes)).encode(),
        },
    )
    raise SystemExit(ended)


def _own_environment() -> dict[str, str]:
    """Return the environment of our programs in a guest: the same for everybody, but for where programs are.

    Its size and content decide where memory lies and what programs read at their start, and with that, in the end, the
    last digits of figures; under contention, the first. The system's programs come first: to look for one where it is
    not takes a guest time, however little, and Open vSwitch draws its identifiers from the time.
    """
    kept = {name: os.environ[name] for name in ("PYTHONPATH", "SUDO_UID", "SUDO_GID") if name in os.environ}
    others = [part for part in os.environ.get("PATH", "").split(":") if part and part not in SYSTEM_PROGRAMS]
    kept["PATH"] = ":".join([*SYSTEM_PROGRAMS, *others])
    if site.ENABLE_USER_SITE:
        kept["PYTHONUSERBASE"] = site.getuserbase()  # It would be looked for in HOME.
    return {**_FIXED_ENVIRONMENT, **kept, _INSIDE: "1", _STARTED_AT: started_at()}


def repeatable_with() -> dict[str, str] | None:
    """Return what, beside seed and config, figures of this world depend on; None where that is more than can be named.

    ``guest_kernel_changes`` names the state of what this project changes and builds its guests' kernels with,
    ``software`` that of its sources, its Python and the packages beside it.
    """
    if current_engine() is Engine.NAMESPACE:
        return None
    depends_on: dict[str, str] = json.loads((CONTROL / _FIGURES_DEPEND_ON).read_text())
    return depends_on


def _figures_depend_on(guest_kernel: KernelPaths, memory_bytes: int) -> dict[str, str]:
    return {
        "guest_kernel": guest_kernel.release,
        "guest_kernel_changes": kernel.fingerprint(),
        "guest_memory": f"{memory_bytes // 2**20} MiB",
        "software": bytecode.fingerprint(),
    }


def users_environment() -> dict[str, str]:
    """Return the environment that the user's own programs get: the user's, with what is other in this world."""
    if current_engine() is Engine.NAMESPACE:
        return dict(os.environ)
    entries = os.fsdecode((CONTROL / _USERS_ENVIRONMENT).read_bytes()).split("\0")[:-1]
    users = dict(entry.split("=", 1) for entry in entries)
    return {**users, "TMPDIR": str(TEMPORARY_DIR), _INSIDE: "1", _STARTED_AT: started_at()}


def _encoded(environment: dict[str, str]) -> bytes:
    return b"".join(os.fsencode(f"{name}={value}") + b"\0" for name, value in environment.items())


def started_at() -> str:
    """Return the date and time (UTC) at which this run began; a guest has a clock, but no date, of its own."""
    return os.environ.get(_STARTED_AT) or datetime.now(timezone.utc).isoformat(timespec="seconds")


def timer_slack_s() -> float:
    """Return how late this engine's timers may be without a link losing rate; measured lateness is in every result."""
    return 0.0 if in_guest() else _TIMER_SLACK_S


def precise_timers() -> None:
    """Let this process wake when it asked to: the kernel otherwise lets sleeps last up to 50 us longer."""
    _libc.prctl(_PR_SET_TIMERSLACK, 1)


def settle() -> None:
    """In virtual time, wait for the next whole second, to the nanosecond; in real time, do nothing.

    Computing costs a guest no time, but reading the clock does, a little, and how often programs do so depends on more
    than the seed: on which modules Python finds compiled, for one. What starts here starts at the same time every time.
    """
    if current_engine() is Engine.VIRTUAL:
        moment = (ctypes.c_long * 2)(int(time.monotonic()) + 1, 0)
        slack_ns = _libc.prctl(_PR_GET_TIMERSLACK)
        _libc.prctl(_PR_SET_TIMERSLACK, 1)
        _libc.clock_nanosleep(time.CLOCK_MONOTONIC, _TIMER_ABSTIME, moment, None)
        _libc.prctl(_PR_SET_TIMERSLACK, slack_ns)


def _enter_namespaces(arguments: Sequence[str]) -> NoReturn:
    """Replace this process by the first process of new namespaces.

    Being replaced, not waited for, is what makes SIGKILL end everything. Raises UsageError, EmulationError.
    """
    if os.geteuid() != 0:
        raise UsageError("this needs root to make network namespaces; run it again with sudo")
    cache.own()  # Better refused here than in the midst of a run.
    unshare = shutil.which("unshare")
    if unshare is None:
        raise EmulationError("unshare is not installed; apt-get install util-linux")
    _die_with_sudo()
    sys.stdout.flush()
    sys.stderr.flush()
    flags = ["--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
    command = [unshare, *flags, sys.executable, "-m", "experiments.cli", *arguments]
    os.execve(unshare, command, {**os.environ, _INSIDE: "1"})


def _die_with_sudo() -> None:
    """Let SIGKILL of a ``sudo fabric ...`` reach the run, too: sudo cannot pass that signal on."""
    parent = os.getppid()
    try:
        name = Path(f"/proc/{parent}/comm").read_text().strip()
    except OSError:
        return
    if name == "sudo":
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            sys.exit(128 + signal.SIGKILL)  # It was killed before the kernel was told to say so.


def set_up() -> None:
    """Make the world habitable: its own /run, /sys, /dev and temporary files, loopback up. Call once, first of all.

    SIGTERM then ends the process in good order (SystemExit): the first process of a PID namespace ignores what it has
    no handler for, and ``timeout`` or a service manager would wait in vain.
    """
    if not is_inside():
        raise EmulationError("set_up() outside a world; fabric.world.enter() makes one")
    if current_engine() is Engine.NAMESPACE:
        mount("tmpfs", Path("/run"), NOSUID | NODEV, "mode=755")
        _keep_control_groups()
        mount("sysfs", Path("/sys"), NOSUID | NODEV)
        make_own_devices()
    limits.allow_open_files()
    TEMPORARY_DIR.mkdir(parents=True)
    os.environ["TMPDIR"] = str(TEMPORARY_DIR)
    tempfile.tempdir = None  # Or what was found before would stay.
    signal.signal(signal.SIGTERM, _terminated)
    if current_engine() is Engine.VIRTUAL:
        write_sysctl(
            "net/ipv4/tcp_mem", " ".join(str(os.sysconf("SC_PHYS_PAGES") // part) for part in _TCP_MEMORY_PARTS)
        )
    write_sysctl("net/ipv6/conf/all/disable_ipv6", 1)
    write_sysctl("net/ipv6/conf/default/disable_ipv6", 1)
    with netlink.Netlink() as link:
        link.send([netlink.link_state(_LOOPBACK_INDEX, "lo", up=True)])


def _keep_control_groups() -> None:
    """Keep the machine's control groups in sight, which its own /sys would hide: they tell what a quota takes."""
    if _MACHINES_CGROUPS.exists():
        CGROUPS.mkdir(parents=True)
        bind(_MACHINES_CGROUPS, CGROUPS, RECURSIVE)


def _terminated(number: int, _: object) -> NoReturn:
    sys.exit(128 + number)


def name_hosts(addresses: dict[str, str]) -> None:
    """Let the programs of this world find hosts by name: put names to addresses in its own /etc/hosts."""
    own = RUN_DIR / "hosts"
    lines = ["127.0.0.1 localhost", *(f"{ip} {name}" for name, ip in addresses.items())]
    own.write_text("\n".join(lines) + "\n")
    target = Path("/etc/hosts")
    if target.exists():
        bind(own, target)


def write_sysctl(name: str, value: int | str) -> bool:
    """Set a sysctl of the current network namespace; return False if this kernel does not have it there."""
    path = Path("/proc/sys") / name
    if not path.exists():
        return False
    path.write_text(str(value))
    return True
