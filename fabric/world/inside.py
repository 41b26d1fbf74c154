"""What a run has to itself, whichever its engine: its files, its temporary files, its hosts' names, its end."""

from __future__ import annotations

import atexit
import ctypes
import os
import signal
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import NoReturn

from fabric.errors import EmulationError
from fabric.world.engine import RUN_DIR as RUN_DIR
from fabric.world.engine import TEMPORARY_DIR as TEMPORARY_DIR
from fabric.world.engine import is_marked
from fabric.world.engines import current_engine
from fabric.world.isolation import limits
from fabric.world.isolation.mounts import bind
from fabric.world.isolation.sysctl import write_sysctl
from fabric.world.kernel_api import netlink
from fabric.world.virtual.guest import in_guest

CONTROLLER_DIR = RUN_DIR / "controller"
"""Where a controller has the sockets that it listens to."""
_LOCAL_NAMES = (("127.0.0.1", "localhost"), ("::1", "localhost ip6-localhost ip6-loopback"))
_PR_SET_TIMERSLACK = 29
_LOOPBACK_INDEX = 1

_libc = ctypes.CDLL(None, use_errno=True)


def is_inside() -> bool:
    """Return whether this process is the first of a run's own namespaces, or a guest's program."""
    return is_marked() and (os.getpid() == 1 or in_guest())


_is_set_up = False


def set_up() -> None:
    """Furnish what a run has to itself: its files, devices and temporary files, loopback up. Call it first of all; what
    was set up for the groundwork of a run is.

    SIGTERM then ends the process in good order (SystemExit): the first process of a PID namespace ignores what it has
    no handler for, and ``timeout`` or a service manager would wait in vain.
    """
    if not is_inside():
        raise EmulationError("set_up() outside of a run's own namespaces or guest; an engine's enter() makes them")
    global _is_set_up
    if _is_set_up:
        return
    _is_set_up = True
    current_engine().furnish()
    limits.allow_open_files()
    TEMPORARY_DIR.mkdir(parents=True)
    os.environ["TMPDIR"] = str(TEMPORARY_DIR)
    tempfile.tempdir = None  # Or what was found before would stay.
    signal.signal(signal.SIGTERM, _terminated)
    write_sysctl("net/ipv6/conf/default/disable_ipv6", 1)  # Of interfaces to come: loopback, which is there, has ::1.
    with netlink.Netlink() as link:
        link.send([netlink.link_state(_LOOPBACK_INDEX, "lo", up=True)])


def leave(code: int) -> NoReturn:
    """End this process, and so its world, with an exit code: at once, since all that Python would take apart ends, too.

    That writes to every object, and so copies all memory that is shared with programs: a second, in a guest.
    """
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _terminated(number: int, _: object) -> NoReturn:
    sys.exit(128 + number)


def precise_timers() -> None:
    """Let this process wake when it asked to: the kernel otherwise lets sleeps last up to 50 us longer."""
    _libc.prctl(_PR_SET_TIMERSLACK, 1)


def name_hosts(addresses: Iterable[tuple[str, str]]) -> None:
    """Let the programs of this run find hosts by name: put addresses, each with a name, into its own /etc/hosts.

    Of several addresses of a name, programs take the first to which there is a route (``getaddrinfo``).
    """
    own = RUN_DIR / "hosts"
    lines = [f"{ip} {name}" for ip, name in (*_LOCAL_NAMES, *addresses)]
    own.write_text("\n".join(lines) + "\n")
    target = Path("/etc/hosts")
    if target.exists():
        bind(own, target)
