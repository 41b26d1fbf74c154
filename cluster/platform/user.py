"""What a user's program may ask and say, as ``hfai.client`` has it: a module without imports of the project's.

::

    from cluster.platform.user import go_suspend, receive_suspend_command, saved, saved_step

    for step in range(saved_step() or 0, steps):
        train(step)
        if receive_suspend_command():      # only rank 0 is asked
            save(step + 1)
            saved(step + 1)
            go_suspend()                   # does not return

Beside these a program has ``RANK``, ``WORLD_SIZE``, ``MASTER_IP`` and ``MASTER_PORT`` in its environment; in a run
``FABRIC_HOST``, by which it can mount a file system of the run (:mod:`traffic.storage.metadata.usrbio`), and
``FABRIC_PYTHON``, the Python that has the package for that.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from pathlib import Path
from typing import NoReturn

FOLDER = "PLATFORM_LIFE_DIR"
"""The environment variable that names a folder of this rank, where it and its agent leave each other word."""
SAVED_FILE = "step"
"""The file there with the step that the last checkpoint has, and when that was complete (``time.monotonic()``)."""
SUSPENDED_CODE = 75
"""The exit code of a program that suspends itself: try again later (EX_TEMPFAIL)."""
RESTART_CODE = 69
"""The exit code of a program that lacks what it cannot do without, as a rank that is gone (EX_UNAVAILABLE): its job
begins again from its last checkpoint, instead of being counted as failed."""


def _folder() -> Path | None:
    name = os.environ.get(FOLDER)
    return Path(name) if name else None


def receive_suspend_command() -> bool:
    """Return whether the platform wants this job to suspend; always False on other ranks than 0, and in a program that
    no agent started."""
    folder = _folder()
    if folder is None or not (folder / "suspend").exists():
        return False
    (folder / "answered").touch()
    return True


def go_suspend() -> NoReturn:
    """End this program as one that has saved, and goes on when it gets nodes again."""
    folder = _folder()
    if folder is not None:
        (folder / "suspended").touch()
    sys.stdout.flush()
    os._exit(SUSPENDED_CODE)


def saved(step: int) -> None:
    """Tell that a checkpoint of a step is complete."""
    _write(SAVED_FILE, f"{step} {time.monotonic()}")


def step(number: int) -> None:
    """Tell that this rank has made its own part of a step, before it waits for others: from what all ranks tell the
    platform sees that a job stands still, and who the others wait for."""
    _write("progress", str(number))


def _write(name: str, text: str) -> None:
    folder = _folder()
    if folder is not None:
        # Each thread has a file of its own: a checkpoint may be complete while the program goes on, and saves another.
        new = folder / f"{name}.new{threading.get_native_id()}"
        new.write_text(text)
        new.replace(folder / name)


def saved_step() -> int | None:
    """Return the step that the last complete checkpoint of this job has, as far as a life before this one told; None if
    there is none."""
    text = os.environ.get("PLATFORM_STEP", "")
    return int(text) if text else None
