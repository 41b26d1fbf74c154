"""Directories for the time of a block that do not outlive who made them, whatever ends that."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def removed_directory(prefix: str) -> Iterator[Path]:
    """Make a directory that is deleted at the end, also if this process is killed: a shell waits for that to happen.

    A process that is forked in the block has a part in it: the directory goes once both have left the block.
    """
    directory = Path(tempfile.mkdtemp(prefix=prefix))
    cleaner = subprocess.Popen(
        ["/bin/sh", "-c", 'read -r _; rm -rf -- "$1"', "sh", str(directory)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,  # Whoever reads ours to its end is not to wait for this.
        cwd="/",
        start_new_session=True,
    )
    try:
        yield directory
    finally:
        cleaner.communicate()
