"""Runs the measurements of this directory in guests: ``measured("links", "rate", 10**9, 10**7)``.

A guest carries all measurements of a file of tests, one after the other, each in namespaces and with modules of its
own: booting and importing cost more than most of them.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import tempfile
import time
from functools import cache
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
_MEASUREMENT_TIMEOUT_S = 600.0
_END_TIMEOUT_S = 60.0


class MeasuringGuest:
    """A guest that measures what it is asked to, and stands still in between; ``measuring.py`` is what runs in it."""

    def __init__(self, kernel_parameters: tuple[str, ...]) -> None:
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed by close()
        self._process = subprocess.Popen(
            [sys.executable, str(HERE / "measuring_host.py"), *kernel_parameters],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
        )
        self._words = b""

    def answer(self, module: str, function: str, arguments: tuple[object, ...]) -> Any:
        """Return what a function of ``tests/vl/MODULE.py`` returns there. Fails the test if it raises."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([module, function, arguments]).encode() + b"\n")
        self._process.stdin.flush()
        what = f"{function}{arguments}"
        deadline = time.monotonic() + _MEASUREMENT_TIMEOUT_S
        said: list[str] = []
        while (line := self._line(deadline, what)) != "done":
            said.append(line)
        results = [line for line in said if line.startswith("result ")]
        if len(results) != 1:
            pytest.fail("\n".join([f"{what} failed in the guest:", *said]))
        print(*said, sep="\n")
        return json.loads(results[0].removeprefix("result "))

    def _line(self, deadline: float, what: str) -> str:
        assert self._process.stdout is not None
        while b"\n" not in self._words:
            ready, _, _ = select.select([self._process.stdout], [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                pytest.fail(f"{what}: not done in the guest after {_MEASUREMENT_TIMEOUT_S:g} s")
            if not (part := os.read(self._process.stdout.fileno(), 1 << 16)):
                self._errors.seek(0)
                pytest.fail(f"{what}: the guest ended: {self._words.decode()}{self._errors.read()}")
            self._words += part
        line, self._words = self._words.split(b"\n", 1)
        return line.decode()

    def close(self) -> None:
        """End the guest, and kill it if it does not."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.close()
            self._process.wait(_END_TIMEOUT_S)
        except (BrokenPipeError, subprocess.TimeoutExpired):
            self._process.kill()  # Its guest ends with it.
            self._process.wait()
        self._process.stdout.close()
        self._errors.close()


@cache
def _guest(kernel_parameters: tuple[str, ...]) -> MeasuringGuest:
    guest = MeasuringGuest(kernel_parameters)
    _running.append(guest)
    return guest


_running: list[MeasuringGuest] = []


def end_guests() -> None:
    """End all guests that measurements have been made in; the next one starts another."""
    _guest.cache_clear()
    while _running:
        _running.pop().close()


def measured(module: str, function: str, *arguments: object, kernel_parameters: tuple[str, ...] = ()) -> Any:
    """Return what a function of ``tests/vl/MODULE.py`` returns in a guest that has the qdisc."""
    try:
        return _guest(kernel_parameters).answer(module, function, arguments)
    except BaseException:
        end_guests()  # What failed may have left its guest in any state, or waits in it still.
        raise
