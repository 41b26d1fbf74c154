"""However a run ends, nothing of it is left on the machine but what its user asked for."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time

import pytest

from tests.waiting import until
from tests.worlds import TINY, Command, nothing_left, traces

pytestmark = pytest.mark.root

SIZES = (f"topology={TINY}", "nccl_nodes=4", "alone_time=60")
LONG = ["run", "isolation", "--out", "result", *(word for size in SIZES for word in ("--set", size))]
_PATIENCE_S = 120.0
_FULL_WORLD = 28
"""Processes of a run whose first programs are up: beside its hosts and switches, 8 ranks."""
_CALIBRATION_S = 15.0


def wait_for_programs(command: Command, process: subprocess.Popen[str], further_s: float) -> None:
    """Return some time after all programs are up: in the calibration, and after that in a phase."""
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


def test_a_run_that_is_killed_in_a_phase_leaves_nothing_and_the_next_one_works(command: Command) -> None:
    before = traces()
    with nothing_left(command):
        process = command.start(*LONG)
        wait_for_programs(command, process, _CALIBRATION_S)
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
        pytest.param(signal.SIGINT, 128 + signal.SIGINT, _CALIBRATION_S, id="Ctrl-C in a phase"),
        pytest.param(signal.SIGINT, 128 + signal.SIGINT, 0.0, id="Ctrl-C before"),
        pytest.param(signal.SIGTERM, 128 + signal.SIGTERM, 1.0, id="SIGTERM"),
    ],
)
def test_a_run_that_is_interrupted_ends_soon_and_leaves_nothing(
    command: Command, number: signal.Signals, code: int, after_s: float
) -> None:
    """As a terminal, ``timeout`` or a service manager does it: the signal goes to all processes of the group."""
    with nothing_left(command):
        process = command.start(*LONG)
        wait_for_programs(command, process, after_s)
        at_s = time.monotonic()
        os.killpg(process.pid, number)
        _, words = process.communicate(timeout=60)
        took_s = time.monotonic() - at_s
        print(f"ended {took_s:.1f} s after {number.name}")
        wait_for_the_end_of_all(command)
    assert process.returncode == code, words
    assert "Traceback" not in words
    assert took_s < 30
    assert command.files() == []
