"""However a run ends, nothing of it is left on the machine but what its user asked for."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from typing import IO

import pytest

from tests.waiting import until
from tests.worlds import TINY, Command, nothing_left, traces

pytestmark = pytest.mark.root

SIZES = (f"topology={TINY}", "nccl_nodes=4", "alone_time=60", "phase_attempts=1")
LONG = ["run", "isolation", "--out", "result", *(word for size in SIZES for word in ("--set", size))]
_PATIENCE_S = 120.0
_FULL_WORLD = 28
"""Processes of a run whose first programs are up: beside its hosts and switches, 8 ranks."""
_IN_A_PHASE = "hfreduce alone"
"""The title of the first phase, which the command says as that begins."""


@pytest.fixture
def log() -> Iterator[IO[bytes]]:
    """What the command says, so that it can be read while the command runs."""
    with tempfile.TemporaryFile() as file:
        yield file


def said(log: IO[bytes]) -> str:
    return os.pread(log.fileno(), 1 << 20, 0).decode()


def wait_for_a_phase(process: subprocess.Popen[str], log: IO[bytes]) -> None:
    """Return once all programs are up, links are measured and the first phase plays."""
    until(lambda: _IN_A_PHASE in said(log).splitlines() or process.poll() is not None, "a phase", _PATIENCE_S)
    assert process.poll() is None, said(log)


def wait_for_programs(command: Command, process: subprocess.Popen[str], further_s: float) -> None:
    """Return some time after all programs are up."""
    until(
        lambda: len(command.processes()) > _FULL_WORLD or process.poll() is not None,
        "programs in hosts",
        _PATIENCE_S,
    )
    time.sleep(further_s)
    assert process.poll() is None, "the run ended before it could be ended"


def wait_for_the_end_of_all(command: Command) -> None:
    """Wait for the kernel to take an ended world apart."""
    until(lambda: not command.processes(), "the world's processes to end", _PATIENCE_S)
    time.sleep(0.5)


def kill(command: Command, process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=60)
    wait_for_the_end_of_all(command)


@pytest.mark.parametrize("after_s", [0.5, 2.0, 6.0])
def test_a_run_that_is_killed_leaves_nothing(command: Command, after_s: float) -> None:
    with nothing_left(command):
        process = command.start(*LONG)
        time.sleep(after_s)
        print(f"killed among {len(command.processes())} processes")
        assert command.processes(), "the run was over before it was killed"
        kill(command, process)
    assert command.files() == []


def test_a_run_that_is_killed_in_a_phase_leaves_nothing_and_the_next_one_works(
    command: Command, log: IO[bytes]
) -> None:
    before = traces()
    with nothing_left(command):
        process = command.start(*LONG, stderr=log)
        wait_for_a_phase(process, log)
        assert any("ovs-vswitchd" in line for line in command.processes())
        assert traces() == before
        kill(command, process)
    assert command.files() == []
    done = command.run("path", TINY, "z0h000", "z0h001", "--probe", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(done.stdout)["agrees"] is True


@pytest.mark.parametrize(
    ("number", "code", "after_s"),
    [
        pytest.param(signal.SIGINT, 128 + signal.SIGINT, None, id="Ctrl-C in a phase"),
        pytest.param(signal.SIGINT, 128 + signal.SIGINT, 0.0, id="Ctrl-C before"),
        pytest.param(signal.SIGTERM, 128 + signal.SIGTERM, 1.0, id="SIGTERM"),
    ],
)
def test_a_run_that_is_interrupted_ends_soon_and_leaves_nothing(
    command: Command, log: IO[bytes], number: signal.Signals, code: int, after_s: float | None
) -> None:
    """As a terminal, ``timeout`` or a service manager does it: the signal goes to all processes of the group."""
    with nothing_left(command):
        process = command.start(*LONG, stderr=log)
        if after_s is None:
            wait_for_a_phase(process, log)
        else:
            wait_for_programs(command, process, after_s)
        at_s = time.monotonic()
        os.killpg(process.pid, number)
        process.communicate(timeout=60)
        took_s = time.monotonic() - at_s
        print(f"ended {took_s:.1f} s after {number.name}")
        wait_for_the_end_of_all(command)
    assert process.returncode == code, said(log)
    assert "Traceback" not in said(log)
    assert took_s < 30
    assert command.files() == []
