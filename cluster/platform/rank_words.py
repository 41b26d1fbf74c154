"""What a rank and who keeps it go by, under either engine: the port of rank 0, and the step that a rank has saved. A
module without imports of the project's but those of users' programs: any Python has it."""

from __future__ import annotations

import math
import os
import stat
from pathlib import Path
from typing import NamedTuple

from cluster.platform.user import SAVED_FILE

MASTER_PORT = 2222
"""HAI's; a life's is higher by its number, modulo a thousand, so that one that is being killed is not in the way."""

MOST_STEPS = 1 << 63
_MOST_BYTES = 4096


def master_port(number: int) -> int:
    """Return where rank 0 of a life may listen, by a number of the life's own."""
    return MASTER_PORT + number % 1000


class SavedWord(NamedTuple):
    """The step of a complete checkpoint, and when that was complete (``time.monotonic()``); None: it was not said."""

    step: int
    at_s: float | None


def steps_in(path: Path) -> str:
    """Return the text of a file in a rank's folder, such as its saved step. Raises OSError if it cannot be read.

    A user's program may leave anything there. Opening a FIFO blocks until somebody writes, and reading a device may
    never end, so only regular files are read.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(f"{path}: no regular file")
        return os.read(descriptor, _MOST_BYTES).decode(errors="replace")
    finally:
        os.close(descriptor)


def saved_word(folder: Path) -> SavedWord | None:
    """Return what a rank has left in its folder of what it has saved; None if it has not, or said something else."""
    try:
        step, *at_s = steps_in(folder / SAVED_FILE).split()
        word = SavedWord(int(step), float(at_s[0]) if at_s else None)
    except (OSError, ValueError):
        return None
    # What is in the file is whatever a user's program wrote; the journal and tables have no other numbers.
    is_number = 0 <= word.step < MOST_STEPS and (word.at_s is None or math.isfinite(word.at_s))
    return word if is_number else None
