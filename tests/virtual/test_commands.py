"""The commands in virtual time, as an account without any rights may call them."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from fabric.world.virtual.guest import GIB, Channels, GuestMachine, run_in_guest
from tests.guest_scripts import run_module
from tests.virtual.command import HERE, OWN_GUEST, ROOT, SMALL, TINY, VirtualCommand
from tests.virtual.guests import below, processes
from tests.waiting import until

pytestmark = pytest.mark.guest
IN_HOSTS = 16
"""Processes of a guest in which a run has made its hosts, ten of the tiny fabric."""


@pytest.mark.parametrize(
    ("fabric", "hosts", "level", "switches"),
    [
        pytest.param(TINY, ("z0h000", "z0h001"), "nccl", 3, id="across leaves", marks=pytest.mark.soak),
        pytest.param(TINY, ("z0h001", "z1h000"), "hfreduce", 5, id="across zones"),
    ],
)
def test_a_packet_goes_where_the_plan_says(
    command: VirtualCommand, fabric: str, hosts: tuple[str, str], level: str, switches: int
) -> None:
    done = command.run("path", fabric, *hosts, "--level", level, "--probe", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    answer = json.loads(done.stdout)
    assert answer["delivered"] is True
    assert answer["seen"] == answer["planned"]
    assert len(answer["seen"]) == 1 + switches
    assert {hop["lane"] for hop in answer["seen"]} == {level}
    assert list(command.temporary.iterdir()) == list(command.here.iterdir()) == []


def test_a_lane_alone_has_the_link_and_all_lanes_have_their_shares() -> None:
    found = json.loads(run_module("tests.virtual.calibrated", SMALL))
    assert len(found) > 4
    print(found)
    for one in found:
        assert abs(one["rate"]) < 0.003, one
        assert one["share"] < 0.01, one


def test_a_frame_that_has_left_its_host_does_not_hold_its_sender_back(command: VirtualCommand) -> None:
    hosts = ("z0h000", "z0h001", "z0h003")
    program = (sys.executable, str(HERE / "fan_in_senders.py"))
    done = command.run("exec", TINY, *hosts, "--queueing", "shared", "--", *program)
    assert done.returncode == 0, done.stdout + done.stderr
    found = [int(line.split()[-1]) for line in done.stdout.splitlines() if "unacknowledged" in line]
    print(found)
    # The window has room for 15 segments. What waits at the leaf is nobody's small queue; it was 2 to 4 when it was.
    assert len(found) == 2
    assert min(found) >= 10


def test_what_settles_goes_on_at_a_whole_second(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    script = "import time; from fabric.world.engines import VIRTUAL; VIRTUAL.settle(); print(time.monotonic_ns())"
    stdout = io.BytesIO()
    assert run_in_guest([sys.executable, "-c", script], GuestMachine(1, GIB), channels=Channels(stdout)) == 0
    seconds, late_ns = divmod(int(stdout.getvalue()), 10**9)
    assert seconds == 13
    assert late_ns < 2000


WHO = """
import os, socket, sys
name = socket.gethostname()
listener = socket.create_server(("::", 5000), family=socket.AF_INET6, dualstack_ipv6=True)
near = socket.getaddrinfo("st000", 1, type=socket.SOCK_STREAM)[0][4][0]
socket.create_connection(("::1", 5000)), socket.create_connection(("127.0.0.1", 5000))
print(name, socket.gethostbyname(name), near, file=sys.stderr)
os.write(1, bytes(range(256)) + b"half a line")
"""


SURROUNDINGS = "echo $HOME $MORE $PYTHONPYCACHEPREFIX on $FABRIC_HOST; wc -c; readlink /proc/self/fd/0"
USERS = {"HOME": "/home/somebody", "MORE": "of it"}


class Printed(NamedTuple):
    """What a host's programs print, the first of it in words, and what the command ends with."""

    words: bytes
    more: bytes
    err: bytes
    code: int


@pytest.fixture(scope="module")
def printed(shared_command: VirtualCommand) -> Printed:
    """What one guest shows of SURROUNDINGS, of a program that looks at the host's NIC, and of WHO, whose output begins
    with a zero byte."""
    program = f'{SURROUNDINGS}; {sys.executable} {HERE / "offloads.py"} >&2; {sys.executable} -c "$0"; exit 3'
    words = ("exec", TINY, "z1h000", "--", "sh", "-c", program, WHO)
    started: Any = shared_command.start(*words, environment=USERS, stdin=subprocess.PIPE, text=False)
    with started as process:
        out, err = process.communicate(b"not for the program\n", timeout=600)
    first, zero, more = out.partition(b"\0")
    return Printed(first, zero + more, err, process.returncode)


