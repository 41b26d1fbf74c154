"""Runs a real guest. Needs no root."""

from __future__ import annotations

import io
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from fabric.errors import EmulationError
from fabric.world.virtual import kernel
from fabric.world.virtual.guest import GIB, Channels, GuestMachine, Surroundings, directories_named, run_in_guest
from fabric.world.virtual.watch import GuestTime, Limits
from tests.waiting import until

pytestmark = pytest.mark.guest


def run(*argv: str, seed: int = 1, memory_bytes: int = GIB, limits: Limits | None = None) -> tuple[int, str, str]:
    stdout, stderr = io.BytesIO(), io.BytesIO()
    machine = GuestMachine(seed, memory_bytes, limits or Limits(hang_s=60))
    code = run_in_guest(argv, machine, channels=Channels(stdout, stderr))
    return code, stdout.getvalue().decode(), stderr.getvalue().decode()


def processes_of_guests() -> dict[int, int]:
    """Return each process of any guest on this machine with its parent's."""
    built = kernel.require().kernel.resolve()
    found = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if (entry / "exe").resolve() == built:
                found[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue  # It has ended in the meantime, or is not ours to look at.
    return found


def orphans() -> set[int]:
    guests = processes_of_guests()
    return {process for process, parent in guests.items() if parent == 1}


@pytest.fixture(autouse=True)
def directories_of_guests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Check after each test that its guests have left nothing behind."""
    directory = tmp_path / "guests"
    directory.mkdir()
    monkeypatch.setenv("TMPDIR", str(directory))
    monkeypatch.setattr(tempfile, "tempdir", str(directory))
    before = orphans()
    yield directory
    until(lambda: orphans() <= before, "the end of guests without a parent, also of those of other tests")
    until(lambda: not list(directory.iterdir()), "the end of the directories of guests")
    until(lambda: not list(Path("/dev/shm").glob("vm_file*")), "guests to take the name off their memory")


def test_a_program_gives_its_output_and_its_exit_code() -> None:
    assert run("sh", "-c", "echo out; echo err >&2; exit 3") == (3, "out\n", "err\n")


def test_a_program_ended_by_a_signal_returns_what_a_shell_says() -> None:
    assert run("sh", "-c", "kill -9 $$")[0] == 128 + signal.SIGKILL


def test_a_program_starts_after_12_s_of_uptime_and_an_hour_of_sleep_takes_no_time() -> None:
    script = "import time; print(time.monotonic()); time.sleep(3600); print(time.monotonic())"
    started_s = time.monotonic()
    code, out, _ = run(sys.executable, "-c", script)
    before_s, after_s = map(float, out.split())
    assert (code, round(before_s), round(after_s - before_s, 3)) == (0, 12, 3600)
    assert time.monotonic() - started_s < 600, "a guest that gives way to all others takes some seconds"


def spent_ns(failing_call: str, *counts: int) -> list[int]:
    """Return how long a guest's program takes for so many calls that fail, each time after it has waited."""
    script = f"""
import os, time
for calls in {counts}:
    time.sleep(0.001)
    started_ns = time.monotonic_ns()
    for _ in range(calls):
        try:
            {failing_call}
        except OSError:
            pass
    print(time.monotonic_ns() - started_ns)
"""
    code, out, _ = run(sys.executable, "-c", script)
    print(out)
    assert code == 0
    return [int(line) for line in out.split()]


def test_a_call_that_fails_takes_no_time_unless_its_program_polls() -> None:
    few_ns, many_ns = spent_ns("os.kill(1 << 22, 0)", 1_900, 2_100)
    assert few_ns == 1, "the second reading of the clock"
    assert many_ns == pytest.approx(100_000, rel=0.1)
    few_ns, many_ns = spent_ns("os.umask(0), os.kill(1 << 22, 0)", 9_000, 11_000)
    assert few_ns == 1, "not in a row"
    assert many_ns == pytest.approx(1_000 * 1_000 / 5, rel=0.1), "each fifth of the last 1,000 takes 1 us"


def test_to_find_no_file_takes_no_time_unless_its_program_polls() -> None:
    """How often a program does so at its start hangs on how deep in the directories it lies."""
    some_ns, many_ns = spent_ns("os.readlink('/proc')", 20_000, 110_200)
    assert some_ns == 1
    assert many_ns == pytest.approx(200 * 1_000 / 5, rel=0.1)


def test_to_close_what_is_not_open_takes_no_time_however_often() -> None:
    """As programs do that close all descriptors which they might have, from 3 to the limit."""
    assert spent_ns("os.close(1 << 20)", 100, 30_000) == [1, 1]


def test_time_that_passes_while_a_program_uses_up_cpu_time_is_counted_if_another_is_ready() -> None:
    script = """
import os, time
from fabric.world.engines import VIRTUAL
def spin(programs):
    before = VIRTUAL.spun()
    others = [os.fork() for _ in range(programs - 1)]
    end = time.process_time() + 0.1
    while time.process_time() < end:
        pass
    if 0 in others:
        os._exit(0)
    spun = VIRTUAL.spun().since(before)
    print(spun.seconds, spun.program, flush=True)
open("/proc/self/comm", "w").write("spinner")
spin(1)
spin(2)
"""
    code, out, errors = run(sys.executable, "-c", script)
    assert code == 0, errors
    print(out)
    alone, beside = (line.split() for line in out.splitlines())
    assert float(alone[0]) < 0.01
    assert float(beside[0]) == pytest.approx(0.2, abs=0.02), "each kept the other waiting"
    assert beside[1] == "spinner"


def test_the_clock_that_programs_read_by_themselves_is_the_kernels() -> None:
    """Nor does a reading leap over what is due: while a program reads on, another wakes at its time, to the
    microsecond that a reading takes by then."""
    script = """
import ctypes, os, time
kernel = ctypes.CDLL(None).syscall
now = (ctypes.c_long * 2)()
def by_call_ns(clock):
    kernel(228, clock, ctypes.byref(now))  # clock_gettime
    return now[0] * 10**9 + now[1]
time.sleep(0.001)
for clock in (time.CLOCK_MONOTONIC, time.CLOCK_REALTIME):
    readings = [time.clock_gettime_ns(clock) for _ in range(50)]
    readings += [by_call_ns(clock), *(time.clock_gettime_ns(clock) for _ in range(50)), by_call_ns(clock)]
    print(readings[-1] - readings[0], min(b - a for a, b in zip(readings, readings[1:])))
ours, theirs = os.pipe()
if not os.fork():
    begun_ns = time.monotonic_ns()
    time.sleep(0.005)
    os.write(theirs, b"%d" % (time.monotonic_ns() - begun_ns))
    os._exit(0)
time.sleep(0.001)
begun_ns = time.monotonic_ns()
while time.monotonic_ns() - begun_ns < 20_000_000:
    pass
print(os.read(ours, 20).decode(), int("[clock]" in open("/proc/self/maps").read()))
"""
    code, out, _ = run(sys.executable, "-c", script)
    print(out)
    monotonic, realtime, (slept_ns, is_mapped) = (list(map(int, line.split())) for line in out.splitlines())
    assert code == 0
    assert monotonic == realtime == [101, 1]
    assert 5_000_000 <= slept_ns < 5_002_000
    assert is_mapped


def test_who_waits_wakes_when_it_asked_to_whatever_others_wait_for() -> None:
    """Neither late nor with another's timer, in sleeps and in calls that wait for events, as any program has them."""
    script = """
import os, select, sys, threading, time
def poll(seconds):
    select.poll().poll(seconds * 1000)
def epoll(seconds):
    with select.epoll() as waiting:
        waiting.poll(seconds)
def condition(seconds):
    with (found := threading.Condition()):
        found.wait(seconds)
waits = (time.sleep, lambda seconds: select.select([], [], [], seconds), poll, epoll, condition)
for others in (0, 3):
    for number in range(others):
        if not os.fork():
            for _ in range(40_000):
                time.sleep(7e-6 + number * 1e-6)
            os._exit(0)
    late_ns = []
    for wait in waits:
        for seconds in (0.001, 0.04):
            due_ns = time.monotonic_ns() + round(seconds * 1e9)
            wait(seconds)
            late_ns.append(time.monotonic_ns() - due_ns)
    print(*late_ns)
"""
    code, out, errors = run("sh", "-c", 'exec "$0" -c "$1"', sys.executable, script)
    print(out)
    assert code == 0, errors
    alone, beside = (list(map(int, line.split())) for line in out.splitlines())
    assert len(alone) == len(beside) == 10
    assert all(0 <= late_ns < 1000 for late_ns in alone + beside)


def test_no_time_passes_for_others_while_a_program_reads_the_clock_and_what_it_reads_only_grows() -> None:
    """Up to 20,000 readings without a wait; what a program has read is its child's past, too."""
    script = """
import os, time
time.sleep(0.001)
ours, theirs = os.pipe()
go, start = os.pipe()
if not os.fork():
    begun_ns = time.monotonic_ns()
    os.write(theirs, b"0")
    os.read(go, 1)
    os.write(theirs, b"%d" % (time.monotonic_ns() - begun_ns))
    os._exit(0)
os.read(ours, 1)
readings = [time.monotonic_ns() for _ in range(15_000)]
os.write(start, b"0")
print(os.read(ours, 20).decode(), readings[-1] - readings[0])
if not os.fork():
    print(time.monotonic_ns() - readings[-1], flush=True)
    os._exit(0)
os.wait()
readings = [time.monotonic_ns() - readings[-1], time.monotonic_ns()]
time.sleep(0.001)
print(readings[0], time.monotonic_ns() > readings[-1])
"""
    code, out, _ = run(sys.executable, "-c", script)
    print(out)
    slept_ns, read_ns, in_child_ns, later_ns, grows = out.split()
    assert (code, slept_ns, read_ns, grows) == (0, "1", "14999", "True")
    assert 1 <= int(in_child_ns) < 100 and 1 <= int(later_ns) < 100


def test_yielding_takes_no_time_up_to_2000_times_in_a_row() -> None:
    """Programs yield now and then; some kernels charge them for it."""
    script = """
import os, time
time.sleep(0.001)
started_ns = time.monotonic_ns()
for _ in range(2000):
    os.sched_yield()
print(time.monotonic_ns() - started_ns)
"""
    code, out, _ = run(sys.executable, "-c", script)
    assert code == 0
    assert int(out) < 10


def test_two_programs_that_poll_move_the_clock_whatever_their_numbers() -> None:
    """Each has a count of its own, also if their numbers are equal modulo 64, as a table's places would have it.

    They sleep at the same time.
    """
    script = """
import os, time
apart, calls = 64, 2_200
blocked, starter = os.pipe()

def poller():
    if child := os.fork():
        return child
    os.close(starter)
    os.read(blocked, 1)
    for _ in range(calls):
        try:
            os.kill(1 << 22, 0)
        except ProcessLookupError:
            pass
    os._exit(0)

first = poller()
for _ in range(apart - 1):
    if (passed_over := os.fork()) == 0:
        os._exit(0)
    os.waitpid(passed_over, 0)
second = poller()
started_ns = time.monotonic_ns()
os.close(starter)
for child in (first, second):
    os.waitpid(child, 0)
print(second - first, time.monotonic_ns() - started_ns)
"""
    code, out, _ = run(sys.executable, "-c", script)
    apart, spent_ns = map(int, out.split())
    assert (code, apart) == (0, 64)
    assert spent_ns == pytest.approx(200_000, rel=0.1)


def test_two_guests_of_one_seed_agree_in_time_and_chance_and_another_seed_differs() -> None:
    script = "import os, time; print(time.time_ns(), os.urandom(8).hex(), hash('x'), id(os), os.getpid())"
    first, second, other = (run(sys.executable, "-c", script, seed=seed)[1] for seed in (1, 1, 2))
    assert first == second
    assert first.split()[1:3] != other.split()[1:3]


def test_time_and_chance_do_not_hang_on_where_a_program_lies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = []
    for place in (tmp_path / "a", tmp_path / "a/place/deeper/by/far"):
        place.mkdir(parents=True)
        script = place / "script.py"
        script.write_text("import os, time; time.sleep(0.1); print(time.monotonic_ns(), os.urandom(8).hex())")
        monkeypatch.chdir(place)
        said.append(run(sys.executable, str(script))[1])
    assert said[0]
    assert said[0] == said[1]


def test_files_are_written_on_the_host_as_the_account_that_runs_the_guest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run("sh", "-c", f"mkdir sub; echo result > sub/file; echo gone > /tmp/{tmp_path.name}-of-guest")[0] == 0
    assert (tmp_path / "sub/file").read_text() == "result\n"
    assert (tmp_path / "sub/file").stat().st_uid == os.geteuid()
    assert not Path(f"/tmp/{tmp_path.name}-of-guest").exists()


def test_a_script_in_the_hosts_tmp_is_there_if_the_command_names_it(directories_of_guests: Path) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as place:
        script = Path(place) / "job.sh"
        script.write_text("echo found; echo result > $0.out\n")
        for keep, code in (((), 2), (directories_named(["sh", str(script)]), 0)):
            stdout = io.BytesIO()
            argv = ["sh", str(script)]
            channels = Channels(stdout, io.BytesIO())
            assert run_in_guest(argv, GuestMachine(1, GIB), Surroundings(keep), channels) == code
        assert stdout.getvalue() == b"found\n"
        assert Path(f"{script}.out").read_text() == "result\n"


def test_the_guest_has_root_and_a_network_of_its_own() -> None:
    script = "id -u; ip link add v0 type veth peer name v1; ip -br link | cut -d' ' -f1"
    assert run("sh", "-c", script)[1].split() == ["0", "lo", "v1@v0", "v0@v1"]


def test_a_loop_that_never_sleeps_is_ended_with_a_reason() -> None:
    said = r"(stood still|hardly moved) at 12\.\d+ s for \d+ s of wall time: 'sh' \(process \d+\) computes for longer"
    with pytest.raises(EmulationError, match=said):
        run("sh", "-c", "while :; do :; done", limits=Limits(hang_s=2))


def test_programs_that_wait_for_each_other_are_ended_with_a_reason() -> None:
    with pytest.raises(EmulationError, match="of virtual time: do programs wait for nothing"):
        run(sys.executable, "-c", "import threading; threading.Event().wait()", limits=Limits(virtual_s=3600))


def test_a_program_that_needs_too_much_memory_is_ended_with_a_reason() -> None:
    with pytest.raises(EmulationError, match=r"ran out of its 0\.2 GiB of memory"):
        run(sys.executable, "-c", "x = [b'x' * 10**6 for _ in range(10**6)]", memory_bytes=GIB // 4)


def area_of_pages(before_a_block: int) -> str:
    """Return the beginning of a script: an ``area`` of 40 pages of its own, so many of them before a block of 16."""
    return f"""
import ctypes
PAGE, PAGES, BLOCK = 4096, 40, 16
libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
there = libc.mmap(None, 5 * BLOCK * PAGE, 0, 0x22, -1, 0)
aligned = (there + BLOCK * PAGE - 1) // (BLOCK * PAGE) * BLOCK * PAGE
start = aligned + (BLOCK - {before_a_block}) * PAGE
libc.mprotect(ctypes.c_void_p(start), PAGES * PAGE, 3)
area = (ctypes.c_ubyte * (PAGES * PAGE)).from_address(start)
"""


def test_what_lies_around_a_page_that_is_written_comes_with_it_and_holds_zeros() -> None:
    """16 pages at a time, aligned, within their area: 40 pages here, of which number 4 is the first that is aligned."""
    script = area_of_pages(before_a_block=4)
    script += """
def resident():
    found = (ctypes.c_ubyte * PAGES)()
    assert libc.mincore(ctypes.c_void_p(start), PAGES * PAGE, found) == 0
    return [page for page in range(PAGES) if found[page] & 1]
print(resident())
for page in (1, 7, 39):
    area[page * PAGE] = 1
    print(resident())
print(sum(area))
"""
    lines = run(sys.executable, "-c", script)[1].splitlines()
    assert lines == [str(pages) for pages in ([], [*range(4)], [*range(20)], [*range(20), *range(36, 40)], 3)]


def test_a_new_process_reads_its_parents_pages_without_faults_and_has_a_copy_of_one_that_it_writes() -> None:
    """What either process writes, the other does not see."""
    script = area_of_pages(before_a_block=0)
    script += """
import os, resource
for page in range(PAGES):
    area[page * PAGE] = page
def values():
    return [area[page * PAGE] for page in range(PAGES)]
def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
def own():
    with open("/proc/self/pagemap", "rb") as file:
        file.seek(start // PAGE * 8)
        entries = memoryview(file.read(PAGES * 8)).cast("Q")
    return [page for page in range(PAGES) if entries[page] >> 56 & 1]
values(), faults(), own()
if os.fork() == 0:
    faults()
    before = faults()
    read = sum(area[::PAGE])
    print(read, faults() - before < 20, flush=True)
    area[5 * PAGE] = 105
    print(own(), values()[3:9], flush=True)
    os._exit(0)
os.wait()
print(own() == [*range(PAGES)], values() == [*range(PAGES)])
"""
    lines = run(sys.executable, "-c", script)[1].splitlines()
    assert lines == ["780 True", "[5] [3, 4, 105, 6, 7, 8]", "True True"]


def test_values_in_floating_point_registers_outlast_calls_faults_signals_and_forks(tmp_path: Path) -> None:
    """Of two threads in each of three processes, which take turns at every call; each fork has them, too."""
    program = tmp_path / "fp_registers"
    source = Path(__file__).with_name("fp_registers.c")
    subprocess.run(["gcc", "-O1", "-pthread", "-o", str(program), str(source)], check=True, timeout=60)
    assert run(str(program))[1] == f"{6 * (3 * 100 + 2)} held, 0 lost\n"


def test_a_program_with_more_scattered_memory_than_the_host_maps_is_told_with_what_helps() -> None:
    """Each page that lies apart in the guest's memory is a mapping on the host; 65,530 are a kernel's default limit."""
    limit = int(Path("/proc/sys/vm/max_map_count").read_text())
    if limit > 10**5:
        pytest.skip(f"this host allows {limit} mappings, a program that uses all of them takes too long")
    program = """if True:
        import mmap, random, sys
        pages = list(range(int(sys.argv[1])))
        random.Random(1).shuffle(pages)
        memory = mmap.mmap(-1, len(pages) << 12)
        for page in pages:
            memory[page << 12] = 1
        """
    with pytest.raises(EmulationError, match=r"needed more mappings than this host allows.*sysctl vm\.max_map_count"):
        run(sys.executable, "-c", program, str(2 * limit), memory_bytes=2 * GIB)


def test_the_kernels_own_memory_is_in_pages_of_2_mib_and_that_of_programs_is_not() -> None:
    if tuple(int(part) for part in os.uname().release.split(".")[:2]) < (6, 1):
        pytest.skip("kernels before 6.1 do not hold shared memory in pages of 2 MiB when asked to")
    mapped: list[int] = []

    def look(moment: GuestTime) -> None:
        for process, parent in processes_of_guests().items():
            if parent != os.getpid():
                continue  # Guests of other tests run beside it.
            with suppress(ProcessLookupError, FileNotFoundError):  # It has ended since it was listed.
                said = Path(f"/proc/{process}/smaps_rollup").read_text()
                mapped.extend(int(found) >> 10 for found in re.findall(r"ShmemPmdMapped: +(\d+) kB", said))

    program = "memory = bytearray(200 << 20)\nsum(range(10**8))"
    channels = Channels(io.BytesIO(), progress=look)
    run_in_guest([sys.executable, "-c", program], GuestMachine(1, GIB), channels=channels)
    assert 16 <= max(mapped) < 200


def test_a_panic_is_reported_in_the_words_of_the_kernel() -> None:
    overwrite_init = (
        "code = next(line for line in open('/proc/1/maps') if 'r-xp' in line).split('-');"
        "start, end = int(code[0], 16), int(code[1].split()[0], 16);"
        "memory = open('/proc/1/mem', 'r+b', buffering=0); memory.seek(start); memory.write(bytes(end - start))"
    )
    with pytest.raises(EmulationError, match=r"panicked: Attempted to kill init"):
        run(sys.executable, "-c", overwrite_init)


def test_progress_tells_virtual_and_wall_time() -> None:
    seen: list[GuestTime] = []
    channels = Channels(io.BytesIO(), progress=seen.append)
    run_in_guest([sys.executable, "-c", "sum(range(10**8))"], GuestMachine(1, GIB), channels=channels)
    assert seen
    assert all(moment.virtual_s <= 13 and moment.wall_s > 0 for moment in seen)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT], ids=["killed", "interrupted"])
