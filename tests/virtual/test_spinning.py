"""Programs that look at memory until it changes, in virtual time: it passes for them as for those that wait."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.virtual.command import TINY, VirtualCommand

pytestmark = [
    pytest.mark.guest,
    pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler: apt-get install gcc libc6-dev"),
]

SOURCE = Path(__file__).with_name("spinners.c")


@pytest.fixture
def spinners(tmp_path: Path) -> Path:
    """The programs, built outside of what a guest has of its own."""
    program = tmp_path / "spinners"
    subprocess.run(["cc", "-O2", "-pthread", "-o", str(program), str(SOURCE)], check=True, timeout=60)
    return program


def test_who_looks_at_memory_goes_on_when_it_changes(command: VirtualCommand, spinners: Path) -> None:
    script = f"for n in 1 2; do {spinners} sleeper; {spinners} pingpong; done"
    done = command.run("exec", TINY, "z0h000", "--", "sh", "-c", script)
    assert done.returncode == 0, done.stdout + done.stderr
    took = [(kind, float(us)) for kind, us in re.findall(r"^(\w+) ([\d.]+) us$", done.stdout, re.MULTILINE)]
    print(took)
    assert [kind for kind, _ in took] == ["sleeper", "pingpong"] * 2
    asleep = [us for kind, us in took if kind == "sleeper"]
    assert asleep == [5000.001] * 2, "set after 5 ms and the kernel's slack of timers, 1 ns, and seen at that moment"
    assert all(us < 1 for kind, us in took if kind == "pingpong"), "threads in turn take no time"
    assert took[:2] == took[2:]


def test_who_counts_its_looks_goes_on_at_that_moment_and_who_computes_takes_no_time(
    command: VirtualCommand, spinners: Path
) -> None:
    kinds = ("counting", "counter", "delaying", "scanning")
    done = command.run(
        "exec", TINY, "z0h000", "--", "sh", "-c", f"for kind in {' '.join(kinds)}; do {spinners} $kind; done"
    )
    assert done.returncode == 0, done.stdout + done.stderr
    took = {kind: float(us) for kind, us in re.findall(r"^(\w+) ([\d.]+) us$", done.stdout, re.MULTILINE)}
    print(took)
    assert took["counting"] == took["counter"] == 5000.001, "set after 5 ms, and seen at that moment"
    assert 0 < took["delaying"] < 1 and 0 < took["scanning"] < 1, "computing takes no time"


def test_the_host_that_spins_at_the_timeout_is_named(command: VirtualCommand, spinners: Path) -> None:
    script = f"[ $FABRIC_RANK = 2 ] && exit; [ $FABRIC_RANK = 0 ] && exec sleep 10000; exec {spinners} forever"
    words = ["z0h000", "z0h001", "z1h000", "--timeout", "60", "--", "sh", "-c", script]
    done = command.run("exec", TINY, *words)
    assert done.returncode == 1
    assert "z0h000, z0h001: 'sh' still runs after 60 s" in done.stderr, "that of z1h000 has ended"
    assert "on z0h000 'sleep' waits, on z0h001 'spinners' looks at memory that does not change" in done.stderr


def test_a_flow_beside_a_spinner_is_as_fast_as_alone(command: VirtualCommand, spinners: Path) -> None:
    def rate(*background: str) -> float:
        server = ["--background", "z0h001=iperf3 -s", *(word for one in background for word in ("--background", one))]
        done = command.run("exec", TINY, "z0h000", *server, "--", "iperf3", "-c", "z0h001", "-n", "1M", "-f", "k")
        assert done.returncode == 0, done.stdout + done.stderr
        (found,) = re.findall(r"([\d.]+) Kbits/sec +receiver", done.stdout)
        return float(found)

    alone = rate()
    beside = rate(f"z0h000=sh -c 'while :; do {spinners} sleeper; done'")
    print(alone, beside)
    assert beside == pytest.approx(alone, rel=0.001)


def test_a_shell_starts_one_client_after_another(command: VirtualCommand) -> None:
    """A server of one client at a time has closed before the next comes, since to start a program takes time."""
    script = "for n in 1 2 3 4 5 6; do iperf3 -c z0h001 -l 4K -n 8K > /dev/null; echo code $?; done"
    done = command.run("exec", TINY, "--background", "z0h001=iperf3 -s", "z0h000", "--", "sh", "-c", script)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.findall(r"^code (\d+)$", done.stdout, re.MULTILINE) == ["0"] * 6
