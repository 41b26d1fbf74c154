"""A user's program that only counts: ``python3 -m cluster.platform.counted_steps STEPS EVERY [SECONDS]``.

A step takes a second, or as long as is said, and each rank tells it. Rank 0 prints each, and a checkpoint is complete
every so many; it yields when the platform asks. A rank that finds another task on its node ends with an error.
"""

from __future__ import annotations

import fcntl
import os
import sys
import time
from pathlib import Path

from cluster.platform import user
from cluster.platform.user import FOLDER, go_suspend, receive_suspend_command, saved, saved_step

STEP_S = 1.0


def main(steps: int, every: int, step_s: float = STEP_S) -> None:
    """Make the steps that are left."""
    held = _hold_node()
    for step in range((saved_step() or 0) + 1, steps + 1):
        time.sleep(step_s)
        user.step(step)
        if os.environ["RANK"] != "0":
            continue
        print(step, flush=True)
        if step % every == 0:
            saved(step)
        if receive_suspend_command():
            saved(step)
            go_suspend()
    del held


def _hold_node() -> object:
    """Return what holds this node, to the end of this process, against other ranks of such programs on it."""
    folder = os.environ.get(FOLDER)
    if folder is None:
        return None
    file = (Path(folder).parent / "held").open("a")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        sys.exit(f"{Path(folder).name}: another task is on this node")
    return file


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]) if len(sys.argv) > 3 else STEP_S)
