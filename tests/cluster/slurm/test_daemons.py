"""Daemons of Slurm's in worlds of their own: what they start ends with them."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

import pytest

from cluster.slurm.daemons import Daemon
from tests.waiting import until

CHILDREN = 400
"""So many that the kernel needs time to end them, and who does not wait for that finds some."""

pytestmark = pytest.mark.root


def having(mark: str) -> int:
    """Return how many processes have a word in their environment."""
    found = 0
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            found += mark.encode() in (folder / "environ").read_bytes()
    return found


def test_nothing_is_left_of_a_daemon_that_was_stopped(tmp_path: Path) -> None:
    mark = f"DAEMONS_OF={tmp_path}"
    environment = {"PATH": os.environ["PATH"], "DAEMONS_OF": str(tmp_path)}
    script = f"i=0; while [ $i -lt {CHILDREN} ]; do sleep 600 & i=$((i + 1)); done; wait"
    daemon = Daemon("one", ["sh", "-c", script], environment, tmp_path / "said")
    daemon.start()
    try:
        until(lambda: having(mark) > CHILDREN or None, "all of the daemon to begin")
    finally:
        daemon.stop()
    assert having(mark) == 0
    assert not daemon.is_alive
