"""Which sockets of a process's host wait for a peer: how a server is seen to be ready."""

from __future__ import annotations

from pathlib import Path

_BOUND = (("tcp", "0A"), ("tcp6", "0A"), ("udp", "07"), ("udp6", "07"))
"""Tables of /proc/net, and the state of sockets that wait for a peer: TCP's listen, UDP's without one."""
_NAME_SERVER = "3500007F:0035"
"""127.0.0.53, port 53, as those tables have it: each host's own server of names, which is not a program's
(``host_programs.c``)."""


def bound_sockets(pid: int) -> int:
    """Return how many TCP sockets listen and UDP sockets are bound in the host of a process; 0 if it has ended, or is
    not there yet."""
    process = Path(f"/proc/{pid}")
    try:
        if (process / "ns/net").readlink() == Path("/proc/self/ns/net").readlink():
            return 0
    except OSError:
        return 0
    return sum(_in_table(process / "net" / name, state) for name, state in _BOUND)


def _in_table(table: Path, state: str) -> int:
    try:
        rows = table.read_text().splitlines()[1:]
    except OSError:  # The process has ended, or this kernel has no such protocol.
        return 0
    return sum(words[3] == state and words[1] != _NAME_SERVER for words in map(str.split, rows))
