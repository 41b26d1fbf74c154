"""``python -m fabric.world.other_machine ADDRESS PORT PARENT``: plays guests of a run that has its first machine there.

The run's key is in the environment (KEY). It ends with the run, or with the process ``PARENT`` that started it (0: none
does so).
"""

from __future__ import annotations

import os
import signal
import sys

from fabric.errors import FabricError, UsageError
from fabric.world.isolation.processes import die_with
from fabric.world.virtual.meeting import KEY
from fabric.world.virtual_time import take_part


def main(address: str, port: str, parent: str = "0") -> int:
    """Take part, and return the exit code."""
    if int(parent):
        die_with(int(parent))
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    try:
        if (key := os.environ.pop(KEY, None)) is None:
            raise UsageError(f"{KEY} is not set: the run that this machine is to join says what it is")
        take_part(address, int(port), key)
    except FabricError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
