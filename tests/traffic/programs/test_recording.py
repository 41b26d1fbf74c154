"""What the library that records sockets writes of real programs, on addresses of the loopback interface."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from fabric.errors import EmulationError
from tests.ports import held_ports
from traffic.programs import recording
from traffic.programs.recording import ProcessRecords, RecordFlag, RecordKind, is_static, read_records
from traffic.work.operations import Compute, Receive, Send
from traffic.work.recording.maker import Recording, recording_of

BEGIN = """
import os, socket, subprocess, sys, threading, time
rank = int(os.environ["RANK"])
if rank == 0:
    with socket.create_server(("127.0.0.1", PORT)) as server:
        sock, _ = server.accept()
else:
    while True:
        try:
            sock = socket.create_connection(("127.0.0.1", PORT), 10, ("127.0.0.2", 0))
            break
        except ConnectionRefusedError:
            time.sleep(0.01)
def get(size):
    while size:
        size -= len(sock.recv(min(size, 50_000)))
"""
ANSWER = """
for step in range(3):
    if rank == 0:
        get(300_000); time.sleep(0.02); sock.sendall(bytes(10))
    else:
        sock.sendall(bytes(300_000)); get(10); time.sleep(0.01)
"""
THREADS = """
ready, done = threading.Event(), threading.Event()
def work():
    ready.wait(10)
    time.sleep(0.02)
    done.set()
threading.Thread(target=work).start()
if rank == 0:
    get(10); ready.set(); done.wait(10); sock.sendall(bytes(20))
else:
    ready.set(); sock.sendall(bytes(10)); get(20)
"""
LOOP = """
import selectors
sock.setblocking(False)
left, came = 8_000_000, 0
with selectors.DefaultSelector() as selector:
    selector.register(sock, selectors.EVENT_READ | selectors.EVENT_WRITE)
    data = memoryview(bytes(left))
    while left or came < 8_000_000:
        if not left:
            selector.modify(sock, selectors.EVENT_READ)
        for _, events in selector.select(10):
            if events & selectors.EVENT_READ:
                came += len(sock.recv(100_000))
            if left and events & selectors.EVENT_WRITE:
                left -= sock.send(data[-left:])
"""
CHILDREN = """
subprocess.run(["true"], check=True)  # By vfork(): what the child closes is open here.
if os.fork() == 0:
    (sock.sendall(bytes(100)), get(100)) if rank else (get(100), sock.sendall(bytes(100)))
    os._exit(0)
