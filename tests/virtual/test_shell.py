"""Mininet's prompt in virtual time: by a pipe, and on a terminal, where a person would sit."""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from fabric.measure.cores import process_time
from tests.terminal import PATIENCE_S, Terminal, in_terminal
from tests.virtual.command import TINY, VirtualCommand
from tests.virtual.guests import below
from tests.waiting import until

pytestmark = pytest.mark.guest
CLOCK = "py __import__('time').monotonic()"


def test_lines_from_a_pipe_are_run_and_its_end_leaves_the_prompt(command: VirtualCommand) -> None:
    lines = ["z0h000 ping -c1 z0h001", "nodes", "z0h000 echo HOME is $HOME", "nonsense"]
    with command.start("shell", TINY, stdin=subprocess.PIPE) as process:
        out, err = process.communicate("\n".join(lines), timeout=PATIENCE_S)
    assert process.returncode == 0, err
    assert "1 packets transmitted, 1 received" in err
    assert "z0s00 z0s01" in err
    assert f"HOME is {os.environ['HOME']}" in err
    assert "Unknown command: nonsense" in err
    assert "virtual time stands still while the prompt waits" in err
    assert out == "mininet> " * (len(lines) + 1)
    assert list(command.temporary.iterdir()) == list(command.here.iterdir()) == []


@pytest.fixture
def terminal(command: VirtualCommand) -> Iterator[Terminal]:
    """A terminal that shows a first prompt."""
    with in_terminal(lambda **options: command.start("shell", TINY, **options)) as made:
        made.wait_for("mininet> ")
        yield made


def cpu_s(process: int) -> float:
    """Return the CPU time that the guest below a process has taken; what ends meanwhile counts for nothing."""
    total_s = 0.0
    for member in below(process):
        with suppress(OSError):
            used = process_time(Path(f"/proc/{member}/stat").read_text())
            total_s += used.user_s + used.kernel_s
    return total_s


def cpu_s_at_rest(process: int) -> float:
    """Return the same once what the guest was told to do is done: it gives way to whoever else computes."""
    seen = [cpu_s(process)]

    def is_at_rest() -> bool:
        time.sleep(0.2)
        seen.append(cpu_s(process))
        return seen[-1] == seen[-2]

    until(is_at_rest, "the guest to stand still")
    return seen[-1]


def time_shown(text: str) -> float:
    found = re.search(r"^\d+\.\d+", text, re.MULTILINE)
    assert found, text
    return float(found[0])


def test_a_terminal_waits_interrupts_and_is_left(terminal: Terminal) -> None:
    before_s = time_shown(terminal.prompted(CLOCK))
    taken_s = cpu_s_at_rest(terminal.process.pid)
    time.sleep(3)
    assert cpu_s(terminal.process.pid) - taken_s < 0.1, "a guest that waits for its user computes"
    passed_s = time_shown(terminal.prompted(CLOCK)) - before_s
    print(f"{passed_s} s of virtual time passed while the prompt waited for 3 s")
    assert passed_s < 0.001

    terminal.type("z0h000 ping z0h001\r")
    terminal.wait_for("icmp_seq=3 ")
    terminal.type("\x03")
    assert "packets transmitted" in terminal.wait_for("mininet> ")
    terminal.type("half a line")
    terminal.wait_for("half a line")
    terminal.press_until("\x03", "Interrupt")
    terminal.wait_for("mininet> ")
    assert "0% packet loss" in terminal.prompted("z0h000 ping -c 1 z1h001")  # The switches have survived it all.
    terminal.type("\x04")
    assert terminal.process.wait(PATIENCE_S) == 0
