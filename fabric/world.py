"""The ``namespace`` engine: one private world a run, on this machine's kernel, in real time.

A run executes itself again inside network, mount and PID namespaces of its own. Its processes, interfaces, bridges,
queues and files in /run live in them only, so the end of the process, by whatever cause, is the end of the world: the
kernel removes everything, nothing is to be cleaned, and runs side by side cannot meet.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from fabric import netlink
from fabric.errors import EmulationError, UsageError

RUN_DIR = Path("/run/fabric")
"""Files of the world: Open vSwitch's, the plan, and the result until it is whole. Private, in memory."""
_INSIDE = "FABRIC_WORLD"
_MS_NOSUID_NODEV = 0x2 | 0x4
_MS_BIND = 0x1000
_PR_SET_PDEATHSIG = 1
_LOOPBACK_INDEX = 1

_libc = ctypes.CDLL(None, use_errno=True)


def is_inside() -> bool:
    """Return whether this process is a world's first."""
    return os.environ.get(_INSIDE) == "1" and os.getpid() == 1


def enter(arguments: Sequence[str]) -> NoReturn:
    """Replace this process by ``python -m experiments.cli arguments`` as the first process of a new world.

    Raises UsageError without root. Being replaced, not waited for, is what makes SIGKILL end everything.
    """
    if os.geteuid() != 0:
        raise UsageError("this needs root to make network namespaces; run it again with sudo")
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
    try:
        parent = Path(f"/proc/{os.getppid()}/comm").read_text().strip()
    except OSError:
        return
    if parent == "sudo":
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def set_up() -> None:
    """Make the world habitable: its own /run and /sys, loopback up. Call once, first of all."""
    if not is_inside():
        raise EmulationError("set_up() outside a world; fabric.world.enter() makes one")
    _mount("tmpfs", Path("/run"), "mode=755")
    _mount("sysfs", Path("/sys"), "")
    RUN_DIR.mkdir()
    write_sysctl("net/ipv6/conf/all/disable_ipv6", 1)
    write_sysctl("net/ipv6/conf/default/disable_ipv6", 1)
    with netlink.Netlink() as link:
        link.send([netlink.link_state(_LOOPBACK_INDEX, "lo", up=True)])


def name_hosts(addresses: dict[str, str]) -> None:
    """Let the programs of this world find hosts by name: put names to addresses in its own /etc/hosts."""
    own = RUN_DIR / "hosts"
    lines = ["127.0.0.1 localhost", *(f"{ip} {name}" for name, ip in addresses.items())]
    own.write_text("\n".join(lines) + "\n")
    target = Path("/etc/hosts")
    if target.exists():
        _check(_libc.mount(str(own).encode(), str(target).encode(), b"none", _MS_BIND, None), "mounting /etc/hosts")


def write_sysctl(name: str, value: int | str) -> bool:
    """Set a sysctl of the current network namespace; return False if this kernel does not have it there."""
    path = Path("/proc/sys") / name
    if not path.exists():
        return False
    path.write_text(str(value))
    return True


def read_sysctl(name: str) -> str | None:
    """Return a sysctl of the current network namespace, or None if this kernel does not have it there."""
    path = Path("/proc/sys") / name
    return path.read_text().strip() if path.exists() else None


def _mount(kind: str, target: Path, options: str) -> None:
    arguments = (kind.encode(), str(target).encode(), kind.encode(), _MS_NOSUID_NODEV, options.encode())
    _check(_libc.mount(*arguments), f"mounting {kind} on {target}")


def _check(result: int, what: str) -> None:
    if result != 0:
        raise EmulationError(f"{what}: {os.strerror(ctypes.get_errno())}; fabric doctor says what this machine lacks")
