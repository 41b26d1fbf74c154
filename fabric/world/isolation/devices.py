"""A small private /dev per run, so that its programs, which are root, do not reach the machine's devices."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from fabric.errors import EmulationError
from fabric.world.isolation.mounts import NODEV, NOEXEC, NOSUID, bind, mount

DEV = Path("/dev")
NODES = {"null": (1, 3), "zero": (1, 5), "full": (1, 7), "random": (1, 8), "urandom": (1, 9), "tty": (5, 0)}
"""Every world's devices, with the numbers that the kernel gives them (admin-guide/devices.txt)."""
TUN = ("net/tun", (10, 200))
"""Makes a program's own interfaces; only where the machine has it."""
LINKS = {
    "ptmx": "pts/ptmx",
    "fd": "/proc/self/fd",
    "stdin": "/proc/self/fd/0",
    "stdout": "/proc/self/fd/1",
    "stderr": "/proc/self/fd/2",
}
_TTY_GROUP = 5  # Debian's and everybody's number for it.


def make_own_devices() -> None:
    """Mount a new /dev over the machine's, in this mount namespace: devices that compute nothing, terminals and memory.

    Open files stay what they are. Devices are nodes of the world's own, so that a change of their owner or mode stays
    in it, and mount points, so that nobody can remove them. Raises EmulationError.
    """
    nodes = dict(NODES)
    if (DEV / TUN[0]).exists():
        nodes[TUN[0]] = TUN[1]
    mount("tmpfs", DEV, NOSUID | NOEXEC, "mode=755,size=64k")
    for name, number in nodes.items():
        _make_node(DEV / name, *number)
    for name, target in LINKS.items():
        (DEV / name).symlink_to(target)
    for name in ("pts", "shm"):
        (DEV / name).mkdir()
    mount("devpts", DEV / "pts", NOSUID | NOEXEC, f"newinstance,ptmxmode=0666,mode=620,gid={_TTY_GROUP}")
    mount("tmpfs", DEV / "shm", NOSUID | NODEV, "mode=1777")


def _make_node(path: Path, major: int, minor: int) -> None:
    path.parent.mkdir(exist_ok=True)
    try:
        os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(major, minor))
    except OSError as error:
        needs = "a run needs root with CAP_MKNOD"
        raise EmulationError(f"making {path}: {error.strerror}; {needs}") from error
    path.chmod(0o666)  # Whatever the umask.
    bind(path, path)
