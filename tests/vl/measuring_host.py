"""Runs a guest that measures what the lines on stdin ask for: ``measuring_host.py [KERNEL-PARAMETER]...``."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from fabric.world.virtual import bytecode
from fabric.world.virtual.guest import GIB, Channels, GuestMachine, Surroundings, run_in_guest


def next_request() -> str | None:
    """Return the next line of stdin, None at its end."""
    line = sys.stdin.readline()
    return line.rstrip("\n") if line else None


if __name__ == "__main__":
    sys.exit(
        run_in_guest(
            [sys.executable, str(Path(__file__).with_name("measuring.py"))],
            GuestMachine(1, GIB, kernel_parameters=sys.argv[1:]),
            Surroundings(environment=os.environ, bytecode=bytecode.prepare()),
            Channels(ask=next_request),
        )
    )
