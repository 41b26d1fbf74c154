"""Frameworks on GPUs that are not there: each by its documented command, from a folder of its user's; what it asks
``nccl`` for is what its parallelism says, and two runs are the same to the last digit."""

from __future__ import annotations

import re
import shutil
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from experiments.libraries.catalogue import FRAMEWORKS
from experiments.libraries.installing import install
from fabric.errors import EmulationError
from tests.virtual.command import ROOT, VirtualCommand

pytestmark = [pytest.mark.guest, pytest.mark.soak]
PROGRAMS = ROOT / "docs" / "programs"
FABRIC = ("head_of_line_200g", "--queueing", "lossless_lanes", "--gpu", "h100", "z0h000", "z0h002")
TORCHRUN = (sys.executable, "-m", "torch.distributed.run")
BF16, FP32 = 2, 4


@dataclass(frozen=True)
class Said:
    """What a run printed. ``asked``: calls and bytes of rank 0 by collective; ``times``: all numbers of its lines that
    say how long something took."""

    text: str
    asked: dict[str, tuple[int, int]]

    @classmethod
    def of(cls, text: str) -> Said:
        found = re.findall(r"^\S*\s*(\w+): (\d+) of together (\d+) B", text, re.MULTILINE)
        return cls(text, {kind: (int(calls), int(size)) for kind, calls, size in found})

    @property
    def times(self) -> list[str]:
        """The lines of the program and of the report, without what no two runs share."""
        return [line for line in self.text.splitlines() if re.search(r"step\s*:? *\d|took|under way|loss:", line)]


@cache
def packages() -> Path:
    """Return where the frameworks are; skip the test if they cannot be installed."""
    if shutil.which("g++") is None:
        pytest.skip("no C++ compiler: apt-get install g++")
    try:
        home = install(FRAMEWORKS)
    except EmulationError as error:
        pytest.skip(f"the frameworks cannot be installed here: {error}")
    return next(home.glob("lib/python3*/site-packages"))


def play(command: VirtualCommand, options: list[str], script: list[str]) -> Said:
    """Return what a script says on two hosts."""
    around = {"PYTHONPATH": f"{ROOT}:{packages()}", "PYTHONWARNINGS": "ignore"}
    done = command.run("exec", *FABRIC, *options, "--", *TORCHRUN, *script, environment=around)
    assert done.returncode == 0, done.stdout + done.stderr
    return Said.of(done.stdout + done.stderr)
