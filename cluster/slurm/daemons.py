"""Slurm's daemons, each in a world of its own: whatever it starts ends with it, and it ends with the process that keeps
it.

A world has its own PIDs, mounts and hostname; the network is that of the host in which the keeper is. slurmd needs a
folder of control groups, in which there need be nothing.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from multiprocessing.connection import wait
from pathlib import Path

from cluster.slurm.installed import INSTALL, search_path
from fabric.errors import TrafficError
from fabric.world.isolation.limits import allow_usual_files
from fabric.world.isolation.processes import all_stats, die_with

_ENDS_S = 10.0
_LAST_BYTES = 2000
_ENTER = """
mount -t tmpfs none /sys/fs && mkdir /sys/fs/cgroup && hostname "$1" || exit 1
shift
# Not executed in place of this shell, which takes in what a daemon's own children leave behind.
"$@" &
daemon=$!
wait $daemon
"""


class Daemon:
    """A daemon of a host. ``said``: the file to which what it prints is added; ``host``: the hostname it sees."""

    def __init__(self, host: str, command: Sequence[str], environment: Mapping[str, str], said: Path) -> None:
        self.host, self.command, self._said = host, tuple(command), said
        self._environment = {**environment, "PATH": search_path()}
        self._process: subprocess.Popen[bytes] | None = None
        self.end: int | None = None
        """A descriptor that can be read once it has ended, to wait for; None: it was not started."""

    def start(self) -> None:
        """Start it. Raises TrafficError if that cannot be."""
        flags = ["--mount", "--uts", "--pid", "--fork", "--kill-child", "--mount-proc"]
        parent = os.getpid()

        def prepare() -> None:
            die_with(parent)
            allow_usual_files()
            # SIGINT is blocked in programs of a run, and would be so in what Slurm starts.
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})

        try:
            with self._said.open("ab") as said:
                self._process = subprocess.Popen(
                    ["unshare", *flags, "sh", "-c", _ENTER, "sh", self.host, *self.command],
                    env=self._environment,
                    stdin=subprocess.DEVNULL,
                    stdout=said,
                    stderr=said,
                    start_new_session=True,
                    preexec_fn=prepare,
                )
        except OSError as error:
            raise TrafficError(f"{self.host}: cannot start {self.command[0]}: {error}; install it: {INSTALL}") from None
        self.end = os.pidfd_open(self._process.pid)

    @property
    def is_alive(self) -> bool:
        """Whether it runs."""
        return self._process is not None and self._process.poll() is None

    def verify(self) -> None:
        """Raise TrafficError, with its last words, if it was started and has ended by itself."""
        if self._process is not None and self._process.poll() is not None:
            last = self._said.read_bytes()[-_LAST_BYTES:].decode(errors="replace").strip()
            code = self._process.returncode
            raise TrafficError(f"{self.host}: {self.command[0]} ended with {code}; it said last:\n{last}")

    def stop(self) -> None:
        """End it at once, and all that it has started, whether it is held or not; return when nothing of it is left."""
        if self._process is None:
            return
        worlds = _held(children_of(self._process.pid))
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)  # With it the first process of its world, and so all of it.
        try:
            self._process.wait(_ENDS_S)
            # The first process of a world ends after all others. Who started it has ended before.
            have_ended = len(wait(worlds, _ENDS_S)) == len(worlds)
        except subprocess.TimeoutExpired:
            have_ended = False
        finally:
            for world in worlds:
                os.close(world)
        if not have_ended:
            raise TrafficError(f"{self.host}: {self.command[0]} has not ended within {_ENDS_S:g} s of SIGKILL")
        self._process = None
        if self.end is not None:
            os.close(self.end)
            self.end = None

    def signal(self, number: signal.Signals) -> None:
        """Send the daemon itself a signal, not what it has started. One that has ended gets none."""
        if self._process is None:
            return
        for shell in children_of(self._process.pid):
            for daemon in children_of(shell):
                with suppress(ProcessLookupError):
                    os.kill(daemon, number)


def _held(processes: Sequence[int]) -> list[int]:
    """Return a descriptor of each process that is there, which can be read once it has ended."""
    found = []
    for process in processes:
        with suppress(ProcessLookupError):
            found.append(os.pidfd_open(process))
    return found


def children_of(process: int) -> list[int]:
    """Return the numbers of a process's children."""
    return [number for number, (_, parent, *_) in all_stats() if int(parent) == process]
