"""The ``fabric`` command with ``--engine virtual``, as any account may call it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fabric.world.virtual.guest import WAITING

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
SMALL = "fire_flyer_2_small"
TINY = "fire_flyer_2_tiny"
"""For what does not hang on the fabric's size: its guest is up in half the time."""
RUN_TIMEOUT_S = 1200.0
OWN_GUEST = {WAITING: ""}
"""The environment of a command whose guest boots: it is below the command's process, as one that is forked is not."""


@dataclass(frozen=True)
class VirtualCommand:
    """The command with ``--engine virtual``, called in ``here``, with ``temporary`` for its temporary files."""

    here: Path
    temporary: Path

    def start(
        self, *arguments: str, environment: Mapping[str, str] | None = None, **options: Any
    ) -> subprocess.Popen[str]:
        """Start ``fabric ARGUMENTS --engine virtual``; what comes after two dashes stays behind them.

        ``environment`` adds to our own, ``options`` are Popen's.
        """
        words, dashes, program = _split(arguments)
        command = [sys.executable, "-m", "app.cli", *words, "--engine", "virtual", *dashes, *program]
        surroundings = os.environ | {"TMPDIR": str(self.temporary), "PYTHONPATH": str(ROOT), **(environment or {})}
        pipe = subprocess.PIPE
        pipes: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": pipe, "stderr": pipe, "text": True}
        return subprocess.Popen(command, cwd=self.here, env=surroundings, **(pipes | options))

    def run(self, *arguments: str, environment: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
        """Run it to its end."""
        with self.start(*arguments, environment=environment) as process:
            try:
                out, err = process.communicate(timeout=RUN_TIMEOUT_S)
            finally:
                process.kill()
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def _split(arguments: Sequence[str]) -> tuple[Sequence[str], Sequence[str], Sequence[str]]:
    place = arguments.index("--") if "--" in arguments else len(arguments)
    return arguments[:place], arguments[place : place + 1], arguments[place + 1 :]
