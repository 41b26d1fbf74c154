"""Guests of one run on several machines, in two network namespaces here: the same to the last digit as on one,
whatever the round trip, and nothing left of any when one is lost. Needs root for the namespaces."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from fabric.errors import UsageError
from fabric.world.virtual.machines import spread
from fabric.world.virtual.meeting import KEY
from tests.virtual.guests import below, parent_of
from tests.waiting import until

HERE, ROOT = "10.77.1.1", Path(__file__).parents[4]
THERE = "10.77.1.2"
ENDS_IN_S = 600.0


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, timeout=60)


class TwoMachines:
    """Two network namespaces with a link between them."""

    def __init__(self) -> None:
        self.names = [f"fabric-test-{os.getpid()}-{which}" for which in "ab"]
        self.started: list[subprocess.Popen[str]] = []

    def make(self, round_trip_us: int) -> None:
        for name in self.names:
            ip("netns", "add", name)
        wire = [sys.executable, "-m", "tests.delayed_wire", *self.names, str(round_trip_us // 2)]
        process = subprocess.Popen(
            wire, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)}
        )
        self.started.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == "there\n"
        for name, address in zip(self.names, (HERE, THERE), strict=True):
            ip("-n", name, "addr", "add", f"{address}/24", "dev", "wire")
            for interface in ("lo", "wire"):
                ip("-n", name, "link", "set", interface, "up")

    def start(self, machine: int, *words: str, **environment: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            ["ip", "netns", "exec", self.names[machine], sys.executable, "-m", *words],
            env={**os.environ, "PYTHONPATH": str(ROOT), **environment}, cwd=ROOT, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        self.started.append(process)
        return process

    def begin(self, what: str, guests: int, machines: int = 2) -> tuple[subprocess.Popen[str], ...]:
        """Start a part of linked_guests.py; return the process of each machine: all but the first share a namespace."""
        first = self.start(0, "tests.fabric.world.virtual.meets_here", HERE, str(guests), str(machines), what)
        assert first.stdout is not None
        port, key = first.stdout.readline().split()
        joining = ("fabric.world.other_machine", HERE, port)
        return first, *(self.start(1, *joining, **{KEY: key}) for _ in range(1, machines))

    def played(self, what: str, guests: int, machines: int = 2) -> str:
        """Return what guest 0 prints; all machines have ended then."""
        processes = self.begin(what, guests, machines)
        said = [process.communicate(timeout=ENDS_IN_S) for process in processes]
        assert [process.returncode for process in processes] == [0] * machines, said
        return said[0][0]

    def remove(self) -> None:
        for process in self.started:
            process.kill()
            process.wait(60)
        for name in self.names:
            with suppress(subprocess.CalledProcessError):
                ip("netns", "del", name)


@contextmanager
def two_machines(round_trip_us: int) -> Iterator[TwoMachines]:
    two = TwoMachines()
    try:
        two.make(round_trip_us)
        yield two
    finally:
        two.remove()


def all_below(ancestor: int) -> set[int]:
    found = {ancestor}
    numbers = sorted(int(entry.name) for entry in Path("/proc").glob("[0-9]*"))
    while more := {number for number in numbers if number not in found and parent_of(number) in found}:
        found |= more
    return found


def named(processes: set[int], word: str) -> list[int]:
    found = []
    for process in processes:
        with suppress(OSError):
            if word in Path(f"/proc/{process}/cmdline").read_text():
                found.append(process)
    return found


def have_gone(processes: set[int]) -> bool:
    return not any(Path(f"/proc/{process}/exe").exists() for process in processes)


@pytest.mark.root
@pytest.mark.guest
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    ("what", "guests", "others"),
    [
        ("exchange", 2, ((2, 0), (2, 50), (2, 500))),
        ("round_the_guests", 4, ((2, 0), (2, 50), (2, 500), (3, 50), (4, 50))),
    ],
)
def test_guests_on_several_machines_do_what_they_do_on_one(
    what: str, guests: int, others: Sequence[tuple[int, int]]
) -> None:
    found = {}
    for machines, round_trip_us in ((1, 0), *others):
        with two_machines(round_trip_us) as two:
            found[machines, round_trip_us] = two.played(what, guests, machines)
    assert found[1, 0].strip()
    assert len(set(found.values())) == 1, found


@pytest.mark.root
@pytest.mark.guest
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    ("lost", "reason"),
    [
        ("machine", r"failed: machine .* \(guest 1\) of the run was lost: "),
        ("guest", r"failed: machine .* \(guest 1\): guest 1 of the run: the guest's kernel was killed"),
        ("carrier", r"failed: machine .* \(guest 1\)(: what carries frames .* ended with| of the run was lost)"),
        ("first", r""),
        pytest.param(
            "wire", r"failed: machine .* \(guest 1\) of the run was lost: nothing was heard of it for 30 s",
            marks=pytest.mark.soak,  # Guests wait for each other for so long.
        ),
    ],
)  # fmt: skip
def test_what_is_lost_ends_the_run_everywhere_by_name(lost: str, reason: str) -> None:
    with two_machines(0) as machines:
        verify_lost(machines, lost, reason)


def verify_lost(machines: TwoMachines, lost: str, reason: str) -> None:
    first, other = machines.begin("end_late", 2)
    until(lambda: below(first.pid) and below(other.pid), "guests on both machines", ENDS_IN_S)
    carriers = until(lambda: named(all_below(other.pid), "guest_carrier"), "the carrier", ENDS_IN_S)
    all_of_them = all_below(first.pid) | all_below(other.pid)
    victims = {
        "machine": other.pid, "guest": min(below(other.pid)), "carrier": carriers[0], "first": first.pid,
        "wire": machines.started[0].pid,
    }  # fmt: skip
    os.kill(victims[lost], signal.SIGSTOP if lost == "wire" else signal.SIGKILL)
    said = first.communicate(timeout=ENDS_IN_S)[0]
    other.communicate(timeout=ENDS_IN_S)
    assert re.search(reason, said), said
    until(lambda: have_gone(all_of_them), "all processes to end", ENDS_IN_S)


def test_guests_are_spread_in_rows() -> None:
    assert spread(4, 2) == [(0, 1), (2, 3)]
    assert spread(5, 2) == [(0, 1), (2, 3, 4)]
    with pytest.raises(UsageError, match="--machines 3: with --guests 2 some would have none"):
        spread(2, 3)
