"""Mininet's prompt in virtual time: by a pipe, and on a terminal, where a person would sit."""

from __future__ import annotations

import os
import pty
import re
import select
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.virtual.command import SMALL, VirtualCommand
from tests.virtual.guests import below

pytestmark = pytest.mark.guest
PATIENCE_S = 200.0
CLOCK = "py __import__('time').monotonic()"


def test_lines_from_a_pipe_are_run_and_its_end_leaves_the_prompt(command: VirtualCommand) -> None:
    lines = ["z0h000 ping -c1 z0h001", "nodes", "z0h000 echo HOME is $HOME", "nonsense"]
    with command.start("shell", SMALL, stdin=subprocess.PIPE) as process:
        out, err = process.communicate("\n".join(lines), timeout=PATIENCE_S)
    assert process.returncode == 0, err
    assert "1 packets transmitted, 1 received" in err
    assert "z0s00 z0s01" in err
    assert f"HOME is {os.environ['HOME']}" in err
    assert "Unknown command: nonsense" in err
    assert "virtual time stands still while the prompt waits" in err
    assert out == "mininet> " * (len(lines) + 1)
    assert list(command.temporary.iterdir()) == list(command.here.iterdir()) == []


@dataclass
class Terminal:
    """A terminal with the command in it."""

    process: subprocess.Popen[str]
    ours: int
    _unread: str = field(default="")

    def type(self, text: str) -> None:
        os.write(self.ours, text.encode())

    def wait_for(self, words: str) -> str:
        """Return what was shown up to these words."""
        deadline = time.monotonic() + PATIENCE_S
        while words not in self._unread:
            assert time.monotonic() < deadline, f"no {words!r} within {PATIENCE_S:g} s, only {self._unread!r}"
            if select.select([self.ours], [], [], 1.0)[0]:
                self._unread += os.read(self.ours, 65536).decode(errors="replace")
        shown, _, self._unread = self._unread.partition(words)
        return shown

    def prompted(self, line: str) -> str:
        """Type a line, and return what is shown until the next prompt."""
        self.type(f"{line}\r")
        return self.wait_for("mininet> ")


@pytest.fixture
def terminal(command: VirtualCommand) -> Iterator[Terminal]:
    """A terminal that shows a first prompt."""
    ours, theirs = pty.openpty()
    options: dict[str, Any] = {"stdin": theirs, "stdout": theirs, "stderr": theirs, "start_new_session": True}
    with command.start("shell", SMALL, preexec_fn=_take_terminal, **options) as process:
        os.close(theirs)
        try:
            made = Terminal(process, ours)
            made.wait_for("mininet> ")
            yield made
        finally:
            process.kill()
            os.close(ours)


def _take_terminal() -> None:
    os.close(os.open(os.ttyname(0), os.O_RDWR))  # The first that a session opens is its own.


def cpu_s(process: int) -> float:
    """Return the CPU time that the guest below a process has taken."""
    ticks = 0
    for member in below(process):
        with open(f"/proc/{member}/stat") as file:  # noqa: PTH123
            fields = file.read().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def time_shown(text: str) -> float:
    found = re.search(r"^\d+\.\d+", text, re.MULTILINE)
    assert found, text
    return float(found[0])


def test_a_terminal_waits_interrupts_and_is_left(terminal: Terminal) -> None:
    before_s = time_shown(terminal.prompted(CLOCK))
    taken_s = cpu_s(terminal.process.pid)
    time.sleep(3)
    assert cpu_s(terminal.process.pid) - taken_s <= 0.02
    passed_s = time_shown(terminal.prompted(CLOCK)) - before_s
    print(f"{passed_s} s of virtual time passed while the prompt waited for 3 s")
    assert passed_s < 0.001

    terminal.type("z0h000 ping z0h001\r")
    terminal.wait_for("icmp_seq=3 ")
    terminal.type("\x03")
    assert "packets transmitted" in terminal.wait_for("mininet> ")
    terminal.type("half a line\x03")
    terminal.wait_for("Interrupt")
    terminal.wait_for("mininet> ")
    assert "0% packet loss" in terminal.prompted("z0h000 ping -c 1 z1h001")  # The switches have survived it all.
    terminal.type("\x04")
    assert terminal.process.wait(PATIENCE_S) == 0