def test_a_guest_ends_with_the_process_that_started_it(number: signal.Signals) -> None:
    script = (
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler);"  # Background jobs ignore it.
        "from fabric.world.virtual.guest import GuestMachine, run_in_guest;"
        "run_in_guest(['sh', '-c', 'echo started; while :; do :; done'], GuestMachine(1, 1 << 30))"
    )
    root = Path(__file__).parents[4]
    parent = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, cwd=root, stderr=subprocess.PIPE)
    assert parent.stdout is not None
    with parent:
        assert parent.stdout.readline() == b"started\n"
        guest = next(process for process, its_parent in processes_of_guests().items() if its_parent == parent.pid)
        inside = {process for process, its_parent in processes_of_guests().items() if its_parent == guest}
        assert inside
        parent.send_signal(number)
    until(lambda: not (inside | {guest}) & processes_of_guests().keys(), "the end of the guest and of what is in it")


def test_a_guest_that_was_stopped_for_a_while_goes_on_as_if_nothing_had_been() -> None:
    script = "import time; print('started', flush=True); [time.sleep(0.001) for _ in range(60000)]; print('done')"
    stdout = io.BytesIO()
    stopped: set[int] = set()

    def stop_and_continue(_: GuestTime) -> None:
        guests = processes_of_guests()
        ours = {process for process, parent in guests.items() if parent == os.getpid()}
        ours |= {process for process, parent in guests.items() if parent in ours}
        for number in (signal.SIGSTOP, signal.SIGCONT):
            for process in ours:
                with suppress(ProcessLookupError):  # It has ended since it was listed.
                    os.kill(process, number)
        stopped.update(ours)

    argv = [sys.executable, "-c", script]
    channels = Channels(stdout, progress=stop_and_continue)
    assert run_in_guest(argv, GuestMachine(1, GIB), channels=channels) == 0
    assert stdout.getvalue() == b"started\ndone\n"
    assert len(stopped) > 1