def test_a_host_has_a_name_of_its_own_and_what_a_program_prints_comes_byte_for_byte(printed: Printed) -> None:
    assert printed.more == bytes(range(256)) + b"half a line", printed.err
    assert b"\nz1h000 10.1.0.1 10.129.0.1\n" in printed.err


def test_a_frame_is_copied_and_summed_up_by_nobody_on_its_way_and_never_merged(printed: Printed) -> None:
    assert b"\n1 1 1 0 0 0\n" in b"\n" + printed.err


def test_a_program_has_the_users_environment_nothing_to_read_and_its_exit_code_comes_through(printed: Printed) -> None:
    assert printed.code == 1, printed.err
    assert b"ended with 3" in printed.err
    assert printed.words == b"/home/somebody of it on z1h000\n0\n/dev/null\n"


def test_without_a_kernel_the_error_says_how_to_get_one(
    command: VirtualCommand, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kernel of the fingerprint of other sources is not a kernel: these have none."""
    script = (
        "import sys; from fabric.world.virtual import kernel; kernel.fingerprint = lambda: 'none';"
        "from app.cli import main; sys.exit(main(sys.argv[1:]))"
    )
    monkeypatch.delenv("FABRIC_GUEST_KERNEL", raising=False)
    monkeypatch.setattr(sys, "executable", _wrapper(command.here.parent / "python", script))
    done = command.run("path", SMALL, "z0h000", "z0h001", "--probe", environment={})
    assert done.returncode == 1
    assert "fabric virtual build" in done.stderr
    assert "Traceback" not in done.stderr


def _wrapper(path: Path, script: str) -> str:
    """Make a program that takes the place of ``python -m app.cli``."""
    path.write_text(f'#!/bin/sh\nshift 2\nexec "{sys.executable}" -c "{script}" "$@"\n')
    path.chmod(0o755)
    return str(path)


@pytest.mark.parametrize(
    ("number", "guests"),
    [
        pytest.param(signal.SIGKILL, 1, id="killed"),
        pytest.param(signal.SIGTERM, 1, id="terminated", marks=pytest.mark.soak),
        pytest.param(signal.SIGKILL, 2, id="killed in two guests", marks=pytest.mark.soak),
        pytest.param(signal.SIGTERM, 2, id="terminated in two guests"),
    ],
)
def test_a_run_that_is_ended_from_outside_leaves_nothing(
    command: VirtualCommand, number: signal.Signals, guests: int
) -> None:
    tiny = ("--set", f"topology={TINY}", "--set", "nccl_nodes=4")
    apart = ("--guests", "2", "--set", "topology.link_delay=1us", "--set", "topology.inter_zone.delay=1us")
    words = ("run", "isolation", *tiny, *(apart if guests > 1 else ()), "--out", "result")
    with command.start(*words, environment=OWN_GUEST) as process:
        deadline = time.monotonic() + 600
        while len(guest := below(process.pid)) < IN_HOSTS and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.5)
        assert len(guest) >= IN_HOSTS, f"the run did not get far enough: {process.communicate(timeout=300)[1]}"
        os.kill(process.pid, number)
        process.communicate(timeout=300)
    until(lambda: not guest & processes() and not list(command.temporary.iterdir()), "the end of all of the run")
    assert list(command.temporary.iterdir()) == list(command.here.iterdir()) == []


def test_the_last_line_of_a_command_is_the_clock_at_its_end(command: VirtualCommand) -> None:
    """A program that sleeps for a minute, over which the clock jumps, takes that minute, and each time the same."""
    words = ("exec", "head_of_line", "--queueing", "shared", "z0h000", "--", "sleep", "60")
    ends = [command.run(*words).stderr.splitlines()[-1] for _ in range(2)]
    print(ends)
    times = [re.match(r"virtual time (\d+\.\d+) s, wall time", end) for end in ends]
    assert all(time is not None and float(time[1]) >= 60 for time in times)
    assert len({time[1] for time in times if time is not None}) == 1
