"""A user's program that only counts: ``python3 -m cluster.platform.counted_steps STEPS EVERY``.

A step takes a second, and each rank tells it. Rank 0 prints each, and a checkpoint is complete every so many; it yields
when the platform asks.
"""

from __future__ import annotations

import os
import sys
import time

from cluster.platform import user
from cluster.platform.user import go_suspend, receive_suspend_command, saved, saved_step

STEP_S = 1.0


def main(steps: int, every: int, step_s: float = STEP_S) -> None:
    """Make the steps that are left."""
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


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
