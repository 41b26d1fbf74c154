"""Programs that poll, in a real guest: time passes for them, to the microsecond. Needs no root."""

from __future__ import annotations

import io
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fabric.errors import EmulationError
from fabric.world.virtual.guest import GIB, Channels, GuestMachine, run_in_guest
from fabric.world.virtual.watch import Limits

pytestmark = pytest.mark.guest

AFTER_NS = 1_000_000
GRAIN_NS = 6_000
"""A 256th of the millisecond that was polled for, and as much for a reading of the clock at the end."""
READ_NS = 25_000
"""What 20,000 readings of a clock, by 1 ns each, are ahead of others."""
CALLS = ("poll", "select", "epoll", "recv", "accept", "yield", "lock", "futex", "getpid", "read", "wait")
"""Loops over calls that find nothing, and"""
CLOCKS = ("clock", "raw", "reading", "counter", "counting")
"""over readings of a clock or the time stamp counter."""


@pytest.fixture(scope="module")
def polling(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program with all the loops."""
    program = tmp_path_factory.mktemp("polling") / "polling"
    source = Path(__file__).with_name("polling.c")
    subprocess.run(["gcc", "-O1", "-pthread", "-o", str(program), str(source)], check=True, timeout=60)
    return program


def run(*argv: str | Path, limits: Limits | None = None, told: list[str] | None = None) -> str:
    out = io.BytesIO()
    words = list(map(str, argv))
    channels = Channels(out, tell=None if told is None else told.append)
    code = run_in_guest(words, GuestMachine(1, GIB, limits or Limits(hang_s=60)), channels=channels)
    assert code == 0
    return out.getvalue().decode()


def test_time_passes_for_every_loop_that_polls_and_it_sees_what_happens_in_time(polling: Path) -> None:
    told: list[str] = []
    first, second = (run(polling, *CALLS, "sleep", *CLOCKS, "cpu", told=told) for _ in range(2))
    print(first)
    took = {kind: (int(ns), int(looks)) for kind, ns, looks in map(str.split, first.splitlines())}
    cpu_ns, _ = took.pop("cpu")
    assert 0 < cpu_ns < 2 * AFTER_NS + GRAIN_NS, "CPU time is counted in ticks of a millisecond"
    assert set(took) == {*CALLS, "sleep", *CLOCKS}
    for kind, (ns, _) in took.items():
        grain_ns = READ_NS if kind in CLOCKS else GRAIN_NS
        assert AFTER_NS <= ns < AFTER_NS + grain_ns, kind
    assert all(looks < 25_000 for _, looks in took.values())
    assert first == second
    assert told == []


@pytest.mark.soak  # Half a minute of computing for one limit, which the test of all other loops does not hang on.
def test_a_loop_of_calls_of_which_nobody_knows_whether_they_find_anything_ends(polling: Path) -> None:
    """After two million of them: a minute or less of wall time."""
    kind, ns, looks = run(polling, "kill", limits=Limits(hang_s=600)).split()
    assert (kind, int(looks) > 1_999_000) == ("kill", True)
    assert AFTER_NS <= int(ns) < AFTER_NS + GRAIN_NS


def test_a_loop_over_memory_is_named_within_10_s_with_what_to_do_and_ends_the_run_later(polling: Path) -> None:
    told: list[tuple[float, str]] = []
    began_s = time.monotonic()

    def tell(text: str) -> None:
        told.append((time.monotonic() - began_s, text))

    with pytest.raises(EmulationError, match=r"stood still at .* 'polling' \(process \d+\) computes for longer"):
        channels = Channels(io.BytesIO(), tell=tell)
        run_in_guest([str(polling), "memory"], GuestMachine(1, GIB, Limits(hang_s=15)), channels=channels)
    ((told_s, words),) = told
    assert words.startswith("note: 'polling' (process ")
    assert "without a system call, and no virtual time passes meanwhile. The run ends if that lasts 15 s" in words
    assert "let its loop wait, yield (sched_yield), poll a descriptor or read the clock" in words
    print(f"told after {told_s:.1f} s, the boot among them")


def test_who_looks_in_vain_now_and_then_loses_no_time() -> None:
    """As event loops do, up to 2,000 times in a row."""
    script = """
import os, select, socket, time
ours, theirs = socket.socketpair()
ours.setblocking(False)
asked = select.poll()
asked.register(ours, select.POLLIN)
def took_ns(rounds, in_a_row):
    time.sleep(0.001)
    began_ns = time.monotonic_ns()
    for _ in range(rounds):
        for _ in range(in_a_row):
            asked.poll(0)
        theirs.send(b"x")
        ours.recv(1)
    return time.monotonic_ns() - began_ns
print(took_ns(9, 1900), took_ns(1, 2100))
"""
    few_ns, many_ns = map(int, run(sys.executable, "-c", script).split())
    assert few_ns < 9 * 1_910, "by 1 ns for each reading of the clock, as Python's poll makes one"
    assert many_ns == pytest.approx(100_000, rel=0.1)


def test_a_spinner_keeps_nobody_waiting() -> None:
    """While one program reads the clock, or looks in vain, others that are ready run first: none is late."""
    script = """
import os, sys, time
from fabric.world.engines import VIRTUAL
def worker(number):
    if not os.fork():
        late_ns = 0
        for _ in range(100):
            due_ns = time.monotonic_ns() + 100_000
            time.sleep(0.0001)
            late_ns = max(late_ns, time.monotonic_ns() - due_ns)
        print(late_ns, flush=True)
        os._exit(0)
before, end = VIRTUAL.spun(), time.monotonic() + 0.02
for number in range(3):
    worker(number)
while time.monotonic() < end:
    pass
while time.monotonic() < end + 0.02:
    os.sched_yield()
print(VIRTUAL.spun().since(before).seconds)
"""
    *late_ns, spun_s = run(sys.executable, "-c", script).split()
    assert all(int(late) < 3_000 for late in late_ns)
    assert len(late_ns) == 3
    assert float(spun_s) == 0


@pytest.mark.parametrize(
    ("call", "messages"),
    [
        ("__rdtsc()", 2_000),
        ("now_ns()", 7_500),
        ("syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &(struct timespec){ 0 })", 7_500),
        ("recv(ends[1], &byte, 1, MSG_DONTWAIT)", 3_500),
    ],
)
def test_a_program_that_polls_answers_the_last_message_as_soon_as_the_first(
    call: str, messages: int, tmp_path: Path
) -> None:
    """Though it reads a clock, or looks in vain, before each answer."""
    source, program = tmp_path / "answers.c", tmp_path / "answers"
    source.write_text(
        """
#include <poll.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#include <x86intrin.h>
static long long now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000LL + now.tv_nsec;
}
int main(void)
{
    static long long took_ns[MESSAGES];
    int ends[2];
    char byte;
    socketpair(AF_UNIX, SOCK_STREAM, 0, ends);
    if (fork() == 0) {
        for (int number = 0; number < MESSAGES; number++) {
            while (recv(ends[1], &byte, 1, MSG_DONTWAIT) != 1);
            for (int time = 0; time < 3; time++)
                CALL;
            write(ends[1], &byte, 1);
        }
        _exit(0);
    }
    for (int number = 0; number < MESSAGES; number++) {
        long long asked_ns;
        nanosleep(&(struct timespec){ 0, 5000 }, NULL);
        asked_ns = now_ns();
        write(ends[0], "", 1);
        read(ends[0], &byte, 1);
        took_ns[number] = now_ns() - asked_ns;
    }
    printf("%lld %lld\\n", took_ns[0], took_ns[MESSAGES - 1]);
}
"""
    )
    subprocess.run(
        ["gcc", "-O1", f"-DCALL={call}", f"-DMESSAGES={messages}", "-o", program, source], check=True, timeout=60
    )
    first_ns, last_ns = map(int, run(program).split())
    print(first_ns, last_ns)
    assert first_ns < 50
    assert last_ns < 50, "often in all, but three times in a row, is not a wait"


def test_the_time_stamp_counter_counts_ns_of_virtual_time_and_the_linux_says_so(tmp_path: Path) -> None:
    source, program = tmp_path / "counter.c", tmp_path / "counter"
    source.write_text(
        """
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <x86intrin.h>
int main(void) {
    unsigned processor = 9;
    char line[200];
    usleep(10);
    unsigned long long first = __rdtsc(), second = __rdtscp(&processor);
    nanosleep(&(struct timespec){ 0, 1000000 }, NULL);
    unsigned long long third = __rdtsc();
    for (int i = 0; i < 1000; i++)
        __rdtsc();
    printf("%llu %llu %llu %u\\n", second - first, third - second, __rdtsc() - third, processor);
    FILE *file = fopen("/proc/cpuinfo", "r");
    while (fgets(line, sizeof line, file))
        if (strstr(line, "cpu MHz"))
            fputs(line, stdout);
    int status;
    if (!fork())
        *(volatile int *)0x10 = 0; /* A fault is one as ever. */
    wait(&status);
    printf("ended with %d\\n", WTERMSIG(status));
}
"""
    )
    subprocess.run(["gcc", "-O1", "-o", str(program), str(source)], check=True, timeout=60)
    counted, rate, ended = run(program).splitlines()
    apart, slept_ns, readings, processor = map(int, counted.split())
    assert (apart, readings, processor) == (1, 1001, 0)
    assert 1_000_000 <= slept_ns < 1_060_000
    assert rate.split() == ["cpu", "MHz", ":", "1000.000"]
    assert ended == "ended with 11"
