"""The engine ``namespace``: this machine's kernel, real time, root.

A run executes itself again inside network, mount and PID namespaces of its own. Its processes, interfaces, bridges,
queues and files in /run live in them only, so the end of the process, by whatever cause, is the end of them all: the
kernel removes everything, nothing is to be cleaned, and runs side by side cannot meet.
"""

from __future__ import annotations

import os
import platform
import shutil
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from fabric.errors import EmulationError, UsageError
from fabric.world import cache
from fabric.world.engine import SHARED, Engine, Front, Guest, LatenessLimits, Timing, own_environment
from fabric.world.isolation.devices import make_own_devices
from fabric.world.isolation.mounts import NODEV, NOSUID, RECURSIVE, bind, mount
from fabric.world.isolation.places import CGROUPS
from fabric.world.isolation.processes import die_with_sudo
from fabric.world.kernel_api import libbpf, modules
from fabric.world.virtual import kernel

_PROJECT = Path(__file__).resolve().parents[2]
_MACHINES_CGROUPS = Path("/sys/fs/cgroup")


class NamespaceEngine(Engine):
    """This machine's kernel and clock.

    Userspace switching and veth pass 90,000 frames per second and more on two cores (benchmark ``hops``). A program
    may have to wait for a core: for 75 ms of a link of 20 Mbit/s, senders that must not run dry are ahead of that.
    """

    name = "namespace"
    clock = "real time"
    timing = Timing(
        slack_s=100e-6, lead_s=0.01, rate_noise=0.1, flow_noise=0.2, carried_frames_s=30_000, kept_frames=45
    )
    lateness = LatenessLimits(switches=(3.0, 15.0), hosts=(30.0, 150.0))
    is_exact = False
    has_own_kernel = False
    has_terminal = True
    acts_for_user = False
    takes_machine = True
    programs_per_process = 1  # Of those together only one computes at a time.

    def duration_s(self, against_noise_s: float, frames: float, frame_time_s: float) -> float:
        """Return ``against_noise_s``."""
        return against_noise_s

    def enter(self, command: Sequence[str], guest: Guest, front: Front) -> NoReturn:
        """Replace this process by the first process of new namespaces.

        Being replaced, not waited for, is what makes SIGKILL end everything. Raises UsageError, EmulationError.
        """
        if os.geteuid() != 0:
            raise UsageError(f"real time needs root to make network namespaces: run it again with sudo{_or_virtual()}")
        cache.own()  # Better refused here than in the midst of a run.
        unshare = shutil.which("unshare")
        if unshare is None:
            raise EmulationError("unshare is not installed; apt-get install util-linux")
        die_with_sudo()
        sys.stdout.flush()
        sys.stderr.flush()
        flags = ["--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
        shared = {SHARED: ":".join(map(str, (*guest.keep, Path(sys.prefix), _PROJECT)))}
        os.execve(unshare, [unshare, *flags, *command], own_environment(os.environ) | shared)

    def given(self) -> bytes:
        """Return what is on stdin, which namespaces leave as it is."""
        return sys.stdin.buffer.read()

    def furnish(self) -> None:
        """Mount a /run, a /sys and a /dev of the run's own."""
        mount("tmpfs", Path("/run"), NOSUID | NODEV, "mode=755")
        _keep_control_groups()
        mount("sysfs", Path("/sys"), NOSUID | NODEV)
        make_own_devices()

    def settle(self) -> None:
        """Do nothing: a clock that nobody stops is never twice at the same place."""

    def wall_s(self) -> float:
        """Return the time: it goes on while programs compute."""
        return time.time()

    def spun(self) -> None:
        """Return None: it passes anyway."""

    def users_environment(self) -> dict[str, str]:
        """Return this process's own, which is the user's."""
        return dict(os.environ)

    def repeatable_with(self) -> dict[str, str] | None:
        """Return None: figures depend on all that the machine does."""
        return None

    def why_no_modules(self) -> str | None:
        """Return why this machine's kernel cannot take the modules; None: it can."""
        return modules.why_not_on_host()

    def why_no_bpf_controls(self) -> str | None:
        """Return why this machine's kernel cannot have them; None: it can."""
        return libbpf.why_not()

    def module(self, name: str) -> Path:
        """Return a module for this machine's kernel, built now unless it has been. Raises EmulationError."""
        modules.build(modules.host_kernel(), modules.host_make_command)
        path = modules.find(modules.host_kernel(), name)
        if path is None:
            raise EmulationError(f"the module {name} was built and is not found; is the cache being cleaned?")
        return path

    def guest_for(self, guest: Guest, needed_bytes: int, subject: str) -> Guest:
        """Return ``guest`` as it is. Raises UsageError if its memory was asked for."""
        if guest.memory_bytes is not None:
            raise UsageError("--memory is for --engine virtual; a run in real time uses this machine's memory: omit it")
        return guest

    def kernel(self) -> str:
        """Return this machine's kernel."""
        return platform.release()

    def memory_taken_bytes(self, guest: Guest) -> int:
        """Return 0: a run has the machine to itself, and nobody needs to divide its memory."""
        return 0


def _or_virtual() -> str:
    """Return how the same runs without root, if this machine can, or what that takes."""
    try:
        built = kernel.find()
    except UsageError as error:
        return f" (virtual time needs no root, but: {error})"
    if built is not None:
        return ", or without root in virtual time: --engine virtual"
    return ", or without root in virtual time: fabric virtual build (once), then --engine virtual"


def _keep_control_groups() -> None:
    """Keep the machine's control groups in sight, which a /sys of our own would hide: they tell what a quota takes."""
    if _MACHINES_CGROUPS.exists():
        CGROUPS.mkdir(parents=True)
        bind(_MACHINES_CGROUPS, CGROUPS, RECURSIVE)
