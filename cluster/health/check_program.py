"""A check of a node as a program of its own, so that nothing of it is left in the agent: it prints what it found as a
line of JSON, or ``why`` not."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from fabric.errors import TrafficError
from fabric.world.isolation.processes import die_with

_LOOK_S = 0.05


class CheckError(TrafficError):
    """A check that has not been passed, or could not be done, and why."""


async def response_of(module: str, words: Sequence[str], timeout_s: float, what: str) -> dict[str, Any]:
    """Return what ``python -m module WORDS`` prints. Raises CheckError with the reason that it gives, or that it has
    not ended within ``timeout_s``; ``what``: what was not done then."""
    process = subprocess.Popen(
        [sys.executable, "-m", module, *words],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
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
                raise CheckError(f"{what} within {timeout_s:g} s")
            await asyncio.sleep(_LOOK_S)
        said = process.stdout.read() if process.stdout is not None else ""
    finally:
        process.kill()
        process.wait()
    return _answer_in(said)


def _answer_in(said: str) -> dict[str, Any]:
    last = said.strip().rpartition("\n")[2]
    try:
        answer: dict[str, Any] = json.loads(last)
        why = answer.get("why")
    except (ValueError, AttributeError):
        raise CheckError(f"its program said {last[:200]!r} in place of what it found") from None
    if why is not None:
        raise CheckError(str(why))
    return answer
