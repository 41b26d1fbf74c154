"""The storage check of a node: :mod:`cluster.health.storage_stress` as a program, so that nothing of its client is left
in the agent."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import NamedTuple

from fabric.errors import TrafficError
from fabric.world.isolation.processes import die_with

PROGRAM = "cluster.health.storage_stress"
_LOOK_S = 0.05


class StressError(TrafficError):
    """The storage does not answer, or returns other bytes than were written."""


class Speeds(NamedTuple):
    """Payload in bit/s."""

    write_bps: float
    read_bps: float


async def stress(node: str, job: str | None, size_bytes: int, timeout_s: float) -> Speeds:
    """Return how fast a node wrote and read ``size_bytes`` of the file system of a job (None: the only one). Raises
    StressError, with the reason, if bytes are wrong or it takes longer than ``timeout_s``."""
    command = [sys.executable, "-m", PROGRAM, node, job or "", str(size_bytes)]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    process = subprocess.Popen(
        command,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        preexec_fn=partial(die_with, os.getpid()),
    )
    until_s = time.monotonic() + timeout_s
    try:
        while process.poll() is None:
            if time.monotonic() >= until_s:
                raise StressError(f"{size_bytes} B were not written and read within {timeout_s:g} s")
            await asyncio.sleep(_LOOK_S)
        said = process.stdout.read() if process.stdout is not None else ""
    finally:
        process.kill()
        process.wait()
    return _speeds_of(said)


def _speeds_of(said: str) -> Speeds:
    """Return what the program measured. Raises StressError with what it said in place of that."""
    last = said.strip().rpartition("\n")[2]
    try:
        answer = json.loads(last)
        if "why" in answer:
            raise StressError(str(answer["why"]))
        return Speeds(float(answer["write_bps"]), float(answer["read_bps"]))
    except (ValueError, KeyError, TypeError):
        raise StressError(f"its program said {last[:200]!r} in place of what it measured") from None
