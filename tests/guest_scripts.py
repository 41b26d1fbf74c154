"""Scripts of the tests, run in guests."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from fabric.world.virtual import bytecode
from fabric.world.virtual.guest import DEFAULT_MEMORY_BYTES, run_in_guest

ROOT = Path(__file__).parents[1]


def run_script(
    script: Path, *arguments: str, keep: Sequence[Path] = (), memory_bytes: int = DEFAULT_MEMORY_BYTES
) -> str:
    """Run a script as the first program of a guest and return what it prints; it fails if the script does.

    Its modules come compiled, as those of commands do: guests do not hang on what else has been compiled meanwhile.
    """
    stdout = io.BytesIO()
    code = run_in_guest(
        [sys.executable, str(script), *arguments],
        seed=1,
        memory_bytes=memory_bytes,
        keep=keep,
        environment=os.environ | {"PYTHONPATH": str(ROOT), "FABRIC_WORLD": "1"},
        stdout=stdout,
        bytecode=bytecode.prepare(),
    )
    words = stdout.getvalue().decode()
    assert code == 0, f"{script.name} ended with {code} in the guest: {words}"
    return words
