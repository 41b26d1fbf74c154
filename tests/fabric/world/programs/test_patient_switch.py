"""The library that ovs-vswitchd is started with, preloaded into programs of our own."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from fabric.errors import EmulationError
from fabric.world.programs.preload import switch_library
from tests.real_time import in_real_time
from tests.waiting import until

PERIOD_S = 0.05


def run(program: str) -> str:
    """Run a Python program with the library and return what it prints."""
    environment = {
        **os.environ,
        "LD_PRELOAD": str(switch_library()),
        "FABRIC_SWITCH_PERIOD_NS": str(int(PERIOD_S * 1e9)),
    }
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


_POLLED = """
import select, socket, threading, time
ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
ours.setblocking(False)
looks = select.poll()
looks.register(ours, select.POLLIN)
def asked():
    try:
        return ours.recv(10).decode()
    except BlockingIOError:
        return "nothing"
"""


@in_real_time
def test_looks_are_apart_by_the_period_and_the_first_is_at_once() -> None:
    program = f"""{_POLLED}
theirs.send(b"1")
started = time.monotonic()
looks.poll(0)
first = time.monotonic() - started
for _ in range(4):
    looks.poll(0)
print(first, time.monotonic() - started)
"""

    def is_at_once() -> bool:
        first_s, all_s = map(float, run(program).split())
        assert all_s >= 4 * PERIOD_S
        return first_s < PERIOD_S / 2

    until(is_at_once, "a first look at once; a busy machine may hold some up")


@in_real_time
def test_other_threads_look_when_they_like() -> None:
    program = f"""{_POLLED}
took = []
def look():
    started = time.monotonic()
    for _ in range(5):
        looks.poll(0)
    took.append(time.monotonic() - started)
thread = threading.Thread(target=look)
thread.start()
thread.join()
print(took[0])
"""
    until(lambda: float(run(program)) < 4 * PERIOD_S, "five looks in four periods; a busy machine may hold some up")


def test_what_a_look_found_empty_is_empty_until_the_next_and_nothing_is_lost() -> None:
    program = f"""{_POLLED}
said = [asked()]        # Never looked at: asked for real.
theirs.send(b"a")
said.append(asked())
looks.poll(0)
theirs.send(b"b")
said.append(asked())    # It came after the look.
looks.poll(0)
said += [asked(), asked()]
print(*said)
"""
    assert run(program) == "nothing a nothing b nothing"


def test_memory_may_move_between_threads_grow_and_shrink() -> None:
    program = """
import hashlib, os, queue, threading
handed, back = queue.Queue(), queue.Queue()
def work():
    while (block := handed.get()) is not None:
        back.put(block + bytes(len(block) % 7))   # Given back here, made there.
        del block
threads = [threading.Thread(target=work) for _ in range(4)]
for thread in threads:
    thread.start()
kept = {}
for round in range(3000):
    size = 1000 + round * 37 % 20000
    block = os.urandom(size)
    kept[round] = bytearray(block), hashlib.sha256(block).digest()
    kept[round][0].extend(bytes(size)); del kept[round][0][size:]
    handed.put(bytes(size))
    if round >= 100:
        block, digest = kept.pop(round - 100)
        assert hashlib.sha256(block).digest() == digest
for thread in threads:
    handed.put(None)
for thread in threads:
    thread.join()
print(back.qsize())
"""
    assert run(program) == "3000"


def test_a_source_that_does_not_compile_says_so(
    monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    broken = tmp_path_factory.mktemp("source") / "broken.c"
    broken.write_text("int x = ;")
    monkeypatch.setattr("fabric.world.programs.preload._SOURCES", (broken,))
    monkeypatch.setenv("XDG_CACHE_HOME", str(broken.parent))
    with pytest.raises(EmulationError, match="does not compile"):
        switch_library()