os.wait()
(sock.sendall(bytes(30)), get(40)) if rank else (get(30), sock.sendall(bytes(40)))
os.kill(os.getpid(), 9)
"""
Record = Callable[[str], Recording]


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("library")
    return Path(recording.recording_environment(directory)["LD_PRELOAD"])


@pytest.fixture
def record(tmp_path: Path, library: Path) -> Record:
    """Runs a program twice, as ranks 0 and 1 of hosts a and b, and returns the recording."""

    def run(program: str) -> Recording:
        (tmp_path / "records").mkdir()
        shutil.copy(library, tmp_path / "records")
        environment = {**os.environ, **recording.recording_environment(tmp_path / "records")}
        with held_ports(1) as (port,):
            command = [sys.executable, "-c", BEGIN.replace("PORT", str(port)) + program]
            started = [
                subprocess.Popen(command, env={**environment, "RANK": str(rank), "PMI_RANK": str(rank)})
                for rank in (0, 1)
            ]
            codes = [process.wait(30) for process in started]
        assert set(codes) <= {0, -9}
        return recording_of("two", read_records(tmp_path / "records"), {"127.0.0.1": "a", "127.0.0.2": "b"}, ["a", "b"])

    return run


def sizes(made: Recording, rank: int, kind: type[Send] | type[Receive]) -> list[int]:
    found = (one for one in made.graph.operations[rank] if isinstance(one, Send | Receive))
    return [one.size_bytes for one in found if isinstance(one, kind)]


def computed_s(made: Recording, rank: int) -> list[float]:
    """Return how long a rank computes at a time, what is shorter than 5 ms left out. A busy machine makes it longer."""
    found = [one.duration_s or 0 for one in made.graph.operations[rank] if isinstance(one, Compute)]
    return [duration_s for duration_s in found if duration_s > 0.005]


def test_questions_answers_and_what_is_computed_in_between(record: Record) -> None:
    made = record(ANSWER)
    assert sum(sizes(made, 1, Send)) == sum(sizes(made, 0, Receive)) == 900_000
    assert sizes(made, 0, Send) == sizes(made, 1, Receive) == [10] * 3
    assert sum(duration_s >= 0.02 for duration_s in computed_s(made, 0)) >= 3, "a busy machine adds some"
    assert sum(duration_s >= 0.01 for duration_s in computed_s(made, 1)) >= 2, "the last one is before no message"
    assert sum(computed_s(made, 0)) <= made.lasted_s
    assert made.lasted_s > 0.08
    assert made.faults == ()


def test_computing_of_a_thread_without_sockets_is_before_what_it_lets_go_on(record: Record) -> None:
    made = record(THREADS)
    operations = made.graph.operations[0]
    sent = next(place for place, one in enumerate(operations) if isinstance(one, Send))
    before = {sent}
    for place in range(sent, -1, -1):
        before |= set(operations[place].after) if place in before else set()
    assert any(isinstance(operations[place], Receive) for place in before)
    assert (
        sum(one.duration_s or 0 for one in (operations[place] for place in before) if isinstance(one, Compute)) > 0.019
    )


def test_what_a_loop_sends_and_receives_at_once_is_one_message_each_way(record: Record) -> None:
    """However often the socket was full; what the receiver's own computing cuts is not counted."""
    made = record(LOOP)
    for rank in (0, 1):
        assert sum(sizes(made, rank, Send)) == 8_000_000
        received = {place for place, one in enumerate(made.graph.operations[rank]) if isinstance(one, Receive)}
        sends = [one for one in made.graph.operations[rank] if isinstance(one, Send)]
        assert all(not received & set(one.after) for one in sends), "it had all of it to send from the begin"


def test_children_have_records_of_their_own_and_who_is_killed_keeps_them(record: Record, tmp_path: Path) -> None:
    made = record(CHILDREN)
    assert (sizes(made, 1, Send), sizes(made, 0, Send)) == ([100, 30], [100, 40])
    assert len(read_records(tmp_path / "records")) == 4
    assert made.faults == ()


def test_sockets_that_block_are_told_from_those_that_do_not(record: Record, tmp_path: Path) -> None:
    record(ANSWER + "\nsock.setblocking(False); sock.send(bytes(1))")
    found = [sent for one in read_records(tmp_path / "records") for sent in flags(one)]
    assert RecordFlag.DOES_NOT_BLOCK in found
    assert 0 in found


def flags(process: ProcessRecords) -> list[int]:
    return [int(row["flags"]) for row in process.records if row["kind"] == RecordKind.SENT]


def test_without_a_compiler_recording_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda _: None)
    with pytest.raises(
        EmulationError, match="recording a program needs a C library of ours built: apt-get install gcc"
    ):
        recording.recording_environment(tmp_path)


def test_programs_that_are_linked_statically_are_told(tmp_path: Path) -> None:
    (tmp_path / "program.c").write_text("int main(void) { return 0; }")
    for flag, expected in (("-static", True), ("-static-pie", True), ("-pie", False), ("-no-pie", False)):
        program = tmp_path / flag
        subprocess.run(["cc", flag, "-o", program, tmp_path / "program.c"], check=True, timeout=60)
        assert is_static(program) == expected, flag
    script = tmp_path / "script"
    script.write_text("#!/bin/sh\n")
    assert not is_static(script)


def test_a_file_that_is_none_is_told(tmp_path: Path) -> None:
    (tmp_path / "1-0.records").write_bytes(b"something else")
    with pytest.raises(
        EmulationError, match=r"1-0.records: is not a file of records of a program: its first bytes are b'somethin'"
    ):
        read_records(tmp_path)
