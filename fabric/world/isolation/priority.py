"""Which processes go first on the cores that all of a run shares: their niceness, and that of their sessions.

Where the kernel shares the processors out among sessions first (autogroup), a process's own niceness counts only
against others of its session: a process that leads a session needs its session to have it, too.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path


def set_niceness(pid: int, niceness: int) -> None:
    """Give a process that leads a session of its own, and that session, a niceness."""
    os.setpriority(os.PRIO_PROCESS, pid, niceness)
    set_session_niceness(pid, niceness)


def set_session_niceness(pid: int, niceness: int) -> None:
    """Give a process's session a niceness, where the kernel has such a thing."""
    with suppress(OSError):  # No such kernel, or it has ended.
        Path(f"/proc/{pid}/autogroup").write_text(str(niceness))


def leave_session(niceness: int) -> None:
    """Give this process a session of its own, and both a niceness. For programs of the run's, which its end ends."""
    os.setsid()
    set_niceness(os.getpid(), niceness)
